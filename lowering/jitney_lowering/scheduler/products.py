"""Matrix products as kernels: rows of sums, with what is done to each element of the result in the same kernel.

A backend that multiplies tiles of matrices itself takes a ``bmm`` and the element-by-element kernel that reads its
result as one kernel: two or three outer loops, a nest that sums ``left[m, k] * right[k, n]``, and one that stores. So
the product never goes to memory. What a kernel before has computed for an operand alone may be part of it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from jitney_lowering.index import Index, Names, Var, equal, index
from jitney_lowering.ir.kernel import Kernel, Nest, Reduce, Store
from jitney_lowering.ir.loops import Buffer, Extern, Number, Program, Strided
from jitney_lowering.ir.values import Load, Value, apply, load, rebuild, ref, walk

aten = torch.ops.aten
DTYPES = (torch.float16, torch.bfloat16)
PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}

Items = Sequence[Kernel | Extern]


@dataclass(frozen=True)
class Offer:
    """A kernel that may take the place of others.

    Args:
        kernel: what would run instead.
        call: the product as an operator.
        rest: the kernels beside it.
    """

    kernel: Kernel
    call: Extern
    rest: tuple[Kernel, ...]


# ``takes(offer)``: does the backend want it?
Takes = Callable[[Offer], bool]


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
        for offer in _offers(made, call, program, kept, names):
            if takes(offer):
                gone = {id(call), *map(id, offer.rest)}
                last = max((n for n, item in enumerate(made) if id(item) in gone), default=0)
                made[last] = offer.kernel
                made = [item for item in made if id(item) not in gone]
                break
    return made


def _offers(items: Items, call: Extern, program: Program, kept: frozenset[str], names: Names) -> list[Offer]:
    plain = product(call, program, names)
    if plain is None:
        return []
    (result,) = call.buffers
    assert result is not None
    at = items.index(call)
    readers = [item for item in items if result in item.reads]
    found = []
    reader = readers[0] if len(readers) == 1 else None
    if result not in kept and isinstance(reader, Kernel):
        between = items[at + 1 : items.index(reader)]
        whole = with_reader(plain, reader, program.buffers[result])
        # An operator that changes something in place may do so to what an operand is another name for.
        written = any(item.writes & plain.reads or (isinstance(item, Extern) and item.written) for item in between)
        if whole is not None and not written:
            found.append(Offer(whole, call, (reader,)))
    return [*found, Offer(plain, call, ())]


def product(call: Extern, program: Program, names: Names) -> Kernel | None:
    """A product as a kernel; None for other dtypes than halves, and where sizes are symbolic or a number is scaled."""
    matrices = _matrices(call, program)
    if matrices is None:
        return None
    made, left, right, bias = matrices
    if any(n.value is None for t in (made, left, right) for n in t.size) or 0 in [n.value for n in left.size]:
        return None
    outer = tuple(names.var(size, "m") for size in made.size)
    k = names.var(left.size[-1], "k")
    batch: tuple[Index, ...] = outer[:-2]
    factors = [_wide(left, (*batch, outer[-2], k)), _wide(right, (*batch, k, outer[-1]))]
    total: Value = ref("product", torch.float32)
    if bias is not None:
        total = apply("add", total, _wide(bias, outer[len(outer) - len(bias.size) :]))
    nests = (
        Nest((k,), (Reduce("product", "sum", apply("mul", *factors)),)),
        Nest((), (Store(made.name, made.place(outer), apply("cast", total, dtype=made.dtype)),)),
    )
    buffers = {t.buffer: t.dtype for t in (left, right, *([] if bias is None else [bias]))}
    return Kernel(f"{made.name}_product", outer, nests, {**buffers, made.name: made.dtype}, nodes=call.nodes)


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


def with_reader(plain: Kernel, reader: Kernel, result: Buffer) -> Kernel | None:
    """The product and an element-by-element kernel as one, unless that reads the result in another order."""
    (store,) = plain.body[1].statements
    assert isinstance(store, Store)
    table = _places(reader, plain.outer, store.index)
    if table is None:
        return None
    made: list[Store] = []
    leaf: dict[Any, Value] = {}
    for statement in reader.body[0].statements:
        assert isinstance(statement, Store)
        for v in walk(statement.value):
            if isinstance(v, Load) and v.buffer == result.name:
                if v.indirect or v.mask is not None or not equal(v.index.substitute(table), store.index):
                    return None
        moved = rebuild(statement.value, index=lambda i: i.substitute(table))
        leaf |= {v: store.value for v in walk(moved) if isinstance(v, Load) and v.buffer == result.name}
        made.append(Store(statement.buffer, statement.index.substitute(table), rebuild(moved, leaf)))
    buffers = {name: dtype for name, dtype in (plain.buffers | reader.buffers).items() if name != result.name}
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
