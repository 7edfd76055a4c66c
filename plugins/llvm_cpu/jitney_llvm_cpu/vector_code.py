"""A notation for short functions over vectors of floats: Python operators on ``Value`` write LLVM instructions."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal, Union

Kind = Literal["float", "int", "mask"]
Number = Union["Value", float, int]

_SCALARS = {"float": "float", "int": "i32", "mask": "i1"}


@dataclass
class Code:
    """The instructions of one function.

    Args:
        width: lanes of each vector; 1 for scalars.
        fused: may ``fma`` round once? If not, it is a product and a sum.
    """

    width: int
    fused: bool
    lines: list[str] = field(default_factory=list)

    def type(self, kind: Kind) -> str:
        """LLVM's type of a value."""
        scalar = _SCALARS[kind]
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    def add(self, text: str, kind: Kind) -> Value:
        """Append an instruction; its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(self, name, kind)

    def text(self, value: Number, kind: Kind) -> str:
        """An operand: the name of a value, or a number in every lane."""
        if isinstance(value, Value):
            assert value.kind == kind, (value, kind)
            return value.name
        one = _float_text(value) if kind == "float" else str(int(value))
        return one if self.width == 1 else f"splat ({_SCALARS[kind]} {one})"

    def operation(self, opcode: str, kind: Kind, a: Number, b: Number) -> Value:
        """An instruction of two operands of one kind."""
        return self.add(f"{opcode} {self.type(kind)} {self.text(a, kind)}, {self.text(b, kind)}", kind)

    def intrinsic(self, name: str, *arguments: Number) -> Value:
        """An intrinsic of floats; LLVM declares it itself."""
        suffix = "f32" if self.width == 1 else f"v{self.width}f32"
        type_ = self.type("float")
        given = ", ".join(f"{type_} {self.text(a, 'float')}" for a in arguments)
        return self.add(f"call {type_} @llvm.{name}.{suffix}({given})", "float")

    def compare(self, predicate: str, a: Number, b: Number) -> Value:
        """A mask; the predicate is ``fcmp``'s."""
        return self.add(
            f"fcmp {predicate} {self.type('float')} {self.text(a, 'float')}, {self.text(b, 'float')}", "mask"
        )

    def where(self, mask: Value, a: Number, b: Number) -> Value:
        """Floats: ``a`` where the mask is set, else ``b``."""
        one, other = self.text(a, "float"), self.text(b, "float")
        type_ = self.type("float")
        return self.add(f"select {self.type('mask')} {mask.name}, {type_} {one}, {type_} {other}", "float")

    def bit(self, value: Value, number: int) -> Value:
        """A mask: where this bit of an integer is set."""
        type_ = self.type("int")
        one = value & (1 << number)
        return self.add(f"icmp ne {type_} {one.name}, {self.text(0, 'int')}", "mask")

    def fma(self, a: Number, b: Number, c: Number) -> Value:
        """``a * b + c``."""
        return self.intrinsic("fma" if self.fused else "fmuladd", a, b, c)

    def polynomial(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """Horner's rule; the coefficients begin with the constant."""
        made: Number = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            made = self.fma(made, x, coefficient)
        assert isinstance(made, Value)
        return made


@dataclass(frozen=True)
class Value:
    """The result of an instruction: floats, 32-bit integers or a mask."""

    code: Code
    name: str
    kind: Kind

    def _with(self, floating: str, integer: str, a: Number, b: Number) -> Value:
        opcode = floating if self.kind == "float" else integer
        assert opcode, f"no such operation of {self.kind}s"
        return self.code.operation(opcode, self.kind, a, b)

    def __add__(self, other: Number) -> Value:
        return self._with("fadd", "add", self, other)

    def __sub__(self, other: Number) -> Value:
        return self._with("fsub", "sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self._with("fsub", "sub", other, self)

    def __mul__(self, other: Number) -> Value:
        return self._with("fmul", "mul", self, other)

    def __truediv__(self, other: Number) -> Value:
        return self._with("fdiv", "", self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._with("fdiv", "", other, self)

    def __and__(self, other: Number) -> Value:
        return self._with("", "and", self, other)

    def __xor__(self, other: Number) -> Value:
        return self._with("", "xor", self, other)

    def __lshift__(self, count: int) -> Value:
        return self._with("", "shl", self, count)

    def __rshift__(self, count: int) -> Value:
        return self._with("", "ashr", self, count)

    def unsigned_shift(self, count: int) -> Value:
        """``>>`` that fills with zeros."""
        return self._with("", "lshr", self, count)

    def at_most(self, limit: float) -> Value:
        """The smaller one; a nan stays."""
        return self.code.where(self.code.compare("ogt", self, limit), limit, self)

    def at_least(self, limit: float) -> Value:
        """The larger one; a nan stays."""
        return self.code.where(self.code.compare("olt", self, limit), limit, self)

    def magnitude(self) -> Value:
        """Without its sign."""
        return self.code.intrinsic("fabs", self)

    def signed_as(self, other: Value) -> Value:
        """With the sign of ``other``."""
        return self.code.intrinsic("copysign", self, other)

    def bits(self) -> Value:
        """The floats' bits as integers."""
        return self.code.add(f"bitcast {self.code.type('float')} {self.name} to {self.code.type('int')}", "int")

    def from_bits(self) -> Value:
        """The floats that have these bits."""
        return self.code.add(f"bitcast {self.code.type('int')} {self.name} to {self.code.type('float')}", "float")

    def to_float(self) -> Value:
        """Integers to floats of the same value."""
        return self.code.add(f"sitofp {self.code.type('int')} {self.name} to {self.code.type('float')}", "float")


def _float_text(value: float) -> str:
    """LLVM writes a float as the bits of the double that equals it."""
    rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
