"""Writes values as lines of Triton code, each value once.

The code of a kernel is sections: what stands before a loop, what stands inside of it. A value goes to the outermost
section in which all that it needs is known, so what does not change in a loop is computed before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from jitney_lowering.index import Atom, Index, Opaque, Size, Spell, Var, linear, stays_int32
from jitney_lowering.ir import HALVES, Apply, Checked, Constant, Load, Position, Put, Value
from jitney_triton_gpu.emit.dtypes import NAMES, literal
from jitney_triton_gpu.emit.indices import text
from jitney_triton_gpu.emit.scalars import ROUGH, SHARED, SPELLINGS, Spelling, cast, rounded
from jitney_triton_gpu.emit.spaces import Axis, column_or_line

ATOMICS = {"sum": "add", "max": "max", "min": "min"}
Axes = frozenset[str]  # names of the axes along which something differs

NOTHING: Mapping[str, Spelling] = MappingProxyType({})


@dataclass(frozen=True)
class Register:
    """A variable of the code, and the axes along which it differs."""

    name: str
    axes: Axes


@dataclass
class Section:
    """Lines at one depth of loops, and what is known there."""

    depth: int
    axes: list[Axis]
    lines: list[str] = field(default_factory=list)
    values: dict[Value, Register] = field(default_factory=dict)
    vars: dict[Var, Register] = field(default_factory=dict)


class Writer:
    """The body of one Triton function.

    Args:
        tile: the axes of the tile, in the order of its dimensions.
        pointers: buffer -> the parameter that points to it.
        sizes: symbolic size -> its parameter.
        written: buffers that the kernel stores to: what is loaded of these is not loaded earlier than asked.
        wide: are places counted in 64 bits?
    """

    def __init__(
        self,
        tile: Sequence[Axis],
        pointers: Mapping[str, str],
        sizes: Mapping[Size, str],
        written: frozenset[str],
        wide: bool = False,
    ) -> None:
        self.wide = wide
        self.tile = list(tile)
        self.pointers = pointers
        self.sizes = sizes
        self.written = written
        self.sections = [Section(1, [])]
        self.rough: frozenset[Value] = frozenset()  # see ``fast_math.py``
        self.policies: Mapping[Load, str] = {}  # see ``policies.py``
        self.bases: dict[str, Register] = {}  # what a workspace's part begins at, for this program
        self.subscripts: dict[str, str] = {}  # axis -> what puts its numbers along one of two dimensions
        self.asserts = False  # may it stop the device?
        self._opaque: dict[Opaque, Register] = {}
        self._count = 0

    # ------------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        """A line in the innermost section."""
        section = self.sections[-1]
        section.lines.append("    " * section.depth + text)

    def name(self, prefix: str = "v") -> str:
        """A new name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def enter(self, axes: Sequence[Axis], header: str = "") -> None:
        """Begin a section in which these axes are known: the inside of a loop, if it has a header."""
        depth = self.sections[-1].depth
        begun = Section(depth + bool(header), list(axes))
        if header:
            begun.lines.append("    " * depth + header)
        self.sections.append(begun)

    def leave(self) -> None:
        """End the innermost section: its lines follow those of the one before."""
        ended = self.sections.pop()
        self.sections[-1].lines += ended.lines

    def leave_aside(self) -> list[str]:
        """End the innermost section; its lines, for those who put them where they belong."""
        return self.sections.pop().lines

    def begin_axis(self, axis: Axis, start: str, wide: bool, subscript: str | None = "") -> None:
        """The variable of an axis and its mask.

        Args:
            axis: of a section that has begun.
            start: the first number of the block.
            wide: count in 64 bits.
            subscript: puts the range along its dimension of the tile; None for a single number.
        """
        if subscript is None:
            self.line(f"{axis.name} = {start}")
        else:
            numbers = f"tl.arange(0, {axis.symbol}){subscript}" + (".to(tl.int64)" if wide else "")
            self.line(f"{axis.name} = {numbers if start == '0' else f'{start} + {numbers}'}")
        if subscript:
            self.subscripts[axis.name] = subscript
        if not axis.fits:
            self.line(f"{axis.name}_ok = {axis.name} < {self.index(axis.count)}")

    def shape(self) -> str:
        """The shape of the tile; before its rows have elements, it is a column, or a line of what lies across."""
        if len(self.tile) == 1 and self.tile[0].name in self.subscripts:
            return column_or_line(self.subscripts[self.tile[0].name], self.tile[0].symbol)
        return f"[{', '.join(axis.symbol for axis in self.tile)}]"

    # ------------------------------------------------------------------ indices

    def index(self, x: Index, spell: Spell | None = None) -> str:
        """The text of an index expression; ``spell`` gives that of an atom, if it is not as usual."""
        spell = spell or self._spell
        for axis in self._axes():
            if len(axis.loops) > 1 and all(v in x.atoms for v in axis.list_of(axis.loops[0])):
                loops = axis.list_of(axis.loops[0])
                rest = x - linear(loops)
                if not any(v in rest.atoms for v in loops):  # it goes through memory as the axis does
                    return axis.name if rest.value == 0 else f"({axis.name} + {text(rest, spell)})"
        return text(x, spell)

    def axes_of(self, x: Index) -> Axes:
        """The axes along which an index differs."""
        found: set[str] = set()
        for atom in x.atoms:
            if isinstance(atom, Var):
                found |= {axis.name for axis in self._axes() if atom in axis.loops}
            elif isinstance(atom, Opaque):
                found |= self._opaque[atom].axes
        return frozenset(found)

    def _axes(self) -> list[Axis]:
        return [axis for section in self.sections for axis in section.axes]

    def _spell(self, atom: Atom) -> str:
        if isinstance(atom, Size):
            return self.sizes[atom]
        if isinstance(atom, Opaque):
            return self._opaque[atom].name
        assert isinstance(atom, Var)
        for section in reversed(self.sections):
            if atom in section.vars:
                return section.vars[atom].name
            for axis in section.axes:
                if atom in axis.loops:
                    return self._decomposed(section, axis, atom)
        raise KeyError(f"{atom} is no loop here")

    def _spell_wide(self, atom: Atom) -> str:
        return f"(tl.full([], 0, tl.int64) + {self._spell(atom)})"

    def _decomposed(self, section: Section, axis: Axis, var: Var) -> str:
        shown = axis.spelled(var, self._spell)
        if shown != axis.name:
            name = self.name(f"{axis.name}_")
            section.lines.append("    " * section.depth + f"{name} = {shown}")
            shown = name
        section.vars[var] = Register(shown, frozenset({axis.name}))
        return shown

    def address(self, buffer: str, place: Index) -> tuple[str, Axes]:
        """The text of an element's address, and the axes along which it differs."""
        if buffer in self.bases:
            base = self.bases[buffer]
            return f"{base.name} + {self.index(place)}", base.axes | self.axes_of(place)
        return f"{self.pointers[buffer]} + {self.index(place)}", self.axes_of(place)

    def mask(self, axes: Axes) -> str:
        """Which elements of the tile are there, along these axes; empty for all."""
        return " & ".join(f"{axis.name}_ok" for axis in self._axes() if axis.name in axes and not axis.fits)

    # ------------------------------------------------------------------ values

    def value(self, root: Value) -> Register:
        """The register of a value; lines are written for what is not known yet."""
        known = self._known(root)
        if known is not None:
            return known
        waiting = [root]
        while waiting:  # operands first; those of what is known are not asked for
            v = waiting[-1]
            unknown = [part for part in v.parts if self._known(v) is None and self._known(part) is None]
            if unknown:
                waiting += reversed(unknown)
                continue
            waiting.pop()
            if self._known(v) is None:
                self._write(v)
        found = self._known(root)
        assert found is not None
        return found

    def know(self, value: Value, register: Register) -> None:
        """In the innermost section this value is in a register already."""
        self.sections[-1].values[value] = register

    def is_known(self, value: Value) -> bool:
        """Is it in a register already?"""
        return self._known(value) is not None

    def _known(self, v: Value) -> Register | None:
        for section in reversed(self.sections):
            if v in section.values:
                return section.values[v]
        return None

    def _write(self, v: Value) -> None:
        if isinstance(v, Constant):
            self._assign(v, literal(v.value, v.dtype), frozenset(), "c")
        elif isinstance(v, Position):
            axes = self.axes_of(v.index)
            shown = self.index(v.index, None if stays_int32(v.index) else self._spell_wide)
            self._assign(v, self._number(shown, v.dtype), axes)
        elif isinstance(v, Load):
            self._load(v)
        elif isinstance(v, Checked):
            self._check(v)
        elif isinstance(v, Apply):
            operands = [self.value(a) for a in v.args]
            axes = frozenset().union(*(o.axes for o in operands))
            spellings = ROUGH if v in self.rough else SHARED if operands[-1].axes < axes else NOTHING
            self._assign(v, applied(v, [o.name for o in operands], spellings), axes)
        else:
            raise TypeError(f"no code for {type(v).__name__}")

    def _number(self, shown: str, dtype: torch.dtype) -> str:
        counted = torch.int64 if self.wide or dtype is not torch.int32 else torch.int32
        return cast(counted, dtype, f"(tl.full([], 0, {NAMES[counted]}) + {shown})")

    def _check(self, v: Checked) -> None:
        """Where the condition is known, for the elements that are there."""
        given, fine = self.value(v.value), self.value(v.condition)
        section = self._home(v, fine.axes)
        mask = self.mask(fine.axes)
        shown = f"tl.device_assert({fine.name}, {v.message!r}{f', {mask}' if mask else ''})"
        section.lines.append("    " * section.depth + shown)
        section.values[v] = given
        self.asserts = True

    def _load(self, v: Load) -> None:
        for atom, value in v.indirect:
            self._opaque[atom] = self.value(value)
        given, axes = self.address(v.buffer, v.index)
        mask = self.mask(axes)
        if v.mask is not None:
            here = self.value(v.mask)
            mask = f"{here.name} & {mask}" if mask else here.name
            tile = {axis.name for axis in self.tile}
            if not here.axes & tile <= axes:  # of several elements of the tile
                given = f"tl.broadcast_to({given}, {self.shape()})"
                axes |= tile
            axes |= here.axes
        hint = f', eviction_policy="{self.policies[v]}"' if v in self.policies else ""
        shown = f"tl.load({given}{f', {mask}' if mask else ''}{hint})"
        if v.dtype in HALVES:
            shown += ".to(tl.float32)"
        elif v.dtype is torch.bool:
            shown += ".to(tl.int1)"
        self._assign(v, shown, axes, hoist=v.buffer not in self.written)

    def _assign(self, v: Value, shown: str, axes: Axes, prefix: str = "v", *, hoist: bool = True) -> None:
        section = self._home(v, axes) if hoist else self.sections[-1]
        if shown.isidentifier():
            section.values[v] = Register(shown, axes)
            return
        name = self.name(prefix)
        section.lines.append("    " * section.depth + f"{name} = {shown}")
        section.values[v] = Register(name, axes)

    def _home(self, v: Value, axes: Axes) -> Section:
        """The outermost section in which the axes and the operands are known."""
        last = 0
        for number, section in enumerate(self.sections):
            if any(axis.name in axes for axis in section.axes):
                last = number
        for part in v.parts:
            for number, section in enumerate(self.sections):
                if part in section.values:
                    last = max(last, number)
        return self.sections[last]

    def spread(self, register: Register) -> str:
        """The value over the whole tile."""
        if register.axes >= {axis.name for axis in self.tile}:
            return register.name
        return f"tl.broadcast_to({register.name}, {self.shape()})"

    # ------------------------------------------------------------------ stores

    def store(self, buffer: str, place: Index, value: Value) -> None:
        """``buffer[place] = value`` for the elements that are there."""
        register = self.value(value)
        self.store_register(buffer, place, register)

    def store_register(self, buffer: str, place: Index, register: Register) -> None:
        """The same for what is in a register."""
        shown, axes = self.address(buffer, place)
        if not register.axes <= axes:  # one place, one value: which of the equals is written does not matter
            shown = f"tl.broadcast_to({shown}, {self.shape()})"
            axes |= {axis.name for axis in self.tile}
        mask = self.mask(axes)
        self.line(f"tl.store({shown}, {register.name}{f', {mask}' if mask else ''})")

    def put(self, v: Put) -> None:
        """What goes to a place, once for each iteration."""
        for atom, value in v.indirect:
            self._opaque[atom] = self.value(value)
        register = self.value(v.value)
        shown, axes = self.address(v.buffer, v.index)
        every = frozenset(axis.name for axis in self.tile)  # a row's elements may be known, and not go there
        if self.tile and not axes >= {axis.name for axis in self.tile}:
            shown = f"tl.broadcast_to({shown}, {self.shape()})"
        mask = self.mask(every)
        if v.mask is not None:
            here = self.value(v.mask).name
            mask = f"{here} & {mask}" if mask else here
        store = "tl.store" if v.kind == "store" else f"tl.atomic_{ATOMICS[v.kind]}"
        order = "" if v.kind == "store" else ', sem="relaxed"'
        self.line(f"{store}({shown}, {self.spread(register)}{f', {mask}' if mask else ''}{order})")


def applied(v: Apply, operands: Sequence[str], better: Mapping[str, Spelling] = NOTHING) -> str:
    """The text of an operation on registers; ``better``: spellings of float32 that may be taken here."""
    spelled = (better if v.op in better and v.dtype is torch.float32 else SPELLINGS)[v.op]
    source = v.args[-1].dtype
    shown = spelled(source, v.dtype, *operands)
    if v.dtype in HALVES and v.op not in ("cast", "bitcast", "where"):
        return rounded(shown, v.dtype)
    return shown
