"""Matrix products as kernels: rows of sums, with what is done to each element of the result in the same kernel.

A backend that multiplies tiles of matrices itself takes a ``bmm`` and the element-by-element kernel that reads its
result as one kernel: two or three outer loops, a nest that sums ``left[m, k] * right[k, n]``, and one that stores. So
the product never goes to memory. Products of the same ``left`` by matrices of equal sizes may be one kernel, too:
queries, keys and values; a gate and what it lets through. So may what a kernel before has computed for ``right`` alone:
weights of eight bits become numbers where they are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from jitney_lowering.index import Index, Names, Var, equal, index
from jitney_lowering.ir.kernel import Kernel, Nest, Reduce, Statement, Store
from jitney_lowering.ir.loops import Buffer, Computed, Extern, Number, Program, Strided
from jitney_lowering.ir.matrix_product import MOST_TOGETHER
from jitney_lowering.ir.values import Load, Value, apply, load, rebuild, ref, walk
from jitney_lowering.scheduler.traffic.recompute import iteration

aten = torch.ops.aten
DTYPES = (torch.float16, torch.bfloat16)
PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}

Items = Sequence[Kernel | Extern]


@dataclass(frozen=True)
class Offer:
    """A kernel that may take the place of others.

    Args:
        kernel: what would run instead.
        calls: the products as operators.
        rest: the kernels beside them.
    """

    kernel: Kernel
    calls: tuple[Extern, ...]
    rest: tuple[Kernel, ...]


@dataclass(frozen=True)
class Takes:
    """Which products a backend wants.

    Args:
        offer: does it want this one?
        few: offered are only products with at most as many rows or columns, several of one matrix together; None: all
            are, one by one.
    """

    offer: Callable[[Offer], bool]
    few: int | None = None


def joined(items: Items, program: Program, kept: frozenset[str], takes: Takes, names: Names) -> list[Kernel | Extern]:
    """The items, with products as kernels wherever ``takes`` says so.

    Args:
        items: in order.
        program: whose buffers they are about.
        kept: buffers that must be in memory, whoever else reads them.
        takes: asked for each offer, the larger ones first.
        names: for new variables.
    """
    made = list(items)
    for call in [item for item in items if isinstance(item, Extern) and item.target in PRODUCTS]:
        if not any(item is call for item in made) or not _is_offered(call, program, takes.few):
            continue
        for offer in _offers(made, call, program, kept, takes, names):
            if takes.offer(offer):
                gone = {*map(id, offer.calls), *map(id, offer.rest)}
                last = max((n for n, item in enumerate(made) if id(item) in gone), default=0)
                made[last] = offer.kernel
                made = [item for item in made if id(item) not in gone]
                break
    return made


def _is_offered(call: Extern, program: Program, few: int | None) -> bool:
    if few is None:
        return True
    sizes = [n.value for n in program.buffers[str(call.buffers[0])].size[-2:]]
    return any(n is not None and n <= few for n in sizes)


def _offers(
    items: Items, call: Extern, program: Program, kept: frozenset[str], takes: Takes, names: Names
) -> Iterator[Offer]:
    """The larger ones first."""
    several = [call] if takes.few is None else [call, *_beside(items, call, program)][:MOST_TOGETHER]
    for count in dict.fromkeys((len(several), 1)):
        calls = several[:count]
        plain = product(calls, program, names)
        if plain is None:
            continue
        makers = _makers(items, calls, program, kept, takes)
        for before in dict.fromkeys((makers, ())):
            begun = _with_makers(plain, before, items, calls)
            if begun is None:
                continue
            whole = _with_reader(begun, items, calls, program, kept)
            if whole is not None:
                yield Offer(whole[0], tuple(calls), (*before, whole[1]))
            yield Offer(begun, tuple(calls), before)


# --- the products themselves -----------------------------------------------------------------------------------------


def _beside(items: Items, call: Extern, program: Program) -> Iterator[Extern]:
    """Products that follow, of the same left matrix by others of equal size, before anybody reads any of them."""
    mine = _matrices(call, program)
    if mine is None:
        return
    made, left, right, bias = mine
    results, operands = set(call.writes), set(call.reads)
    for item in items[items.index(call) + 1 :]:
        if item.reads & results or (isinstance(item, Extern) and item.written):
            return
        if isinstance(item, Kernel) and item.writes & operands:
            return
        found = _matrices(item, program) if isinstance(item, Extern) and item.target is call.target else None
        if found is None or found[1] != left or (found[3] is None) != (bias is None):
            continue
        if _sizes(found[2]) == _sizes(right) and _sizes(found[0]) == _sizes(made):
            assert isinstance(item, Extern)
            results |= item.writes
            operands |= item.reads
            yield item


def _sizes(matrix: Strided | Buffer) -> tuple[int | None, ...]:
    return tuple(n.value for n in matrix.size)


def product(calls: Sequence[Extern], program: Program, names: Names) -> Kernel | None:
    """Products of one left matrix as a kernel.

    None for other dtypes than halves, and where sizes are symbolic or a number is scaled.
    """
    known = [_matrices(call, program) for call in calls]
    first = known[0]
    if first is None or any(n.value is None for t in first[:3] for n in t.size):
        return None
    made, left = first[:2]
    if 0 in [n.value for n in left.size]:
        return None
    outer = tuple(names.var(size, "m") for size in made.size)
    k = names.var(left.size[-1], "k")
    batch: tuple[Index, ...] = outer[:-2]
    rows = _wide(left, (*batch, outer[-2], k))
    sums: list[Reduce] = []
    stores: list[Store] = []
    buffers: dict[str, torch.dtype] = {}
    for number, matrices in enumerate(known):
        if matrices is None:
            return None
        made, _, right, bias = matrices
        name = f"product{number or ''}"
        sums.append(Reduce(name, "sum", apply("mul", rows, _wide(right, (*batch, k, outer[-1])))))
        total: Value = ref(name, torch.float32)
        if bias is not None:
            total = apply("add", total, _wide(bias, outer[len(outer) - len(bias.size) :]))
        stores.append(Store(made.name, made.place(outer), apply("cast", total, dtype=made.dtype)))
        buffers |= {t.buffer: t.dtype for t in (left, right, *([] if bias is None else [bias]))}
        buffers[made.name] = made.dtype
    nests = (Nest((k,), tuple(sums)), Nest((), tuple(stores)))
    nodes = tuple(dict.fromkeys(n for call in calls for n in call.nodes))
    return Kernel(f"{made.name}_product", outer, nests, buffers, nodes=nodes)


def _matrices(call: Extern, program: Program) -> tuple[Buffer, Strided, Strided, Strided | None] | None:
    """The result, what is multiplied, and what is added."""
    added = PRODUCTS[call.target]
    made = program.buffers[str(call.buffers[0])]
    given = [*call.args]
    scaled = any(call.kwargs.get(word, 1) != 1 for word in ("alpha", "beta"))
    if scaled or len(given) != 2 + added or made.dtype not in DTYPES or made.home is not None:
        return None
    for tensor in given:
        if not isinstance(tensor, Strided) or isinstance(tensor, Number) or tensor.dtype is not made.dtype:
            return None
    bias = given[0] if added else None
    if bias is not None and not _spreads(bias, made):
        return None
    return made, given[-2], given[-1], bias


def _spreads(bias: Strided, made: Buffer) -> bool:
    """Has it the last dimensions of the result?"""
    count = len(bias.size)
    return all(equal(a, b) for a, b in zip(bias.size, made.size[len(made.size) - count :], strict=True))


def _wide(tensor: Strided, at: Sequence[Index]) -> Value:
    place = tensor.offset
    for i, stride in zip(at, tensor.stride, strict=True):
        place = place + i * stride
    return apply("cast", load(tensor.buffer, place, tensor.dtype), dtype=torch.float32)


# --- kernels before --------------------------------------------------------------------------------------------------


def _makers(
    items: Items, calls: Sequence[Extern], program: Program, kept: frozenset[str], takes: Takes
) -> tuple[Kernel, ...]:
    """Kernels that compute, element by element, a right matrix which nobody else reads.

    Each of its elements is computed once if all rows are multiplied by it at a time.
    """
    if takes.few is None or not all(_is_narrow(call, program, takes.few) for call in calls):
        return ()
    mine = {id(call) for call in calls}
    alone = set()  # right matrices that nobody else reads
    for call in calls:
        matrices = _matrices(call, program)
        assert matrices is not None
        name = matrices[2].buffer
        if name not in kept and all(id(item) in mine for item in items if name in item.reads):
            alone.add(name)
    for call in calls:  # nor these, as another operand
        matrices = _matrices(call, program)
        assert matrices is not None
        alone -= {operand.buffer for operand in (matrices[1], matrices[3]) if operand is not None}
    return tuple([i for i in items if isinstance(i, Kernel) and not i.writes.isdisjoint(alone) and i.writes <= alone])


def _is_narrow(call: Extern, program: Program, few: int) -> bool:
    rows = program.buffers[str(call.buffers[0])].size[-2].value
    return rows is not None and rows <= few


def _with_makers(plain: Kernel, makers: Sequence[Kernel], items: Items, calls: Sequence[Extern]) -> Kernel | None:
    """The product with these matrices computed where they are multiplied."""
    summed, stored = plain.body
    sums = tuple([s for s in summed.statements if isinstance(s, Reduce)])
    buffers = dict(plain.buffers)
    for maker in makers:
        if maker.memory or maker.finish or len(maker.body) != 1:
            return None
        after = items[items.index(maker) + 1 : items.index(calls[-1])]
        if any(item.writes & maker.reads or (isinstance(item, Extern) and item.written) for item in after):
            return None
        for store in maker.body[0].statements:
            found = _with_element(sums, store, (*maker.outer, *maker.body[0].loops))
            if found is None:
                return None
            sums = found
        buffers = {name: dtype for name, dtype in (buffers | maker.buffers).items() if name not in maker.writes}
    nodes = tuple(dict.fromkeys((*(n for maker in makers for n in maker.nodes), *plain.nodes)))
    return replace(plain, body=(replace(summed, statements=sums), stored), buffers=buffers, nodes=nodes)


def _with_element(sums: tuple[Reduce, ...], store: Statement, loops: tuple[Var, ...]) -> tuple[Reduce, ...] | None:
    """What is summed, with what a statement stores in place of loads of it; None if places do not tell."""
    if not isinstance(store, Store):
        return None
    step = Computed(store.buffer, loops, store.index, store.value)
    leaf: dict[Any, Value] = {}
    for v in {v for s in sums for v in walk(s.value) if isinstance(v, Load) and v.buffer == store.buffer}:
        seen = iteration(step, v)
        if seen is None:
            return None
        leaf[v] = rebuild(store.value, index=seen)
    return tuple([replace(s, value=rebuild(s.value, leaf)) for s in sums])


# --- a kernel after --------------------------------------------------------------------------------------------------


def _with_reader(
    plain: Kernel, items: Items, calls: Sequence[Extern], program: Program, kept: frozenset[str]
) -> tuple[Kernel, Kernel] | None:
    """The product and the one kernel that reads what it makes, and that kernel; None where it stays beside it."""
    first, last = (items.index(call) for call in (calls[0], calls[-1]))
    readers = {id(item): item for item in items if item.reads & {str(c.buffers[0]) for c in calls}}
    if len(readers) != 1:
        return None
    (reader,) = readers.values()
    names = [str(call.buffers[0]) for call in calls if str(call.buffers[0]) in reader.reads]
    if not isinstance(reader, Kernel) or not kept.isdisjoint(names):
        return None
    between = items[first + 1 : items.index(reader)]
    if items.index(reader) < last:
        return None
    # An operator that changes something in place may do so to what an operand is another name for.
    if any(item.writes & plain.reads or (isinstance(item, Extern) and item.written) for item in between):
        return None
    whole = with_reader(plain, reader, [program.buffers[name] for name in names])
    return None if whole is None else (whole, reader)


def with_reader(plain: Kernel, reader: Kernel, results: Sequence[Buffer]) -> Kernel | None:
    """The products and an element-by-element kernel as one, unless that reads a result in another order."""
    stores = {s.buffer: s for s in plain.body[1].statements if isinstance(s, Store)}
    read = {result.name for result in results}
    table = _places(reader, plain.outer, stores[results[0].name].index)
    if table is None:
        return None
    made: list[Store] = [store for name, store in stores.items() if name not in read]
    leaf: dict[Any, Value] = {}
    for statement in reader.body[0].statements:
        assert isinstance(statement, Store)
        for v in walk(statement.value):
            if isinstance(v, Load) and v.buffer in read:
                if v.indirect or v.mask is not None or not equal(v.index.substitute(table), stores[v.buffer].index):
                    return None
        moved = rebuild(statement.value, index=lambda i: i.substitute(table))
        leaf |= {v: stores[v.buffer].value for v in walk(moved) if isinstance(v, Load) and v.buffer in read}
        made.append(Store(statement.buffer, statement.index.substitute(table), rebuild(moved, leaf)))
    buffers = {name: dtype for name, dtype in (plain.buffers | reader.buffers).items() if name not in read}
    body = (plain.body[0], Nest((), tuple(made)))
    nodes = tuple(dict.fromkeys((*plain.nodes, *reader.nodes)))
    return replace(plain, name=reader.name, body=body, buffers=buffers, nodes=nodes)


def _places(reader: Kernel, outer: Sequence[Var], place: Index) -> Mapping[Any, Index] | None:
    """The reader's loops in terms of the product's, if it goes through as many elements and does nothing else."""
    if reader.memory or reader.finish or len(reader.body) != 1:
        return None
    (nest,) = reader.body
    loops = (*reader.outer, *nest.loops)
    if not all(isinstance(s, Store) for s in nest.statements) or not loops:
        return None
    count, wanted = index(1), index(1)
    for var in outer:
        wanted = wanted * var.size
    for var in loops:
        count = count * var.size
    if not equal(count, wanted):
        return None
    flat = index(0)
    for var in outer:
        flat = flat * var.size + var
    if not equal(flat, place):  # a result whose rows do not follow each other
        return None
    table: dict[Any, Index] = {}
    step = index(1)
    for var in reversed(loops):
        table[var] = (flat // step) % var.size
        step = step * var.size
    return table
