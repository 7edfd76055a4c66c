"""Code objects, decoded once: instructions with targets as indices, exception handlers, live variables."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from traceback import FrameSummary
from types import CodeType
from typing import Any

from jitney._util.code_cache import cached_by_code

PY312 = sys.version_info >= (3, 12)
PY313 = sys.version_info >= (3, 13)
STOP_ITERATION = 3  # the argument of CALL_INTRINSIC_1 in the handler that Python itself puts around a generator


@dataclass(slots=True)
class Instr:
    """One instruction. ``target`` is an index into ``CodeInfo.instrs`` for jumps, else -1."""

    index: int
    op: str
    arg: int
    argval: Any
    target: int
    line: int
    offset: int
    is_method: bool = False  # LOAD_ATTR that pushes a callable and a NULL


@dataclass(frozen=True, slots=True)
class Handler:
    """Where an exception goes: to ``target`` with the stack cut to ``depth``."""

    target: int
    depth: int
    lasti: bool


@dataclass(slots=True)
class CodeInfo:
    """What the interpreter wants to know of a code object."""

    code: CodeType
    instrs: list[Instr]
    handlers: list[Handler | None]  # by instruction index
    cellvars: frozenset[str]
    freevars: frozenset[str]
    _live: list[frozenset[str]] | None = None
    _depths: list[int | None] | None = None

    def live_at(self, index: int) -> frozenset[str]:
        """Names of fast locals that may be read at or after the instruction."""
        if self._live is None:
            self._live = _liveness(self)
        return self._live[index]

    def depth_at(self, index: int) -> int | None:
        """How many values are on the stack before the instruction; None where control never comes."""
        if self._depths is None:
            self._depths = _stack_depths(self)
        return self._depths[index]

    def blocks(self, index: int) -> Iterator[tuple[bool, int]]:
        """The ``try`` and ``with`` blocks around an instruction: a ``with``? and where its ``__exit__`` lies."""
        handler, seen = self.handlers[index], set[int]()
        while handler is not None and handler.target not in seen:
            seen.add(handler.target)
            first, second = self.instrs[handler.target : handler.target + 2]
            if first.op == "PUSH_EXC_INFO":
                yield second.op == "WITH_EXCEPT_START", handler.depth - 1
            handler = self.handlers[handler.target]

    def is_protected(self, index: int) -> bool:
        """Is the instruction in a block of the program's own that handles exceptions?"""
        handler = self.handlers[index]
        while handler is not None:
            instr = self.instrs[handler.target]
            if instr.op != "CLEANUP_THROW":  # around a ``yield from``, of Python's own
                return not (instr.op == "CALL_INTRINSIC_1" and instr.arg == STOP_ITERATION)
            handler = self.handlers[handler.target]
        return False

    def summary(self, index: int) -> FrameSummary:
        """The user's line of an instruction."""
        line = self.instrs[index].line or self.code.co_firstlineno
        return FrameSummary(self.code.co_filename, line, self.code.co_name, lookup_line=False)


@cached_by_code(maxsize=4096)
def decode(code: CodeType) -> CodeInfo:
    """Decode a code object; cached."""
    instrs: list[Instr] = []
    at: dict[int, int] = {}
    pending: list[int] = []
    line = code.co_firstlineno
    for i in dis.get_instructions(code):
        if i.opname == "EXTENDED_ARG":
            pending.append(i.offset)
            continue
        if i.positions is not None and i.positions.lineno is not None:
            line = i.positions.lineno
        index = len(instrs)
        for offset in (*pending, i.offset):
            at[offset] = index
        pending.clear()
        target = i.argval if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs else -1
        is_method = i.opname == "LOAD_ATTR" and PY312 and bool((i.arg or 0) & 1)
        instrs.append(Instr(index, i.opname, i.arg or 0, i.argval, target, line, i.offset, is_method))
    for instr in instrs:
        if instr.target != -1:
            instr.target = at[instr.target]
    handlers: list[Handler | None] = [None] * len(instrs)
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        handler = Handler(at[entry.target], entry.depth, entry.lasti)
        for instr in instrs:
            if entry.start <= instr.offset < entry.end:
                handlers[instr.index] = handler
    return CodeInfo(code, instrs, handlers, frozenset(code.co_cellvars), frozenset(code.co_freevars))


EFFECTFUL = {"append", "extend", "insert", "update", "setdefault", "pop", "print", "add", "remove", "clear", "item"}


