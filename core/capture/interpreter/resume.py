"""Code objects entered in the middle: the user's own code with a prologue that restores the stack and jumps.

Two kinds. A *resume* function enters before an instruction and runs to the end of the frame. A *step* function enters
at the instruction that broke the graph, runs that one natively (inside its own ``try`` and ``with`` regions, so that
exceptions find their handlers and tracebacks show the user's line), and leaves by returning a ``Continue``.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import CodeType
from typing import Any

from bytecode import Bytecode, CellVar, CompilerFlags, FreeVar, Instr, Label, SetLineno, TryBegin, TryEnd

from jitney._util.code_cache import cached_by_code
from jitney.capture.interpreter.code import PY312, PY313, decode
from jitney.capture.interpreter.frame import NULL, ExcInfo, Frame
from jitney.capture.interpreter.signals import GiveUp
from jitney.config import config
from jitney.errors import CaptureError

# What sits in a stack slot: a value, CPython's NULL, or the mark that PUSH_EXC_INFO leaves (its argument is the
# exception being handled).
VALUE, EMPTY, HANDLING = "value", "null", "handling"


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a frame at one instruction: what a step or resume function takes as arguments, in this order."""

    cells: tuple[str, ...]
    locals: tuple[str, ...]
    stack: tuple[str, ...]  # kinds, bottom first

    @property
    def values(self) -> int:
        """How many stack slots take an argument."""
        return sum(kind != EMPTY for kind in self.stack)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters after the cells."""
        return (*self.locals, *(f"_stack{i}" for i in range(self.values)))

    def verify(self, code: CodeType, index: int, waiting: bool = False) -> None:
        """Check that a frame of ``code`` may look so before instruction ``index``; raises ``CaptureError``.

        ``waiting``: it is a generator's, that waits there at a ``yield``; the value that it gave is gone.
        """
        info = decode(code)
        place = f"{code.co_qualname} at instruction {index} ({info.instrs[index].op})"
        depth = info.depth_at(index)
        if depth is not None and depth != len(self.stack) + waiting:
            raise CaptureError(f"the layout of {place} has {len(self.stack)} values on the stack, the code {depth}")
        unknown = {*self.locals} - {*code.co_varnames, *code.co_cellvars}
        unknown |= {*self.cells} - {*code.co_cellvars}
        if unknown or len({*self.cells, *self.locals}) != len(self.cells) + len(self.locals):
            raise CaptureError(f"the layout of {place} has names that the code has not, or twice: {self}")


def stack_kinds(stack: list[Any]) -> tuple[str, ...]:
    """The kinds of the slots of an interpreter's stack."""
    return tuple(EMPTY if v is NULL else HANDLING if type(v) is ExcInfo else VALUE for v in stack)


def layout_of(frame: Frame, code: CodeType, index: int, stack: tuple[str, ...], waiting: bool = False) -> Layout:
    """The layout of a frame about to run instruction ``index`` of ``code``: cells, locals still needed, stack."""
    live = decode(code).live_at(index)
    keep = uses_super(code)
    names = [n for n in code.co_varnames if n in frame.locals and (n in live or n == keep)]
    extra = [n for n in frame.locals if n not in code.co_varnames and n in live]
    cells = tuple(n for n in code.co_cellvars if n in frame.cells)
    made = Layout(cells, (*names, *extra), stack)
    if config.verify:
        made.verify(code, index, waiting)
    return made


def uses_super(code: CodeType) -> str | None:
    """The first argument's name, where a bare ``super()`` may need it."""
    if "__class__" in code.co_freevars and "super" in code.co_names and code.co_varnames:
        return code.co_varnames[0]
    return None


@dataclass(frozen=True, slots=True)
class Exit:
    """Where a step function may go on: the resume point's key."""

    index: int
    stack: tuple[str, ...]
    jumped: bool


# ------------------------------------------------------------------ after one instruction

JUMPS_AFTER = 2 if PY313 else 1 if PY312 else 0


