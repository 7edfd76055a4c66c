"""Functions of mathematics over vectors: from a name to something that LLVM code can call.

Four sources, tried in this order for each function and element type:

- an LLVM intrinsic that is an instruction or a few (``floor``, ``sqrt``, ``fma``...);
- our own code, inlined where it is called (``inline_math``);
- Sleef, which torch's CPU library exports: what eager itself calls. Used after a trial on some hundred values;
- the C library's function for scalars, lane by lane: everywhere, and slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jitney_llvm_cpu import inline_math, symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.math_trial import Candidate, passes
from jitney_llvm_cpu.target import Target

Element = Literal["float", "double"]
Source = Literal["intrinsic", "inline", "sleef", "libm"]

BYTES = {"float": 4, "double": 8}
ELEMENTS = tuple(BYTES)

# Name: LLVM's name, and how many arguments.
INTRINSICS = {
    "abs": ("fabs", 1),
    "ceil": ("ceil", 1),
    "copysign": ("copysign", 2),
    "floor": ("floor", 1),
    "fma": ("fma", 3),
    "maximum": ("maximum", 2),
    "minimum": ("minimum", 2),
    "round": ("roundeven", 1),
    "sqrt": ("sqrt", 1),
    "trunc": ("trunc", 1),
}


@dataclass(frozen=True)
class Function:
    """A function of Sleef and of the C library.

    Args:
        arguments: how many.
        accuracy: Sleef's suffix: ``u10`` is at most 1.0 ULP from the exact result; empty for what is exact.
        suspect: which of ``_SUSPECT`` says where Sleef's result ``%r`` may be wrong, so that the C library is asked.
    """

    arguments: int = 1
    accuracy: str = "u10"
    suspect: str = ""


FUNCTIONS: dict[str, Function] = {
    **{name: Function() for name in "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan".split()},
    **{name: Function() for name in "sinh cosh tanh atanh erf lgamma".split()},
    **{name: Function(suspect="infinite") for name in ("asinh", "acosh")},
    "erfc": Function(accuracy="u15"),
    "atan2": Function(2),
    "pow": Function(2),
    "hypot": Function(2, "u05"),
    "fmod": Function(2, "", "no number"),
    "nextafter": Function(2, ""),
}

# From the type to lines that make ``%bad``.
_SUSPECT: dict[str, str] = {
    # An infinity that no argument explains: Sleef squares first.
    "infinite": """%size = call TYPE @llvm.fabs.SUFFIX(TYPE %r)
%over = fcmp oeq TYPE %size, INFINITY
%from = call TYPE @llvm.fabs.SUFFIX(TYPE %a0)
%finite = fcmp olt TYPE %from, INFINITY
%bad = and MASK %over, %finite""",
    # A nan that no argument explains: Sleef (and eager where it is vectorised) gives up on large quotients.
    "no number": """%lost = fcmp uno TYPE %r, %r