@cached_by_code(maxsize=1024)
def leaves_traces(code: CodeType) -> bool:
    """May running this code change something besides its own locals? A look at names and stores, no proof."""
    stores = ("STORE_GLOBAL", "STORE_SUBSCR", "STORE_ATTR", "STORE_DEREF", "DELETE_GLOBAL")
    return bool(EFFECTFUL.intersection(code.co_names)) or any(i.op in stores for i in decode(code).instrs)


ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
                  "JUMP_BACKWARD_NO_INTERRUPT", "INTERPRETER_EXIT"})  # fmt: skip


def successors(info: CodeInfo, index: int) -> list[int]:
    """Where control may go after an instruction, exceptions aside."""
    instr = info.instrs[index]
    out = []
    if instr.op not in ENDS and index + 1 < len(info.instrs):
        out.append(index + 1)
    if instr.target != -1:
        out.append(instr.target)
    return out


# What may come on the way to a ``raise`` that nothing else does.
MESSAGE = ("LOAD_", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES", "BUILD_", "FORMAT_", "CONVERT_VALUE", "BINARY_", "COPY",
           "SWAP", "NOP", "CACHE", "LIST_", "UNARY_", "RESUME")  # fmt: skip


def only_raises(info: CodeInfo, at: int) -> bool:
    """Does control that comes here go straight to a ``raise``?"""
    for instr in info.instrs[at:]:
        if instr.op == "RAISE_VARARGS":
            return True
        if not instr.op.startswith(MESSAGE):
            return False
    return False


def _names(instr: Instr) -> tuple[str, ...]:
    return instr.argval if isinstance(instr.argval, tuple) else (instr.argval,)


# opcode -> the fast locals that it reads and writes
_USES: dict[str, Callable[[Instr], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "LOAD_FAST": lambda i: (_names(i), ()),
    "LOAD_FAST_CHECK": lambda i: (_names(i), ()),
    "LOAD_FAST_AND_CLEAR": lambda i: (_names(i), ()),
    "LOAD_FAST_LOAD_FAST": lambda i: (_names(i), ()),
    "STORE_FAST": lambda i: ((), _names(i)),
    "STORE_FAST_STORE_FAST": lambda i: ((), _names(i)),
    "STORE_FAST_LOAD_FAST": lambda i: (_names(i)[1:], _names(i)[:1]),
    "STORE_FAST_MAYBE_NULL": lambda i: ((), _names(i)),
    "DELETE_FAST": lambda i: (_names(i), ()),
}


def _liveness(info: CodeInfo) -> list[frozenset[str]]:
    """Backward data flow. A store inside a protected region does not end a variable's life."""
    size = len(info.instrs)
    code = info.code
    if "locals" in code.co_names or "vars" in code.co_names or "eval" in code.co_names or "exec" in code.co_names:
        return [frozenset(code.co_varnames)] * size
    edges = [successors(info, i) for i in range(size)]
    handlers = info.handlers
    live: list[set[str]] = [set() for _ in range(size)]
    use = [_USES.get(i.op, lambda _: ((), ()))(i) for i in info.instrs]
    changed = True
    while changed:
        changed = False
        for at in range(size - 1, -1, -1):
            reads, writes = use[at]
            after: set[str] = set()
            for nxt in edges[at]:
                after |= live[nxt]
            handler = handlers[at]
            before = (after - set(writes)) | set(reads)
            if handler is not None:
                before |= live[handler.target]
            if before != live[at]:
                live[at] = before
                changed = True
    return [frozenset(s) for s in live]


# Instructions that the interpreter takes otherwise than dis does: (effect going on, effect jumping).
_EFFECTS: dict[str, Callable[[int], int]] = {
    "PRECALL": lambda arg: 0,
    "RETURN_GENERATOR": lambda arg: 1,  # the value that the first send brings
    **({} if PY312 else {"CALL": lambda arg: -(arg + 1)}),
}


def _stack_depths(info: CodeInfo) -> list[int | None]:
    """Forward data flow over what each instruction does to the stack."""
    depths: list[int | None] = [None] * len(info.instrs)
    todo = [(0, 0)] if info.instrs else []
    while todo:
        at, depth = todo.pop()
        if depths[at] is not None:
            continue
        depths[at] = depth
        instr, handler = info.instrs[at], info.handlers[at]
        if handler is not None:
            todo.append((handler.target, handler.depth + handler.lasti + 1))
        own = _EFFECTS.get(instr.op)
        argument = instr.arg if dis.opmap[instr.op] >= dis.HAVE_ARGUMENT else None
        for jump in (False, True):
            if (instr.target == -1) if jump else (instr.op in ENDS):
                continue
            effect = own(instr.arg) if own else dis.stack_effect(dis.opmap[instr.op], argument, jump=jump)
            todo.append((instr.target if jump else at + 1, depth + effect))
    return depths