def pops(instr: Any) -> tuple[int, int]:
    """(operands that the instruction takes from the stack, values that it leaves), without a jump."""
    arg = instr.arg
    fixed = POPS.get(instr.op)
    if fixed is not None:
        return fixed
    if instr.op == "CALL":
        return arg + 2, 1
    if instr.op == "CALL_KW":
        return arg + 3, 1
    if instr.op == "CALL_FUNCTION_EX":
        return 3 + (arg & 1), 1
    if instr.op in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
        return arg, 1
    if instr.op == "BUILD_MAP":
        return 2 * arg, 1
    if instr.op == "BUILD_CONST_KEY_MAP":
        return arg + 1, 1
    if instr.op == "UNPACK_SEQUENCE":
        return 1, arg
    if instr.op == "UNPACK_EX":
        return 1, (arg & 0xFF) + (arg >> 8) + 1
    if instr.op == "FORMAT_VALUE":
        return (2 if arg & 4 else 1), 1
    if instr.op == "RAISE_VARARGS":
        return arg, 0
    if instr.op == "MAKE_FUNCTION":
        return 1 + bin(arg).count("1"), 1
    raise KeyError(instr.op)


POPS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("BINARY_OP", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "BINARY_SUBSCR", "FORMAT_WITH_SPEC"), (2, 1)),
    **dict.fromkeys(("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "UNARY_NOT", "TO_BOOL", "GET_ITER"), (1, 1)),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "FORMAT_SIMPLE", "CONVERT_VALUE", "LIST_TO_TUPLE"), (1, 1)),
    **dict.fromkeys(("CALL_INTRINSIC_1", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"), (1, 1)),
    **dict.fromkeys(("LIST_APPEND", "SET_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE"), (1, 0)),
    **dict.fromkeys(("STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "DELETE_ATTR", "POP_TOP", "RERAISE"), (1, 0)),
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_BUILD_CLASS"), (0, 1)),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CONST", "LOAD_ASSERTION_ERROR", "LOAD_CLOSURE"), (0, 1)),
    **dict.fromkeys(("DELETE_GLOBAL", "DELETE_NAME", "DELETE_DEREF", "DELETE_FAST", "SETUP_ANNOTATIONS"), (0, 0)),
    **dict.fromkeys(("DELETE_SUBSCR", "STORE_ATTR", "MAP_ADD"), (2, 0)),
    "LOAD_SUPER_ATTR": (3, 1),
    "BINARY_SLICE": (3, 1),
    "STORE_SUBSCR": (3, 0),
    "STORE_SLICE": (4, 0),
    "IMPORT_NAME": (2, 1),
    "IMPORT_FROM": (0, 1),
    "BEFORE_WITH": (1, 2),
    "WITH_EXCEPT_START": (0, 1),
    "GET_LEN": (0, 1),
    "MATCH_MAPPING": (0, 1),
    "MATCH_SEQUENCE": (0, 1),
    "MATCH_KEYS": (0, 1),
    "MATCH_CLASS": (3, 1),
    "CALL_INTRINSIC_2": (2, 1),
    "CHECK_EXC_MATCH": (1, 1),
    "FOR_ITER": (0, 1),
    **dict.fromkeys(
        [f"POP_JUMP_{d}IF_{c}" for d in ("", "FORWARD_", "BACKWARD_") for c in ("TRUE", "FALSE", "NONE", "NOT_NONE")],
        (1, 0),
    ),
    "JUMP_IF_TRUE_OR_POP": (1, 0),
    "JUMP_IF_FALSE_OR_POP": (1, 0),
}
NO_FALL = {"RAISE_VARARGS", "RERAISE", "RETURN_VALUE"}


def exits(instr: Any, stack: tuple[str, ...]) -> list[Exit]:
    """Where the instruction may lead, with the stack as it is then."""
    taken, left = pops(instr)
    below = stack[: len(stack) - taken]
    out = []
    if instr.op not in NO_FALL:
        pushed: tuple[str, ...] = (VALUE,) * left
        if is_callable_load(instr):
            pushed = (VALUE, EMPTY) if PY313 else (EMPTY, VALUE)
        out.append(Exit(instr.index + 1, below + pushed, False))
    if instr.target != -1:
        if instr.op == "FOR_ITER":
            out.append(Exit(instr.target + JUMPS_AFTER, stack[:-1], True))
        elif instr.op.endswith("_OR_POP"):
            out.append(Exit(instr.target, stack, True))
        else:
            out.append(Exit(instr.target, below, True))
    return out


# What only moves values about: nothing in it could be captured, and it runs no code of anybody's.
QUIET = frozenset({"NOP", "POP_TOP", "COPY", "SWAP", "LOAD_CONST", "LOAD_FAST", "LOAD_FAST_CHECK", "STORE_FAST",
                   "LOAD_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST",
                   "BUILD_TUPLE", "BUILD_LIST"})  # fmt: skip
RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


@cached_by_code(maxsize=4096)
def quiet_rest(code: CodeType, index: int) -> range | None:
    """The instructions from ``index`` to the frame's return, if they only move values about; else None.

    Such a rest is run with the instruction before it: compiling it would compile it again for each number that it
    hands on.
    """
    info = decode(code)
    if code.co_flags & (CompilerFlags.GENERATOR | CompilerFlags.COROUTINE | CompilerFlags.ASYNC_GENERATOR):
        return None
    for at in range(index, len(info.instrs)):
        if info.handlers[at] is not None:
            return None
        if info.instrs[at].op in RETURNS:
            return range(index, at + 1)
        if info.instrs[at].op not in QUIET:
            return None
    return None


def is_callable_load(instr: Any) -> bool:
    """Does the instruction push a callable together with a NULL?"""
    if instr.op == "LOAD_METHOD":
        return True
    if instr.op == "LOAD_ATTR":
        return bool(instr.is_method)
    return instr.op in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and bool(instr.arg & 1)


def callee_slot(instr: Any, stack: list[Any]) -> int | None:
    """Where in an interpreter's stack the callee of a call instruction is; None for other instructions."""
    if not instr.op.startswith("CALL") or instr.op.startswith("CALL_INTRINSIC"):
        return None
    at = len(stack) - pops(instr)[0]
    return at + 1 if not PY313 and stack[at] is NULL else at


# ------------------------------------------------------------------ assembling


# By id, a resume function's code -> the code it was made from, and the place there of each of its instructions.
_origins: dict[int, tuple[CodeType, dict[int, int]]] = {}


def origin(code: CodeType, index: int) -> tuple[CodeType, int]:
    """The user's own code object and instruction for one of a resume function's: breaks do not pile up prologues."""
    found = _origins.get(id(code))
    return (code, index) if found is None else (found[0], found[1][index])


def _numbers(items: list[Any], places: list[int]) -> dict[int, int]:
    """The number, once assembled, of the instruction at each of these places -> the place's own index."""
    count = 0
    numbers = []
    for item in items:
        numbers.append(count)
        count += isinstance(item, Instr)
    return {numbers[place]: index for index, place in enumerate(places)}


@cached_by_code(maxsize=1024)
def resume_code(code: CodeType, index: int, layout: Layout) -> CodeType:
    """The code from ``index`` on; parameters as ``layout`` says, its cells as free variables."""
    body, places = _body(code, layout)
    target = Label()
    prologue = _prologue(code, layout)
    prologue.append(Instr("JUMP_FORWARD", target))
    numbers = {len(prologue) + number: at for number, at in _numbers(body, places).items()}
    body.insert(places[index], target)
    made = _assemble(code, layout, prologue + body, generator=False, extra=())
    if config.verify:
        _verify_numbers(code, made, numbers)
    weakref.finalize(made, _origins.pop, id(made), None).atexit = False
    _origins[id(made)] = (code, numbers)
    return made


def _verify_numbers(code: CodeType, made: CodeType, numbers: dict[int, int]) -> None:
    """Are these the same instructions? Raises ``CaptureError``."""
    own, there = decode(code).instrs, decode(made).instrs
    for number, at in numbers.items():
        op = own[at].op
        if there[number].op not in ("NOP", op, *FAST_PARTS.get(op, ())[:1]):
            raise CaptureError(f"{op} of {code.co_qualname} became {there[number].op} in its resume function")


@cached_by_code(maxsize=256)
def generator_code(code: CodeType, index: int, layout: Layout, waiting: bool) -> CodeType:
    """A generator that starts at ``index``; ``waiting``: that is a ``yield``, to which the first ``next`` goes."""
    body, places = _body(code, layout)
    target = Label()
    prologue = _prologue(code, layout, generator=True)
    if waiting:
        prologue.append(Instr("LOAD_CONST", None))  # type: ignore[arg-type] # any constant
    prologue.append(Instr("JUMP_FORWARD", target))
    body.insert(places[index], target)
    return _assemble(code, layout, prologue + body, generator=True, extra=())


@cached_by_code(maxsize=1024)
def step_code(
    code: CodeType,
    index: int,
    layout: Layout,
    leave: tuple[tuple[Exit, Layout, int | None], ...],
    how: str,
    kwnames: tuple[str, ...],
) -> CodeType:
    """Run one instruction natively.

    ``leave`` holds, for each exit, the layout there and the position of its resume point among the extra parameters
    ``_point0``, ``_point1``...; None where the rest of the frame runs natively too (``quiet_rest``). ``how`` is
    ``native`` for the instruction itself; for a caller in the chain it is ``push``, ``drop`` or ``instance``: call
    ``_thunk()`` in its place and treat the value so.
    """
    body, places = _body(code, layout)
    rests = {exit_.index: _copied(body, places, quiet_rest(code, exit_.index)) for exit_, _, _ in leave}
    decoded = decode(code).instrs[index]
    at = places[index]
    target = Label()
    landing: dict[bool, Label] = {e.jumped: Label() for e, _, _ in leave}
    original = body[at]
    assert isinstance(original, Instr)
    replaced = _replacement(original, decoded, how, landing.get(True))
    # The original stays in place: a handler that runs natively may loop back to it.
    over = Label()
    tail: list[Any] = [Instr("JUMP_FORWARD", over, location=original.location), target, *replaced]
    if False in landing:
        tail.append(Instr("JUMP_FORWARD", landing[False], location=original.location))
    if isinstance(before := body[at - 1], Instr) and before.name == "PRECALL":
        at -= 1  # which, specialised, calls and skips what comes next
    body[at:at] = [*tail, over]
    prologue = _prologue(code, layout, placeholder=_operands(decoded, how))
    if how == "native" and kwnames and not PY313:
        prologue.append(Instr("KW_NAMES", kwnames))  # type: ignore[arg-type] # a constant
    prologue.append(Instr("JUMP_FORWARD", target))
    for exit_, there, point in leave:
        body.append(landing[exit_.jumped])
        if exit_.jumped and decoded.op == "FOR_ITER" and PY312:
            body += [Instr("END_FOR"), Instr("POP_TOP")][: 2 if PY313 else 1]
        if point is None:
            body += rests[exit_.index]
        else:
            body += _leave(code, exit_, there, point, callable_load=is_callable_load(decoded) and not exit_.jumped)
    points = tuple(f"_point{i}" for _, _, i in leave if i is not None)
    extra = (*points, *(() if how == "native" else ("_thunk", "_instance")))
    room = max((_room(code, there) for _, there, point in leave if point is not None), default=0)
    return _assemble(code, layout, prologue + body, generator=False, extra=extra, room=room)


def _copied(body: list[Any], places: list[int], rest: range | None) -> list[Any]:
    """Copies of the body's instructions at these indices."""
    ends = [*places[1:], len(body)]
    return [item.copy() for at in rest or () for item in body[places[at] : ends[at]] if isinstance(item, Instr)]


def _operands(instr: Any, how: str) -> int:
    """Stack slots on top that the native instruction itself uses (and so must be real, NULLs included)."""
    return pops(instr)[0] if how == "native" else 0


def _body(code: CodeType, layout: Layout) -> tuple[list[Any], list[int]]:
    """The instructions with this layout's cells as free variables, and each instruction's place in the list."""
    bytecode = Bytecode.from_code(code)
    free = set(layout.cells)
    body: list[Any] = []
    places: list[int] = []
    item: Any
    for item in bytecode:
        if isinstance(item, (Label, TryBegin, TryEnd, SetLineno)):
            body.append(item)
            continue
        places.append(len(body))
        if item.name in ("COPY_FREE_VARS", "RETURN_GENERATOR") or (
            item.name == "MAKE_CELL" and str(item.arg.name) in free
        ):
            item = Instr("NOP", location=item.location)
        elif isinstance(item.arg, CellVar) and item.arg.name in free:
            item = Instr(item.name, FreeVar(item.arg.name), location=item.location)
        elif item.name in FAST_PARTS and (isinstance(item.arg, tuple) or free.intersection(_fast_names(item))):
            if PY312 and not PY313:  # bytecode writes free variables' slots from 3.13 on
                raise GiveUp("a comprehension reuses the name of a variable that a closure shares")
            body += _fast_parts(item, free)
            continue
        body.append(item)
    set_depths(code, body, places)
    return body, places


# From 3.12 on, fast instructions also reach a parameter's cell by its slot; bytecode shows the plain name. Those of
# 3.13 for two variables reach the first 16 only, and a variable's number in the made code may be another.
FAST_PARTS = {
    "LOAD_FAST": ("LOAD_FAST",),
    "LOAD_FAST_CHECK": ("LOAD_FAST",),
    "STORE_FAST": ("STORE_FAST",),
    "LOAD_FAST_AND_CLEAR": ("LOAD_FAST_AND_CLEAR",),
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
}


def _fast_names(item: Any) -> tuple[str, ...]:
    names = item.arg if isinstance(item.arg, tuple) else (item.arg,)
    return tuple(n if isinstance(n, str) else n.name for n in names)


def _fast_parts(item: Any, free: set[str]) -> list[Any]:
    """A fast instruction (a double one as two) with the slots of these cells as free variables."""
    parts = zip(FAST_PARTS[item.name], _fast_names(item), strict=True)
    return [Instr(op, FreeVar(n) if n in free else n, location=item.location) for op, n in parts]


def set_depths(code: CodeType, body: list[Any], places: list[int]) -> None:
    """Give each protected region the stack depth that its handler had: ``Bytecode`` does not keep it."""
    depths = {h.target: h.depth for h in decode(code).handlers if h is not None}
    at_label: dict[int, int] = {}
    for index, place in enumerate(places):
        back = place - 1
        while back >= 0 and not isinstance(body[back], Instr):
            if isinstance(body[back], Label):
                at_label[id(body[back])] = index
            back -= 1
    for item in body:
        if isinstance(item, TryBegin):
            item.stack_depth = depths[at_label[id(item.target)]]


def _prologue(code: CodeType, layout: Layout, generator: bool = False, placeholder: int | None = None) -> list[Any]:
    free = (*layout.cells, *code.co_freevars)
    out: list[Any] = [Instr("COPY_FREE_VARS", len(free))] if free else []
    if generator:
        out += [Instr("RETURN_GENERATOR"), Instr("POP_TOP")]
    out.append(Instr("RESUME", 0))
    count = 0
    size = len(layout.stack)
    for i, kind in enumerate(layout.stack):
        if kind == VALUE:  # the stack alone holds it from here on, as in the user's frame
            out += [Instr("LOAD_FAST", f"_stack{count}"), Instr("DELETE_FAST", f"_stack{count}")]
            count += 1
        elif kind == HANDLING:
            out += [Instr("LOAD_FAST", f"_stack{count}"), Instr("PUSH_EXC_INFO"), Instr("POP_TOP")]
            count += 1
        else:
            real = placeholder is None or i >= size - placeholder
            out.append(Instr("PUSH_NULL") if real else Instr("LOAD_CONST", None))  # type: ignore[arg-type]
    return out


def _replacement(original: Any, decoded: Any, how: str, jump: Label | None) -> list[Any]:
    """What the step function runs in place of the broken instruction."""
    where = original.location
    if how == "native":
        if is_callable_load(decoded):
            if decoded.op == "LOAD_SUPER_ATTR":
                super_, cls, name = False, original.arg[1], original.arg[2]
                return [Instr("LOAD_SUPER_ATTR", (super_, cls, name), location=where)]
            name = original.arg if isinstance(original.arg, str) else original.arg[1]
            plain = "LOAD_GLOBAL" if decoded.op == "LOAD_GLOBAL" else "LOAD_ATTR"
            with_flag = plain == "LOAD_GLOBAL" or PY312
            return [Instr(plain, (False, name) if with_flag else name, location=where)]
        if jump is not None:
            return [Instr(original.name.replace("_BACKWARD_", "_FORWARD_"), jump, location=where)]
        return [original.copy()]
    taken, _ = pops(decoded)
    out: list[Any] = [Instr("POP_TOP", location=where) for _ in range(taken)]
    out += [*_load_callee("LOAD_FAST", "_thunk", where), *call(0, where)]
    if how in ("drop", "instance"):
        out.append(Instr("POP_TOP", location=where))
    if how == "instance":
        out.append(Instr("LOAD_FAST", "_instance", location=where))
    return out


def _load_callee(op: str, name: Any, where: Any = None) -> list[Any]:
    load, null = Instr(op, name, location=where), Instr("PUSH_NULL", location=where)
    return [load, null] if PY313 else [null, load]


def call(count: int, where: Any = None) -> list[Any]:
    """Instructions that call with ``count`` positional arguments."""
    call = Instr("CALL", count, location=where)
    return [call] if PY312 else [Instr("PRECALL", count, location=where), call]


def _leave(code: CodeType, exit_: Exit, there: Layout, point: int, callable_load: bool) -> list[Any]:
    """Empty the stack into variables, put back the exception state, return ``point(cells, locals, stack)``."""
    out: list[Any] = []
    kinds = list(exit_.stack)
    if callable_load:
        kinds = [*kinds[:-2], VALUE]
    names: list[str] = []
    i = len(kinds) - 1
    while i >= 0:
        if kinds[i] == EMPTY:
            out.append(Instr("POP_TOP"))
        elif kinds[i] == HANDLING:
            out.append(Instr("POP_EXCEPT"))
            names.append(f"_stack{sum(k != EMPTY for k in kinds[:i])}")
        else:
            names.append(f"_left{i}")
            out.append(Instr("STORE_FAST", names[-1]))
        i -= 1
    out += _load_callee("LOAD_FAST", f"_point{point}")
    cells = (*there.cells, *code.co_freevars)
    out += [Instr("LOAD_FAST" if PY313 else "LOAD_CLOSURE", FreeVar(cell)) for cell in cells]
    out += [Instr("LOAD_FAST", n) for n in there.locals]
    out += [Instr("LOAD_FAST", n) for n in reversed(names)]
    out += call(len(cells) + len(there.locals) + len(names))
    out.append(Instr("RETURN_VALUE"))
    return out


def _room(code: CodeType, there: Layout) -> int:
    """How many stack slots ``_leave`` needs: the stack is empty, then come the callee, its NULL and all arguments."""
    return 2 + len(there.cells) + len(code.co_freevars) + len(there.parameters)


def _assemble(
    code: CodeType, layout: Layout, items: list[Any], generator: bool, extra: tuple[str, ...], room: int = 0
) -> CodeType:
    made = Bytecode(items)
    made.name = code.co_name
    made.qualname = code.co_qualname
    made.filename = code.co_filename
    made.first_lineno = code.co_firstlineno
    made.argnames = [*layout.parameters, *extra]
    made.argcount = len(made.argnames)
    made.freevars = [*layout.cells, *code.co_freevars]
    made.cellvars = [c for c in code.co_cellvars if c not in layout.cells]
    flags = CompilerFlags(code.co_flags)
    flags &= ~(CompilerFlags.VARARGS | CompilerFlags.VARKEYWORDS | CompilerFlags.GENERATOR)
    if generator:
        flags |= CompilerFlags.GENERATOR
    if made.freevars:
        flags |= CompilerFlags.NESTED
    made.flags = flags
    made.docstring = None
    line = code.co_firstlineno
    for item in items:
        if isinstance(item, Instr) and item.lineno is None:
            item.lineno = line
        elif isinstance(item, Instr) and isinstance(item.lineno, int):
            line = item.lineno
    size = max(code.co_stacksize + len(layout.stack) + len(layout.parameters) + 8, room)
    return made.to_code(stacksize=size, compute_exception_stack_depths=False)
