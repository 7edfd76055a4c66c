"""Complex tensors in memory: real numbers two by two, which kernels load and store.

    buffer x: complex64[n]                    x_r: float32[n, 2], at home in x        what is loaded
                                              b0, b1: float32[n], at home in x        the parts that are stored

An element of a complex tensor is a ``Pair``. Kernels see buffers of real numbers only, which lie in the memory of a
complex one; operators that run as a whole see that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import fx

from jitney_lowering.aten.tensor import ONE, ZERO, Shape, Tensor
from jitney_lowering.index import Index, Opaque, index
from jitney_lowering.ir.loops import Buffer, Extern, Strided
from jitney_lowering.ir.operations import COMPLEX
from jitney_lowering.ir.values import Pair, Value, apply, pair, position
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
TWO = index(2)


class Steps(Protocol):
    """What is asked of the program under construction; see ``Builder``."""

    buffers: dict[str, Buffer]
    atoms: dict[Opaque, Value]
    numbers: Numbers

    def buffer(
        self,
        dtype: torch.dtype,
        size: Sequence[Index],
        stride: Sequence[Index],
        device: torch.device,
        prefix: str,
        home: tuple[str, Index] | None = None,
    ) -> Buffer:
        """New memory, or a part of another buffer's."""

    def tensor(self, buffer: Buffer) -> Tensor:
        """All of a buffer."""

    def stored(
        self, tensor: Tensor, stride: Sequence[Index], home: tuple[str, Index] | None = None, *, apart: bool = False
    ) -> Strided:
        """A new buffer with these strides and the tensor's elements."""

    def extern(self, step: Extern) -> None:
        """Append an extern call."""

    def nodes(self) -> tuple[fx.Node, ...]:
        """What steps are made for now."""


class Numbers:
    """The real numbers in complex buffers.

    Args:
        builder: the program under construction.
    """

    def __init__(self, builder: Steps) -> None:
        self.builder = builder
        self.conjugated: set[str] = set()  # buffers whose imaginary parts have the other sign in memory
        self._stored: dict[str, tuple[Tensor, Tensor]] = {}  # parts that kernels have put there
        self._of: dict[str, Tensor] = {}

    def of(self, name: str) -> Tensor:
        """The numbers of a whole buffer that has been filled, with a last dimension of two."""
        found = self._of.get(name)
        if found is None:
            made = self.builder
            whole = made.buffers[name]
            root, offset = whole.home or (name, ZERO)
            home = (root, offset * 2)
            numbers = made.buffer(
                whole.dtype.to_real(), (*whole.size, TWO), _doubled(whole.stride), whole.device, "n", home
            )
            source = Strided(name, whole.dtype, whole.size, whole.stride, ZERO)
            made.extern(
                Extern((numbers.name,), aten.view_as_real.default, (source,), {}, reason="joined", nodes=made.nodes())
            )
            found = self._of[name] = made.tensor(numbers)
        return found

    def element(self, name: str) -> Callable[[Shape], Value]:
        """The elements of a whole complex buffer."""

        def loaded(at: Shape) -> Value:
            if name in self._stored:
                return pair(*(part.load(at) for part in self._stored[name]))
            re, im = (self.of(name).load((*at, index(part))) for part in (0, 1))
            return pair(re, apply("neg", im) if name in self.conjugated else im)

        return loaded

    def stored(self, tensor: Tensor, stride: Sequence[Index], home: tuple[str, Index] | None, apart: bool) -> Strided:
        """A new complex buffer with a tensor's elements: both parts of each are stored."""
        made = self.builder
        parts = parts_of(tensor)
        whole = made.buffer(tensor.dtype, tensor.size, stride, tensor.device, "x", home)
        root, offset = home or (whole.name, ZERO)
        each = _doubled(stride)[:-1]
        stored = [made.stored(part, each, (root, offset * 2 + n), apart=apart) for n, part in enumerate(parts)]
        made.extern(Extern((whole.name,), aten.complex.default, tuple(stored), {}, reason="joined", nodes=made.nodes()))
        self._stored[whole.name] = tuple([made.tensor(made.buffers[part.buffer]) for part in stored])  # type: ignore[assignment]
        return Strided(whole.name, whole.dtype, whole.size, whole.stride, ZERO)


class RealView(Tensor):
    """The numbers of a complex tensor, with a last dimension of two; in memory if that lies there.

    Args:
        builder: the program under construction.
        of: the complex tensor.
    """

    def __init__(self, builder: Steps, of: Tensor) -> None:
        super().__init__((*of.size, TWO), of.dtype.to_real(), of.device, self._number, paired=True)
        self.of = of
        self._builder = builder

    @property
    def strided(self) -> Strided | None:
        """Where it lies, or None."""
        lies = self.of.strided if self._strided is None else None
        numbers = self._builder.numbers
        if lies is not None and lies.buffer not in numbers.conjugated:
            memory = numbers.of(lies.buffer).strided
            assert memory is not None
            where = Strided(memory.buffer, memory.dtype, self.size, _doubled(lies.stride), lies.offset * 2)
            self._strided = where
        return self._strided

    def load(self, at: Shape) -> Value:
        """The element; never remembered, for the complex tensor may get a buffer at any time."""
        return self._load(at)

    def _number(self, at: Shape) -> Value:
        found = self.of.load(at[:-1])
        assert isinstance(found, Pair)
        which = at[-1].value
        if which is not None:
            return found.parts[which]
        return apply("where", apply("eq", position(at[-1]), position(ZERO)), found.re, found.im)


class ComplexView(Tensor):
    """Numbers two by two as complex ones.

    Args:
        numbers: with a last dimension of two.
        wanted: eager's strides.
    """

    def __init__(self, numbers: Tensor, wanted: Shape) -> None:
        dtype = numbers.dtype.to_complex()
        if dtype not in COMPLEX:
            raise NoRule(f"{dtype}")

        def element(at: Shape) -> Value:
            return pair(numbers.load((*at, ZERO)), numbers.load((*at, ONE)))

        super().__init__(numbers.size[:-1], dtype, numbers.device, element, wanted=wanted)
        self.numbers = numbers

    def load(self, at: Shape) -> Value:
        """The element; never remembered, for the numbers may get a buffer at any time."""
        return self._load(at)

    def realised(self, builder: Steps) -> Strided | None:
        """Where it lies, if its numbers lie there as they must."""
        lies = self.numbers.strided
        if lies is None or self.wanted is None or lies.stride != _doubled(self.wanted):
            return None
        made = builder.buffer(self.dtype, self.size, self.wanted, self.device, "x")
        builder.extern(
            Extern((made.name,), aten.view_as_complex.default, (lies,), {}, reason="a view", nodes=builder.nodes())
        )
        return Strided(made.name, made.dtype, made.size, made.stride, ZERO)


def parts_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary parts."""

    def part(number: int) -> Tensor:
        def element(at: Shape) -> Value:
            found = tensor.load(at)
            assert isinstance(found, Pair)
            return found.parts[number]

        return Tensor(tensor.size, tensor.dtype.to_real(), tensor.device, element, wanted=tensor.wanted)

    return part(0), part(1)


def of_parts(re: Tensor, im: Tensor) -> Tensor:
    """A complex tensor of its parts."""
    return Tensor(
        re.size, re.dtype.to_complex(), re.device, lambda at: pair(re.load(at), im.load(at)), wanted=re.wanted
    )


def _doubled(stride: Sequence[Index]) -> tuple[Index, ...]:
    """The strides of numbers, from those of complex elements."""
    return (*(s * 2 for s in stride), ONE)