%size = call TYPE @llvm.fabs.SUFFIX(TYPE %a0)
%finite = fcmp olt TYPE %size, INFINITY
%divides = fcmp une TYPE %a1, zeroinitializer
%number = fcmp ord TYPE %a1, %a1
%usual = and MASK %finite, %divides
%explained = and MASK %usual, %number
%bad = and MASK %lost, %explained""",
}

# What a call costs LLVM to know: it neither reads nor writes memory that anybody looks at.
_PURE = "nounwind willreturn memory(none)"


@dataclass(frozen=True)
class Callee:
    """What a module needs in order to call a function.

    Args:
        symbol: the function's name, without ``@``. It takes and returns vectors of the width asked for; scalars if 1.
        declaration: text to put into the module once, or empty.
        definition: text to put into the module once, or empty.
        source: where the code comes from.
    """

    symbol: str
    declaration: str
    definition: str
    source: Source


class VectorMath:
    """The functions of one target.

    A module may use each function at one width for each element type; the text of two widths may overlap.

    Args:
        target: what vectors there are.
        engine: for trials of Sleef's functions, with the cache in which their verdicts are kept.
    """

    def __init__(self, target: Target, engine: Engine | None = None) -> None:
        self.target = target
        self._engine = engine
        self._callees: dict[tuple[str, str, int], Callee] = {}

    def supports(self, name: str, element: str) -> bool:
        """Is there a function of this name for ``float`` or ``double`` elements?"""
        return element in BYTES and (
            name in INTRINSICS or name in FUNCTIONS or inline_math.supports(name, element, self.target.has_fma)
        )

    def call(self, name: str, element: str, width: int) -> Callee:
        """How to compute a function on ``width`` elements.

        Raises:
            LookupError: ``supports`` says no, or no library of this process has the function.
        """
        if not self.supports(name, element):
            raise LookupError(f"no vector function {name!r} of {element}")
        key = (name, element, width)
        if key not in self._callees:
            self._callees[key] = self._made(name, element, width)
        return self._callees[key]

    def _made(self, name: str, element: str, width: int) -> Callee:
        if name in INTRINSICS:
            return _intrinsic(name, element, width)
        if inline_math.supports(name, element, self.target.has_fma):
            return self._inline(name, element, width)
        return self.library(name, element, width)

    def _inline(self, name: str, element: str, width: int) -> Callee:
        symbol, fused = f"jitney.own.{name}.{_suffix(element, width)}", self.target.has_fma
        if name not in inline_math.LIMITS:
            return Callee(symbol, "", inline_math.definition(name, symbol, width, fused), "inline")
        far = self.library(name, element, width)
        own = inline_math.definition(name, symbol, width, fused, far.symbol)
        return Callee(symbol, far.declaration, far.definition + own, "inline")

    def library(self, name: str, element: str, width: int) -> Callee:
        """The function of Sleef, or of the C library; see ``call``."""
        return self._sleef(name, element, width) or _libm(name, element, width)

    def _sleef(self, name: str, element: str, width: int) -> Callee | None:
        lanes = self.sleef_lanes(element, width)
        if not lanes or symbols.find(sleef_symbol(name, element, lanes)) is None:
            return None
        native = _native_sleef(name, element, lanes)
        arguments = FUNCTIONS[name].arguments
        candidate = Candidate(name, element, lanes, arguments, native.symbol, native.declaration + native.definition)
        if not passes(candidate, self._trial_engine()):
            return None
        if lanes == width:
            return native
        symbol = f"jitney.{name}.{_suffix(element, width)}"
        fitted = _padded if width < lanes else _split
        definition = fitted(symbol, native.symbol, element, width, lanes, arguments)
        return Callee(symbol, native.declaration, native.definition + definition, "sleef")

    def sleef_lanes(self, element: str, width: int) -> int:
        """The width of Sleef's function that serves ``width`` elements best here; 0 if there is none."""
        there = [size for size, feature in _SLEEF_BYTES if self.target.has(feature)] if self.target.is_x86 else []
        if self.target.triple.startswith(("aarch64", "arm64")):
            there = [16]
        fitting = [size // BYTES[element] for size in there]
        return min(fitting, key=lambda lanes: (lanes < width, abs(lanes - width)), default=0)

    def _trial_engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self.target)
        return self._engine


_SLEEF_BYTES = ((32, "avx"), (64, "avx512f"))


def sleef_symbol(name: str, element: str, lanes: int) -> str:
    """Sleef's name of a function, such as ``Sleef_expf8_u10``."""
    accuracy = FUNCTIONS[name].accuracy
    return f"Sleef_{name}{element[0]}{lanes}" + (f"_{accuracy}" if accuracy else "")


def vector(element: str, width: int) -> str:
    """LLVM's type of ``width`` elements; a scalar if that is 1."""
    return element if width == 1 else f"<{width} x {element}>"


def _suffix(element: str, width: int) -> str:
    return f"f{8 * BYTES[element]}x{width}"


def _parameters(type_: str, count: int) -> str:
    return ", ".join(f"{type_} %a{k}" for k in range(count))


def _declaration(symbol: str, element: str, width: int, count: int) -> str:
    type_ = vector(element, width)
    return f"declare {type_} @{symbol}({', '.join([type_] * count)}) {_PURE}\n"


