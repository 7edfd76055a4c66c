"""The numbers of complex buffers have one name in kernels, however they were put there.

What is stored as two buffers, one of real and one of imaginary parts, is one of real numbers then: emitters see that
its elements lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jitney_lowering.index import Index, index
from jitney_lowering.ir.kernel import Kernel, Nest, Reduce, Scan, Scatter, Statement
from jitney_lowering.ir.loops import Buffer
from jitney_lowering.ir.values import rebuild


def with_numbers(kernel: Kernel, buffers: dict[str, Buffer]) -> Kernel:
    """The kernel, with all parts of a complex buffer as elements of one.

    Args:
        kernel: not changed.
        buffers: the program's; takes those that are new.
    """
    places: dict[str, tuple[str, Index]] = {}
    for name in kernel.buffers:
        found = buffers[name]
        if found.home is None or found.dtype.is_complex or not buffers[found.home[0]].dtype.is_complex:
            continue
        root, offset = found.home
        whole = buffers[root]
        numbers = Buffer(f"{root}n", found.dtype, (whole.extent * 2,), (index(1),), whole.device, (root, index(0)))
        buffers[numbers.name] = numbers
        places[name] = numbers.name, offset
    if not places:
        return kernel
    known = {places[name][0] if name in places else name: dtype for name, dtype in kernel.buffers.items()}
    body, finish = (tuple(_nest(nest, places) for nest in nests) for nests in (kernel.body, kernel.finish))
    return replace(kernel, body=body, finish=finish, buffers=known)


def _nest(nest: Nest, places: Mapping[str, tuple[str, Index]]) -> Nest:
    return replace(nest, statements=tuple(_statement(s, places) for s in nest.statements))


def _statement(s: Statement, places: Mapping[str, tuple[str, Index]]) -> Statement:
    value = rebuild(s.value, places=places)
    if isinstance(s, (Reduce, Scan)):
        return replace(s, value=value)
    if isinstance(s, Scatter) or s.buffer not in places:
        return replace(s, value=value)  # type: ignore[arg-type]
    name, offset = places[s.buffer]
    return replace(s, buffer=name, index=s.index + offset, value=value)
