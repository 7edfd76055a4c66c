"""Outputs that the caller copies into an input: may the kernel write there in the first place?"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import fx

from jitney_lowering.index import Names, index, linear
from jitney_lowering.ir.kernel import Kernel, Nest, Store
from jitney_lowering.ir.loops import Buffer, Computed, Extern, Program, Step, Strided
from jitney_lowering.ir.values import Load, cost
from jitney_lowering.repeats.renaming import named, renamed
from jitney_lowering.scheduler.memory.in_place import alike, replaces, root
from jitney_lowering.scheduler.memory.peak import peak

CHEAP = 8  # the cost of what is computed once more, at the end
SAVED = 1 << 20  # bytes, at least, that copies must save


def filled_in_place(program: Program, items: Sequence[Kernel | Extern], updates: Mapping[int, int]) -> dict[str, str]:
    """Buffer of an output -> buffer of the input that its kernel writes to instead.

    Args:
        program: the graph.
        items: what runs, in order.
        updates: output -> the input that gets its value.

    Nothing that can raise may come after such a kernel, nobody may read the input after it, and in the kernel each
    element is read only where the new one is made.
    """
    last = _last_that_may_raise(program, items)
    outputs = [o.buffer if isinstance(o, Strided) else "" for o in program.outputs]
    last_read = {name: n for n, item in enumerate(items) for name in item.reads}
    makers = {name: n for n, item in enumerate(items) if isinstance(item, Kernel) for name in item.writes}
    found: dict[str, str] = {}
    for output, argument in updates.items():
        new, old = outputs[output], program.inputs[argument]
        if not isinstance(old, str) or makers.get(new, -1) <= last or old in found.values():
            continue
        if (
            outputs.count(new) > 1
            or old in outputs
            or not whole(program, output)
            or not alike(program.buffers[new], program.buffers[old])
        ):
            continue
        at = makers[new]
        if last_read.get(old, at) > at or not replaces(items[at], new, old):
            continue
        found[new] = old
    return found


def copied_early(
    program: Program,
    items: Sequence[Kernel | Extern],
    updates: Mapping[int, int],
    filled: Mapping[str, str],
    names: Names,
) -> tuple[Program, list[Kernel | Extern], dict[str, str]]:
    """The graph and what runs, with kernels that copy new values into inputs; what these kernels write -> the input.

    The caller would copy them at the end, when all of them are there. Of caches that move on by a place, one new value
    is there at a time: what comes behind its copy reads the input. All stays as it is where that saves little.

    Args:
        program: the graph.
        items: what runs, in order.
        updates: output -> the input that gets its value.
        filled: buffers that replace an input already.
        names: for what the copies write.
    """
    outputs = [o.buffer if isinstance(o, Strided) else "" for o in program.outputs]
    makers = {root(name, program.buffers): n for n, item in enumerate(items) for name in item.writes}
    last_read = {name: n for n, item in enumerate(items) for name in item.reads}
    last = _last_that_may_raise(program, items)
    order = [[item] for item in items]  # with the copies behind each
    buffers, results, found = dict(program.buffers), list(program.outputs), dict[str, str]()
    for output, argument in updates.items():
        new, old = outputs[output], program.inputs[argument]
        if new not in makers or not isinstance(old, str) or old in {*filled.values(), *found.values(), *outputs}:
            continue
        buffer, view = buffers[new], program.outputs[output]
        dense = functools.reduce(operator.mul, buffer.size, index(1)) is buffer.extent and buffer.home is None
        if outputs.count(new) > 1 or not dense or not whole(program, output) or not alike(buffer, buffers[old]):
            continue
        assert isinstance(view, Strided)
        copy = names.name("u")
        buffers[copy], found[copy] = replace(buffer, name=copy), old
        results[output] = replace(view, buffer=copy)
        at = max(makers[new], last_read.get(old, -1), last)
        order[at].append(_copy(new, buffers[copy], items[makers[new]].nodes[-1:], names))
        for number, group in enumerate(order[at + 1 :], at + 1):
            order[number] = [
                renamed(named(item), {new: copy}, item.nodes) if new in item.reads else item for item in group
            ]
    made = list(itertools.chain.from_iterable(order))
    other = replace(program, buffers=buffers, outputs=results)
    if peak(program, items, filled) - peak(other, made, {**filled, **found}) < SAVED:
        return program, list(items), {}
    return other, made, found


def _copy(old: str, new: Buffer, nodes: tuple[fx.Node, ...], names: Names) -> Kernel:
    """A kernel that copies all of a buffer's memory, without gaps, to another one like it."""
    loops = (names.var(new.extent),)
    store = Store(new.name, linear(loops), Load(new.dtype, old, linear(loops)))
    buffers = dict.fromkeys((new.name, old), new.dtype)
    return Kernel(names.name("k_copy"), loops, (Nest((), (store,)),), buffers, nodes=nodes)


