"""Scatters into memory that nobody needs as it was: no copy of it is made first.

What a scatter changes is a copy of a tensor (``aten/scattering.py``). Where the tensor is a temporary that nobody reads
later, or an input that the result is to be copied into, the scatter changes that itself. What it computes of the tensor
meanwhile is computed before, where that is less than the copy:

    t = old; t[i[d]] = old[2 i[d]] + old[2 i[d] + 1]        v[d] = old[2 i[d]] + old[2 i[d] + 1]; old[i[d]] = v[d]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from jitney_lowering.aten.tensor import contiguous
from jitney_lowering.index import Names, index, linear, product
from jitney_lowering.ir.kernel import Kernel, Nest, Scatter, Store
from jitney_lowering.ir.loops import Buffer, Extern, Program, Strided
from jitney_lowering.ir.values import Load, Put, Value, rebuild, walk
from jitney_lowering.scheduler.memory.in_place import alike, root
from jitney_lowering.scheduler.memory.successors import FRESH
from jitney_lowering.scheduler.memory.updates import whole

Items = list[Kernel | Extern]
# So many times smaller is what a scatter computes of a tensor than the tensor, if it is computed before.
SMALLER = 4


def scattered_in_place(
    program: Program, items: Sequence[Kernel | Extern], updates: Mapping[int, int], kept: Collection[str], names: Names
) -> tuple[Items, dict[str, Buffer], dict[str, str]]:
    """The items without such copies, the buffers, and buffers that replace an input: buffer -> the input's.

    Args:
        program: the graph.
        items: what runs, in order.
        updates: output -> the input that gets its value.
        kept: buffers that somebody has after the call.
        names: for new buffers.

    The last comes first: of a chain of them, each of which changes what the one before has made, the first then knows
    whether the last is to be an input.
    """
    order, buffers = list(items), dict(program.buffers)
    filled: dict[str, str] = {}
    done: list[str] = []  # what is made in place
    targets = _targets(program, updates)
    for change in [change for item in reversed(items) for change in _changes(item)]:
        at = next(n for n, item in enumerate(order) if change in _changes(item))
        scatter = order[at]
        assert isinstance(scatter, Kernel)
        copy = next((n for n, item in enumerate(order) if change.value.buffer in item.writes), None)
        old = None if copy is None else _copied(order[copy], change.value.buffer)
        if copy is None or old is None:
            continue
        old = root(old, buffers)
        if not alike(buffers[change.buffer], buffers[old]):
            continue
        before = _apart(scatter, change, old, buffers, names)
        if before is None or not _is_last([*order[:at], before[-1], *order[at + 1 :]], at, copy, old, buffers):
            continue
        rest = _without(order[copy], change.value.buffer)
        chain = [change.buffer, *(name for name in done if root(name, buffers) == change.buffer)]
        if any(targets.get(name) == old for name in chain):
            readers = [item for n, item in enumerate(order) if n != copy] + ([] if rest is None else [rest])
            alone = change.value.kind == "store" and len(chain) == 1
            unread = alone and not any(old in item.reads for item in readers)
            if not _may_be_changed(order[at:], {check[0] for check in program.checks}, unread):
                continue
            filled |= dict.fromkeys(chain, old)
        elif not _is_ours(order, old, buffers, kept):
            continue
        buffers |= {name: replace(buffers[name], home=(old, index(0))) for name in chain}
        done.append(change.buffer)
        *made, scatter = before
        for kernel in made:
            buffers |= {name: _temporary(kernel, name, buffers[old]) for name in kernel.writes}
        (change,) = [s for s in _changes(scatter) if s.buffer == change.buffer]
        order[at : at + 1] = [*made, _into(scatter, change, old)]
        order[copy : copy + 1] = [] if rest is None else [rest]
    return order, buffers, filled


def _changes(item: Kernel | Extern) -> list[Scatter]:
    """What a kernel that does nothing else scatters."""
    if not isinstance(item, Kernel) or len(item.body) != 1:
        return []
    statements = item.body[0].statements
    found = [statement for statement in statements if isinstance(statement, Scatter)]
    return found if len(found) == len(statements) else []


def _apart(
    scatter: Kernel, change: Scatter, old: str, buffers: Mapping[str, Buffer], names: Names
) -> list[Kernel] | None:
    """The scatter, behind a kernel that computes what it needs of ``old``; None if that is much, or not known."""
    parts = {id(p): p for p in change.value.parts if any(_is_of(v, old, buffers) for v in walk(p))}
    if not parts:
        return [scatter]
    loops = (*scatter.outer, *scatter.body[0].loops)
    count, extent = product(loops).value, buffers[old].extent.value
    if len(_changes(scatter)) > 1 or count is None or extent is None:
        return None
    size = buffers[old].dtype.itemsize
    if count * sum(p.dtype.itemsize for p in parts.values()) * SMALLER > extent * size:
        return None
    place = linear(loops)
    loads = {key: Load(part.dtype, names.name("c"), place) for key, part in parts.items()}
    stores = tuple([Store(load.buffer, place, parts[key]) for key, load in loads.items()])
    put = change.value
    value = Put(
        put.dtype,
        put.buffer,
        put.index,
        tuple([(atom, loads.get(id(value), value)) for atom, value in put.indirect]),
        loads.get(id(put.value), put.value),
        put.kind,
        None if put.mask is None else loads.get(id(put.mask), put.mask),
    )
    (nest,) = scatter.body
    temporaries = {load.buffer: load.dtype for load in loads.values()}
    first = replace(scatter, name=f"{scatter.name}c", body=(Nest(nest.loops, stores),), after=frozenset())
    second = replace(scatter, body=(Nest(nest.loops, (replace(change, value=value),)),))
    given = {**scatter.buffers, **temporaries}
    return [replace(k, buffers=given).without_unused() for k in (first, second)]


def _is_of(value: Value, old: str, buffers: Mapping[str, Buffer]) -> bool:
    """Does it come from that memory?"""
    return isinstance(value, Load) and value.buffer in buffers and root(value.buffer, buffers) == old


def _temporary(kernel: Kernel, name: str, beside: Buffer) -> Buffer:
    """What a kernel that goes through it in order stores."""
    size = tuple([loop.size for loop in (*kernel.outer, *kernel.body[0].loops)])
    return Buffer(name, kernel.buffers[name], size, contiguous(size), beside.device)


def _targets(program: Program, updates: Mapping[int, int]) -> dict[str, str]:
    """Buffer of an output that is an input's new value, and nothing else -> that input's."""
    outputs = [o.buffer if isinstance(o, Strided) else "" for o in program.outputs]
    found = {}
    for output, argument in updates.items():
        new, old = outputs[output], program.inputs[argument]
        if isinstance(old, str) and outputs.count(new) == 1 and old not in outputs and whole(program, output):
            found[new] = old
    return found


def _copied(item: Kernel | Extern, name: str) -> str | None:
    """The buffer that the item copies to this one, element by element."""
    if not isinstance(item, Kernel):
        return None
    stores = [s for nest in item.body for s in nest.statements if isinstance(s, Store) and s.buffer == name]
    if len(stores) != 1 or any(isinstance(v, Load) and v.buffer == name for v in _values(item)):
        return None
    value = stores[0].value
    plain = isinstance(value, Load) and not value.indirect and value.mask is None and value.index is stores[0].index
    return value.buffer if isinstance(value, Load) and plain and value.buffer in item.buffers else None


def _values(item: Kernel) -> Iterator[Value]:
    for nest in (*item.body, *item.finish):
        for statement in nest.statements:
            yield from walk(statement.value)


def _is_last(order: Items, at: int, copy: int, old: str, buffers: Mapping[str, Buffer]) -> bool:
    """Does nobody need ``old``, or what lies in its memory, from the scatter on?"""
    own = {name for name, buffer in buffers.items() if root(name, buffers) == old}
    touched = [n for n, item in enumerate(order) if n != copy and own & (item.reads | item.writes)]
    return copy < at and all(n < at for n in touched)


def _is_ours(order: Items, old: str, buffers: Mapping[str, Buffer], kept: Collection[str]) -> bool:
    """Is it a temporary?"""
    if old in kept or any(name in kept for name in buffers if root(name, buffers) == old):
        return False
    maker = next((item for item in order if old in item.writes), None)
    return isinstance(maker, Kernel) or (isinstance(maker, Extern) and (maker.into or maker.target in FRESH))


def _may_be_changed(order: Sequence[Kernel | Extern], checks: Collection[str], unread: bool) -> bool:
    """May the first of these change an input? If an operator or a check fails later, eager does the call again.

    That does no harm to a store over what nobody has read (``unread``), which eager does before that operator, too.
    """
    later = [item for item in order if isinstance(item, Extern) or not item.writes.isdisjoint(checks)]
    nodes = order[0].nodes
    return not later or (unread and bool(nodes) and all(node > nodes[-1] for item in later for node in item.nodes))


def _into(scatter: Kernel, change: Scatter, old: str) -> Kernel:
    """The kernel with one of its scatters changing ``old`` itself."""
    value = rebuild(change.value, buffers={change.value.buffer: old})
    assert isinstance(value, Put)
    (nest,) = scatter.body
    buffers = {name: dtype for name, dtype in scatter.buffers.items() if name != change.value.buffer}
    statements = tuple(replace(change, value=value) if s is change else s for s in nest.statements)
    return replace(scatter, body=(Nest(nest.loops, statements),), buffers={old: value.dtype, **buffers})


def _without(item: Kernel | Extern, name: str) -> Kernel | None:
    """The kernel without what it stores there; None if that is all."""
    assert isinstance(item, Kernel)
    left = [Nest(n.loops, tuple(s for s in n.statements if getattr(s, "buffer", "") != name)) for n in item.body]
    body = tuple(nest for nest in left if nest.statements)
    if not body:
        return None
    return replace(item, body=body).without_unused()
