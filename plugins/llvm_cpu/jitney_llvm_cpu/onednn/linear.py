"""Large products of matrices by oneDNN, where that takes less time than what torch has for them on this machine.

torch multiplies matrices of float32 by MKL, which does not know each processor as well as its maker's: on a Zen 4 core
192 rows times a matrix of 256 x 4096 take 4.6 ms by MKL and 4.0 by oneDNN, 49 rows times one of 768 x 3072 take 3.3 and
2.5. So the two are timed once, in as many threads as torch has, and the verdict is kept beside the object code: the
same program gives the same numbers in each process. A call of oneDNN takes longer to begin, and makes memory for its
result, so small products stay where they are, and so do results that are kept in warm memory (``memory_pool.py``).
"""

from __future__ import annotations

from typing import Any

import torch

from jitney_llvm_cpu.emit.calls import Make
from jitney_llvm_cpu.memory_pool import THRESHOLD
from jitney_llvm_cpu.products import argument
from jitney_lowering.index import index
from jitney_lowering.ir import Extern, Number, Program, Strided

LEAST = 1 << 24  # multiplications: of fewer, as much is lost by the call as is gained

_aten = torch.ops.aten


def is_called(extern: Extern, program: Program) -> bool:
    """Is it a large product, of rows that lie in memory one after the other, whose result may lie anywhere?"""
    parts = _parts(extern)
    if parts is None or extern.kwargs or not torch.backends.mkldnn.enabled:
        return False
    x, weight, bias = parts
    (made,) = extern.buffers
    buffer = program.buffers[made] if made is not None else None
    if buffer is None or buffer.home is not None or buffer.device.type != "cpu":
        return False
    tensors = [x, weight] if bias is None else [x, weight, bias]
    if not all(isinstance(t, Strided) and not isinstance(t, Number) and t.dtype is torch.float32 for t in tensors):
        return False
    known = [[n.value for n in (*t.size, *t.stride)] for t in tensors]
    if any(n is None for numbers in known for n in numbers):
        return False
    (rows, inner, *x_stride), (_, columns, *w_stride) = known[0], known[1]
    if bias is not None and known[2] != [columns, 1]:  # oneDNN reads as many, side by side
        return False
    if rows * inner * columns < LEAST or x_stride != [inner, 1]:
        return False
    is_output = any(isinstance(o, Strided) and o.buffer == made for o in program.outputs)
    return w_stride in ([columns, 1], [1, inner]) and not (is_output and 4 * rows * columns >= THRESHOLD)


def is_product(extern: Extern) -> bool:
    """Is it such an operator, whatever its sizes?"""
    return _parts(extern) is not None


def call_of(extern: Extern, program: Program) -> Make:
    """The call of such a product."""
    parts = _parts(extern)
    (made,) = extern.buffers
    assert parts is not None and made is not None
    x, weight, bias = parts
    turned = Strided(weight.buffer, weight.dtype, weight.size[::-1], weight.stride[::-1], weight.offset)
    buffer = program.buffers[made]
    result = Strided(made, buffer.dtype, buffer.size, buffer.stride, index(0))
    given = tuple(None if t is None else argument(t) for t in (x, turned, bias))
    return Make("jitney_linear", given, (), argument(result))


def _parts(extern: Extern) -> tuple[Any, Any, Any] | None:
    """Rows, matrix and bias; None for other operators."""
    if extern.target is _aten.mm.default:
        return extern.args[0], extern.args[1], None
    if extern.target is _aten.addmm.default and len(extern.args) == 3:
        return extern.args[1], extern.args[2], extern.args[0]
    return None