def _last_that_may_raise(program: Program, items: Sequence[Kernel | Extern]) -> int:
    """The position of the last operator that runs as a whole, or of the last check; -1 without any."""
    checks = {check[0] for check in program.checks}
    may = [n for n, i in enumerate(items) if isinstance(i, Extern) or not i.writes.isdisjoint(checks)]
    return max(may, default=-1)


def updates_last(
    program: Program, items: Sequence[Kernel | Extern], updates: Mapping[int, int]
) -> list[Kernel | Extern]:
    """The items; kernels that make the new values of inputs come after all that may raise, if nobody else needs them.

    So they may write to the inputs, whose new values need no memory of their own.
    """
    outputs = [o.buffer if isinstance(o, Strided) else "" for o in program.outputs]
    new = {outputs[output] for output in updates}
    last = _last_that_may_raise(program, items)
    fixed = {check[0] for check in program.checks} | {name for name, b in program.buffers.items() if b.home is not None}
    fixed |= {b.home[0] for b in program.buffers.values() if b.home is not None}
    late: list[Kernel | Extern] = []
    read, written = set[str](), set[str]()  # by the items that stay, behind the one that is looked at
    for item in reversed(items[: last + 1]):
        makes = isinstance(item, Kernel) and not item.writes.isdisjoint(new) and item.writes.isdisjoint(fixed)
        if makes and item.writes.isdisjoint(read) and item.reads.isdisjoint(written):
            late.append(item)
        else:
            read |= item.reads
            written |= set(item.written) if isinstance(item, Extern) else set()
    moved = set(map(id, late))
    stays = [item for item in items[: last + 1] if id(item) not in moved]
    return [*stays, *reversed(late), *items[last + 1 :]]


def with_late_counters(program: Program, steps: Sequence[Step], updates: Mapping[int, int]) -> list[Step]:
    """The steps; those come last, by themselves, that make the new value of an input of one element out of inputs.

    What counts the steps of an optimizer is read for numbers that may be refused, and changes only once they are not.
    """
    given = {*(name for name in program.inputs if isinstance(name, str)), *program.constants}
    read = {name for step in steps for name in step.reads} | {check[0] for check in program.checks}
    new = {o.buffer for n in updates if isinstance(o := program.outputs[n], Strided)}

    def is_late(step: Step) -> bool:
        if not isinstance(step, Computed) or step.loops or step.kind != "pointwise" or step.buffer not in new:
            return False
        plain = step.buffer not in read and program.buffers[step.buffer].home is None
        return plain and step.reads <= given and cost(step.value) <= CHEAP

    late = [replace(step, late=True) for step in steps if isinstance(step, Computed) and is_late(step)]
    return [*(step for step in steps if not is_late(step)), *late]


def written_inputs(program: Program, updates: Mapping[int, int]) -> dict[str, str]:
    """Inputs that are their own new value, since operators have written to them; each with its own name."""
    found = {}
    for output, argument in updates.items():
        made, name = program.outputs[output], program.inputs[argument]
        if isinstance(made, Strided) and isinstance(name, str) and made.buffer == name:
            found[name] = name
    return found


def guarded(program: Program, items: Sequence[Kernel | Extern], filled: Mapping[str, str]) -> list[Kernel | Extern]:
    """The items; kernels that write to an input do so if the checks that come before them hold.

    Args:
        program: the graph.
        items: what runs, in order.
        filled: buffers that replace an input.
    """
    checks, known = {check[0] for check in program.checks}, set[str]()
    made: list[Kernel | Extern] = []
    for item in items:
        writes = isinstance(item, Kernel) and any(b in filled or b in filled.values() for b in item.writes)
        made.append(replace(item, after=frozenset(known)) if writes and known else item)
        known |= item.writes & checks
    return made


def whole(program: Program, output: int) -> bool:
    """Is the output all of its buffer, as that is?"""
    view = program.outputs[output]
    assert isinstance(view, Strided)
    buffer = program.buffers[view.buffer]
    return view.offset.value == 0 and (view.size, view.stride, view.dtype) == (buffer.size, buffer.stride, buffer.dtype)
