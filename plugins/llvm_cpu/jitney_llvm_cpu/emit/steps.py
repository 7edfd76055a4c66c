"""What an entry does, as a table that one loop goes through: code does not grow with the number of steps.

Each distinct kernel or call is one function ``i32 (ptr table, ptr sizes, i64 threads)``; a step is such a function and
the places of what it works on, whose addresses are written to ``table`` first. So a model's equal layers need the code
of one, and what LLVM is given grows by some integers for each of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from jitney_llvm_cpu.emit.builder import I32, I64, PTR, Function, Reg, literal, number
from jitney_llvm_cpu.emit.scope import Scope, no_value
from jitney_lowering.index import Index, index

STEPS = "jitney.steps"
PARTS_OF_MADE = 2  # pointers of { ptr handle, ptr data }


class Base(IntEnum):
    """From where an address is counted."""

    GIVEN = 0  # the pointer of this number that the entry is given
    MEMORY = 1  # the elements of the result of this number
    HANDLE = 2  # where the handle of the result of this number is


@dataclass(frozen=True)
class Address:
    """``offset`` bytes after a base."""

    base: Base
    number: int
    offset: Index = field(default_factory=lambda: index(0))


# A step in the table is the number of its places, then for each of them: the base's number times 8, plus 4 if the
# offset is the number of an element of ``offsets``, plus the kind of the base; and the offset.
RUNNER = f"""
define internal i32 @{STEPS}(ptr %functions, i64 %count, ptr %steps, ptr %table, ptr %pointers, ptr %made, ptr %offsets,
    ptr %sizes, i64 %threads) nounwind {{
entry:
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %at = phi ptr [ %steps, %entry ], [ %place, %next ]
  %again = icmp ult i64 %i, %count
  br i1 %again, label %begin, label %done
begin:
  %places = load i64, ptr %at, align 8
  %first = getelementptr i64, ptr %at, i64 1
  br label %test
test:
  %k = phi i64 [ 0, %begin ], [ %k.next, %found ]
  %place = phi ptr [ %first, %begin ], [ %place.next, %found ]
  %more = icmp ult i64 %k, %places
  br i1 %more, label %one, label %call
one:
  %where = load i64, ptr %place, align 8
  %offset.p = getelementptr i64, ptr %place, i64 1
  %place.next = getelementptr i64, ptr %place, i64 2
  %given = load i64, ptr %offset.p, align 8
  %which = lshr i64 %where, 3
  %symbolic = and i64 %where, 4
  %known = icmp eq i64 %symbolic, 0
  br i1 %known, label %based, label %computed
computed:
  %computed.p = getelementptr i64, ptr %offsets, i64 %given
  %symbol = load i64, ptr %computed.p, align 8
  br label %based
based:
  %offset = phi i64 [ %given, %one ], [ %symbol, %computed ]
  %kind = and i64 %where, 3
  %twice = mul i64 %which, {PARTS_OF_MADE}
  switch i64 %kind, label %handle [ i64 {Base.GIVEN}, label %pointer
                                    i64 {Base.MEMORY}, label %memory ]
pointer:
  %pointer.p = getelementptr ptr, ptr %pointers, i64 %which
  %pointer.v = load ptr, ptr %pointer.p, align 8
  br label %found
memory:
  %data = add i64 %twice, 1
  %memory.p = getelementptr ptr, ptr %made, i64 %data
  %memory.v = load ptr, ptr %memory.p, align 8
  br label %found
handle:
  %handle.v = getelementptr ptr, ptr %made, i64 %twice
  br label %found
found:
  %base = phi ptr [ %pointer.v, %pointer ], [ %memory.v, %memory ], [ %handle.v, %handle ]
  %address = getelementptr i8, ptr %base, i64 %offset
  %slot = getelementptr ptr, ptr %table, i64 %k
  store ptr %address, ptr %slot, align 8
  %k.next = add i64 %k, 1
  br label %test
call:
  %function.p = getelementptr ptr, ptr %functions, i64 %i
  %function = load ptr, ptr %function.p, align 8
  %code = call i32 %function(ptr %table, ptr %sizes, i64 %threads)
  %good = icmp eq i32 %code, 0
  %i.next = add i64 %i, 1
  br i1 %good, label %next, label %failed
next:
  br label %step
done:
  ret i32 0
failed:
  ret i32 1
}}
"""


@dataclass
class Steps:
    """The table of one entry, as it grows."""

    functions: list[str] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    symbolic: dict[Index, int] = field(default_factory=dict)  # offset -> its number
    most: int = 1  # places of a step

    def add(self, function: str, places: Sequence[Address]) -> None:
        """One more step."""
        self.functions.append(function)
        self.words.append(len(places))
        self.most = max(self.most, len(places))
        for place in places:
            offset = place.offset.value
            computed = offset is None
            if offset is None:
                offset = self.symbolic.setdefault(place.offset, len(self.symbolic))
            self.words += [place.number * 8 + computed * 4 + place.base, offset]

    def write(self, f: Function, scope: Scope, pointers: Reg, sizes: Reg, threads: Reg, made: int) -> None:
        """The body of an entry that makes so many results: go through the table, and return 0, or 1."""
        f.module.include(RUNNER)
        table = f.value(PTR, f"alloca ptr, i64 {self.most}, align 8")
        offsets = results = Reg("null", PTR)
        if self.symbolic:
            offsets = f.value(PTR, f"alloca i64, i64 {len(self.symbolic)}, align 8")
        if made:
            results = f.value(PTR, f"alloca ptr, i64 {PARTS_OF_MADE * made}, align 8")
            f.loop(number(0), number(made), 1, [], lambda i, _: self._clear(f, results, i), nonempty=True)
        for offset, at in self.symbolic.items():
            f.store(scope.number(offset, no_value), f.element("i64", offsets, number(at)), 8)
        functions = f.module.addresses(self.functions)
        words = f.module.constant(self.words)
        count = Reg(str(len(self.functions)), I64)
        given = (functions, count, words, table, pointers, results, offsets, sizes, threads)
        code = f.invoke(STEPS, I32, given)
        if made:
            failed = f.compare("icmp ne", code, literal(0, I32))
            f.when(failed, [], lambda: self._delete(f, results, made))
        f.line(f"ret i32 {code.name}")

    @staticmethod
    def _clear(f: Function, results: Reg, i: Reg) -> list[Reg]:
        twice = f.binary("mul", i, number(PARTS_OF_MADE))
        f.store(Reg("null", PTR), f.element("ptr", results, twice), 8)
        return []

    @staticmethod
    def _delete(f: Function, results: Reg, made: int) -> list[Reg]:
        f.declare("jitney_delete", "void", ("ptr", "i64", "i64"))
        f.run("jitney_delete", results, number(made), number(PARTS_OF_MADE))
        return []
