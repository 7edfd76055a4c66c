"""Products of a matrix and a vector, where the matrix lies nowhere, or is large.

A library would be given a matrix that is written to memory for it: one that is dequantised, repeated for several heads,
or put together. A sum takes each of its elements as it is computed, once. Of a large matrix in memory a GPU's library
reads no more in a second, and what comes before and after the product would be kernels of their own; that of CPUs takes
1.1 to 2.5 times as long for halves (4,096 x 4,096 of bfloat16, a Zen 4 thread: 3.3 ms for 1.5).
"""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, projected, registering
from jitney_lowering.aten.tensor import ONE, ZERO, Shape, Tensor, contiguous, variables
from jitney_lowering.index import Index, Var, index
from jitney_lowering.ir.scalar import Scalar
from jitney_lowering.ir.values import Apply, Load, Value, apply, holds, walk
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.reductions import Typed, reduced

aten = torch.ops.aten
BYTES = (torch.int8, torch.uint8)
LONG, MANY, SEVERAL = 512, 1024, 64  # elements and rows
VECTORS: dict[Any, Rule] = {}

vectors = registering(VECTORS)


@vectors(aten.mm.default, aten.bmm.default)
def product(call: Call) -> Tensor:
    """The sums, rounded once."""
    total = _sum(call, *call.args)
    return call.result(lambda at: apply("cast", total.load(at), dtype=call.dtype))


@vectors(aten.mv.default)
def matrix_by_vector(call: Call) -> Tensor:
    """A large matrix that lies in memory by rows or by columns: libraries are slow at one of both."""
    matrix, vector = call.args
    lies, hint = matrix.strided, call.builder.sizes.hint
    call.refuse_unless(matrix.dtype is vector.dtype is call.dtype and call.dtype.is_floating_point, "of integers")
    fits = lies is not None and matrix.dtype.itemsize <= call.builder.policy.streamed_bytes
    call.refuse_unless(fits, "a matrix that does not lie in memory")
    results, terms = map(hint, matrix.size)
    by_rows = lies.stride[1] == 1 and results >= MANY and terms >= LONG
    by_columns = lies.stride[0] == 1 and results >= LONG and terms >= SEVERAL
    call.refuse_unless(by_rows or by_columns, "a small matrix")
    call.builder.spread(vector)
    wide = opmath(call.dtype)

    def element(at: Shape) -> Value:
        return (Scalar(matrix.load(at)).to(wide) * Scalar(vector.load(at[1:])).to(wide)).value

    products = Tensor(matrix.size, wide, call.val.device, element, wanted=lies.stride)
    total = reduced(call, "sum", products, [1], Typed(call.val, wide))
    return call.result(lambda at: apply("cast", total.load(at), dtype=call.dtype))


@vectors(aten.addmm.default, aten.baddbmm.default)
def added(call: Call) -> Tensor:
    """The same plus something, rounded once."""
    c, a, b, beta, alpha = call.args
    call.refuse_unless((beta, alpha) == (1, 1) and c.dtype is call.dtype, "scaled")
    total, at_c = _sum(call, a, b), projected(c, call.size)

    def element(at: Shape) -> Value:
        own = Scalar(c.load(at_c(at))).to(total.dtype)
        return apply("cast", (Scalar(total.load(at)) + own).value, dtype=call.dtype)

    return call.result(element)


def _sum(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """In the type in which libraries add up, with an index for each of the result's."""
    (rows, inner), columns = a.size[-2:], b.size[-1]
    matrix, vector = (b, a) if rows == 1 else (a, b)
    call.refuse_unless(rows == 1 or columns == 1, "a product of matrices")
    call.refuse_unless(call.dtype.is_floating_point and a.dtype is b.dtype is call.dtype, "a product of integers")
    call.refuse_unless(inner != 0 and all(s != 0 for s in call.size), "a product of nothing")
    call.refuse_unless(not _lies(matrix) or _streams(call, matrix, rows == 1), "a matrix that lies in memory")
    call.builder.spread(vector)
    wide = opmath(call.dtype)

    def element(at: Shape) -> Value:
        *batch, row, column, k = at
        read = a.load((*batch, row, k)), b.load((*batch, k, column))
        left, right = (Scalar(_unrounded(value, wide)).to(wide) for value in read)
        return (left * right).value

    size = (*call.size, inner)
    terms = Tensor(size, wide, call.val.device, element, wanted=_order(call, size, matrix, rows == 1))
    return reduced(call, "sum", terms, [len(size) - 1], Typed(call.val, wide))


def _unrounded(value: Value, wide: torch.dtype) -> Value:
    """Integers that pass through a half as they are, without it."""
    if not isinstance(value, Apply) or value.op != "cast":
        return value
    inner = value.args[0]
    return inner if inner.dtype in BYTES and holds(value.dtype, inner.dtype) and holds(wide, inner.dtype) else value


def _lies(x: Tensor) -> bool:
    """Is it in memory, or would it be there as it is?"""
    return x.strided is not None or (x.base is not None and x.whole and _lies(x.base))


def _streams(call: Call, matrix: Tensor, is_right: bool) -> bool:
    """Has it many long rows, one after the other in memory, for each of which there is one result?"""
    lies, hint = matrix.strided, call.builder.sizes.hint
    if matrix.dtype.itemsize > call.builder.policy.streamed_bytes or lies is None:
        return False
    along, across = (-2, -1) if is_right else (-1, -2)
    long, many = hint(lies.size[along]) >= LONG, hint(lies.size[across]) >= MANY
    return long and many and lies.stride[along] == 1 and lies.stride[across] != 1


def _order(call: Call, size: Shape, matrix: Tensor, is_right: bool) -> Shape:
    """Strides that say in which order the elements of the matrix are read: those of the largest tensor behind it."""
    every = variables(size)
    *batch, row, column, k = every
    at = tuple(map(index, (*batch, k, column) if is_right else (*batch, row, k)))
    loads = [v for v in walk(matrix.load(at)) if isinstance(v, Load)]
    hint = call.builder.sizes.hint
    extents = [call.builder.buffers[v.buffer].extent for v in loads]
    extent, load = max(zip(extents, loads, strict=True), key=lambda one: hint(one[0]), default=(ONE, None))
    if load is None:
        return contiguous(size)
    strides = [_step(load.index, v) for v in every]
    return tuple([extent if stride is None or stride is ZERO else stride for stride in strides])


def _step(place: Index, var: Var) -> Index | None:
    """How far apart neighbours along a loop are; where several are in one integer, the average, but 1 at least.

    None: unknown.
    """
    stride = place.stride(var)
    size = var.size.value
    if stride is not None or size is None:
        return stride
    ends = [place.substitute({var: at}) for at in (0, size - 1)]
    span = (ends[1] - ends[0]).value
    return None if span is None else index(max(abs(span) // (size - 1), 1))