def _define(symbol: str, type_: str, count: int, lines: list[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"define internal {type_} @{symbol}({_parameters(type_, count)}) alwaysinline {_PURE} {{\n{body}\n}}\n"


def _intrinsic(name: str, element: str, width: int) -> Callee:
    llvm_name, count = INTRINSICS[name]
    bits = f"f{8 * BYTES[element]}"
    symbol = f"llvm.{llvm_name}.{bits if width == 1 else f'v{width}{bits}'}"
    type_ = vector(element, width)
    return Callee(symbol, f"declare {type_} @{symbol}({', '.join([type_] * count)})\n", "", "intrinsic")


def _indices(positions: range) -> str:
    return f"<{len(positions)} x i32> <{', '.join(f'i32 {k}' for k in positions)}>"


def _padded(symbol: str, callee: str, element: str, width: int, lanes: int, count: int) -> str:
    """Few elements through a wider function: the rest repeats the first, so that no lane takes a slow path."""
    wide, narrow = vector(element, lanes), vector(element, width)
    lines = []
    for k in range(count):
        if width == 1:
            lines.append(f"%v{k} = insertelement {wide} poison, {element} %a{k}, i64 0")
            lines.append(f"%w{k} = shufflevector {wide} %v{k}, {wide} poison, <{lanes} x i32> zeroinitializer")
        else:
            order = ", ".join(f"i32 {j if j < width else 0}" for j in range(lanes))
            lines.append(f"%w{k} = shufflevector {narrow} %a{k}, {narrow} poison, <{lanes} x i32> <{order}>")
    arguments = ", ".join(f"{wide} %w{k}" for k in range(count))
    lines.append(f"%r = call {wide} @{callee}({arguments})")
    if width == 1:
        lines.append(f"%s = extractelement {wide} %r, i64 0")
    else:
        lines.append(f"%s = shufflevector {wide} %r, {wide} poison, {_indices(range(width))}")
    return _define(symbol, narrow, count, [*lines, f"ret {narrow} %s"])


def _split(symbol: str, callee: str, element: str, width: int, lanes: int, count: int) -> str:
    """Many elements through a narrower function, several times; ``width`` is a multiple of ``lanes``."""
    whole, part = vector(element, width), vector(element, lanes)
    lines = []
    for start in range(0, width, lanes):
        for k in range(count):
            order = _indices(range(start, start + lanes))
            lines.append(f"%p{start}.{k} = shufflevector {whole} %a{k}, {whole} poison, {order}")
        arguments = ", ".join(f"{part} %p{start}.{k}" for k in range(count))
        lines.append(f"%r{start} = call {part} @{callee}({arguments})")
        # Wide again, so that the pieces can be laid into one another.
        order = ", ".join(f"i32 {j - start}" if start <= j < start + lanes else "i32 poison" for j in range(width))
        lines.append(f"%w{start} = shufflevector {part} %r{start}, {part} poison, <{width} x i32> <{order}>")
    made = "%w0"
    for start in range(lanes, width, lanes):
        order = ", ".join(f"i32 {j if j < start else width + j}" for j in range(width))
        lines.append(f"%m{start} = shufflevector {whole} {made}, {whole} %w{start}, <{width} x i32> <{order}>")
        made = f"%m{start}"
    return _define(symbol, whole, count, [*lines, f"ret {whole} {made}"])


def _native_sleef(name: str, element: str, lanes: int) -> Callee:
    """Sleef's function at one of its own widths, with a way out where its result is suspect."""
    function, symbol = FUNCTIONS[name], sleef_symbol(name, element, lanes)
    declaration = _declaration(symbol, element, lanes, function.arguments)
    if not function.suspect:
        return Callee(symbol, declaration, "", "sleef")
    type_ = vector(element, lanes)
    suspect = _SUSPECT[function.suspect].replace("TYPE", type_).replace("SUFFIX", f"v{lanes}f{8 * BYTES[element]}")
    suspect = suspect.replace("MASK", f"<{lanes} x i1>").replace("INFINITY", f"splat ({element} 0x7FF0000000000000)")
    scalar, slow, last = _by_lane(name, element, lanes)
    arguments = ", ".join(f"{type_} %a{k}" for k in range(function.arguments))
    made = f"jitney.{name}.{_suffix(element, lanes)}"
    definition = f"""define internal {type_} @{made}({arguments}) noinline {_PURE} {{
entry:
%r = call {type_} @{symbol}({arguments})
{suspect}
%bits = bitcast <{lanes} x i1> %bad to i{lanes}
%some = icmp ne i{lanes} %bits, 0
br i1 %some, label %slow, label %end
slow:
{slow}
%repaired = select <{lanes} x i1> %bad, {type_} {last}, {type_} %r
br label %end
end:
%result = phi {type_} [ %r, %entry ], [ %repaired, %slow ]
ret {type_} %result
}}
"""
    return Callee(made, declaration + scalar, definition, "sleef")


def _by_lane(name: str, element: str, width: int) -> tuple[str, str, str]:
    """The declaration of the C library's function, lines that call it for each lane, and the vector they make."""
    scalar = name + ("f" if element == "float" else "")
    if symbols.find(scalar) is None:
        raise LookupError(f"no vector function {name!r} of {element}: this process has no {scalar!r}")
    count, type_ = FUNCTIONS[name].arguments, vector(element, width)
    lines, made = [], "poison"
    for lane in range(width):
        for k in range(count):
            lines.append(f"%e{lane}.{k} = extractelement {type_} %a{k}, i64 {lane}")
        arguments = ", ".join(f"{element} %e{lane}.{k}" for k in range(count))
        lines.append(f"%r{lane} = call {element} @{scalar}({arguments})")
        lines.append(f"%v{lane} = insertelement {type_} {made}, {element} %r{lane}, i64 {lane}")
        made = f"%v{lane}"
    return _declaration(scalar, element, 1, count), "\n".join(lines), made


def _libm(name: str, element: str, width: int) -> Callee:
    declaration, lines, made = _by_lane(name, element, width)
    if width == 1:
        return Callee(name + ("f" if element == "float" else ""), declaration, "", "libm")
    symbol, type_ = f"jitney.{name}.{_suffix(element, width)}", vector(element, width)
    definition = _define(symbol, type_, FUNCTIONS[name].arguments, [*lines.split("\n"), f"ret {type_} {made}"])
    return Callee(symbol, declaration, definition, "libm")
