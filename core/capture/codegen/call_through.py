"""Call-through: code that must run in Python as it is, rewritten so that each call site goes through the compiler.

Before each call the rewritten code swaps the callee on its stack for what ``CallThrough`` answers: a dispatcher for a
function worth compiling, a library's wrapper of one rewritten likewise, the callee itself for anything else. The call
instruction stays the user's own, in the user's own frame: ``super()``, ``locals()``, ``sys._getframe()``, warnings and
tracebacks see what they always see.
"""

from __future__ import annotations

import dis
import functools
import weakref
from collections import Counter
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from bytecode import Bytecode, Instr, Label, SetLineno, TryBegin, TryEnd

from jitney._util.code_cache import cached_by_code
from jitney._util.ownership import trusted
from jitney.capture import policy
from jitney.capture.interpreter.code import ENDS, CodeInfo, decode
from jitney.capture.interpreter.code import Instr as Decoded
from jitney.capture.interpreter.resume import PY312, PY313, call, is_callable_load, set_depths
from jitney.capture.marks import SUSPENDS, frame_only, is_allowed, is_disabled
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import devices

COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
CALLS = {"CALL": 2, "CALL_KW": 3}  # slots besides the arguments: callee, NULL, keyword names
COMPILED_LIBRARY = "torch.nn.modules"  # a library's code that is compiled like the user's
MAX_MODULES = 256  # modules of one class compiled on their own: a program may make new ones for ever
NOT_FRAMES = (BuiltinFunctionType, type)


class _Mark:
    """Stands in rewritten code for the session's ``CallThrough``."""


MARK: Any = _Mark()


# ------------------------------------------------------------------ the rewritten code


@cached_by_code(maxsize=1024)
def through_code(code: CodeType) -> CodeType:
    """The code with ``MARK`` called on each callee before its call, comprehensions included; the same where none is."""
    bytecode = Bytecode.from_code(code)
    items: list[Any] = list(bytecode)
    places = [i for i, item in enumerate(items) if not isinstance(item, (Label, TryBegin, TryEnd, SetLineno))]
    set_depths(code, items, places)
    sites = _call_sites(decode(code))
    for index, instr in reversed(list(enumerate(decode(code).instrs))):
        place = places[index]
        if not PY313 and is_callable_load(instr) and instr.op != "LOAD_GLOBAL":
            items[place : place + 1] = _plain_load(items[place])
        elif isinstance(items[place].arg, CodeType) and items[place].arg.co_name in COMPREHENSIONS:
            items[place].arg = through_code(items[place].arg)
        if index in sites:
            items[place:place] = _swap_callee(sites[index], items[place].location)
    bytecode[:] = items
    bytecode.argnames = list(code.co_varnames)  # every variable in its place: locals() lists them in this order
    made = bytecode.to_code(stacksize=code.co_stacksize + 2, compute_exception_stack_depths=False)
    kept = made.co_varnames == code.co_varnames and made.co_cellvars == code.co_cellvars
    return made if kept and made.co_freevars == code.co_freevars else code


def _swap_callee(position: int, where: Any) -> list[Any]:
    """Replace the callee, ``position`` slots from the top (the topmost is 1), by what ``MARK`` makes of it."""
    exchange = [Instr("SWAP", position, location=where)] if position > 1 else []
    ask = [Instr("LOAD_CONST", MARK, location=where), Instr("SWAP", 2, location=where), *call(0, where)]
    return [*exchange, *ask, *[item.copy() for item in exchange]]


def _plain_load(load: Instr) -> list[Any]:
    """Instead of a method and its object, NULL and the bound method: the callee's slot is then known (3.11, 3.12)."""
    where, arg = load.location, load.arg
    if load.name == "LOAD_SUPER_ATTR":
        plain = Instr(load.name, (False, *arg[1:]), location=where)  # type: ignore[index]
    else:
        plain = Instr("LOAD_ATTR", (False, arg[1]) if PY312 else arg, location=where)  # type: ignore[index,arg-type]
    return [plain, Instr("PUSH_NULL", location=where), Instr("SWAP", 2, location=where)]


def _call_sites(info: CodeInfo) -> dict[int, int]:
    """Where each call begins (its keyword names may come before it) -> how deep in the stack the callee is.

    Calls whose callee was not loaded as one are left alone: decorators, ``assert``, the end of a ``with``, the call
    of a comprehension (whose code is rewritten).
    """
    sites: dict[int, int] = {}
    for index, state in enumerate(_flow(info)):
        instr = info.instrs[index]
        if state is None:
            continue
        if instr.op == "CALL_FUNCTION_EX":
            sites[index] = 2 + (instr.arg & 1) + PY313
        elif instr.op in CALLS:
            depth, pairs = state
            slots = instr.arg + CALLS[instr.op]
            if depth - slots in pairs:
                sites[_beginning(info, index)] = slots if PY313 else slots - 1
    return sites


def _beginning(info: CodeInfo, index: int) -> int:
    for before in ("PRECALL", "KW_NAMES"):
        if info.instrs[index - 1].op == before:
            index -= 1
    return index


# The stack before an instruction: its depth, and the slots of callees that have their NULL (or object) beside them.
State = tuple[int, frozenset[int]]


def _flow(info: CodeInfo) -> list[State | None]:
    """The stack before each instruction, None for unreachable ones; where ways meet, what holds on all of them."""
    states: list[State | None] = [None] * len(info.instrs)
    work: list[tuple[int, State]] = [(0, (0, frozenset()))]
    while work:
        at, new = work.pop()
        old = states[at]
        if old is not None:
            new = (new[0], new[1] & old[1])
        if new == old:
            continue
        states[at] = new
        instr, handler = info.instrs[at], info.handlers[at]
        if instr.op not in ENDS:
            work.append((at + 1, _after(instr, new, False)))
        if instr.target != -1:
            work.append((instr.target, _after(instr, new, True)))
        if handler is not None:
            inside = frozenset(p for p in new[1] if p < handler.depth)
            work.append((handler.target, (handler.depth + handler.lasti + 1, inside)))
    return states


def _after(instr: Decoded, state: State, jump: bool) -> State:
    """The stack after an instruction."""
    depth, pairs = state
    if instr.op in CALLS:
        depth -= instr.arg + CALLS[instr.op] - 1
        return depth, frozenset(p for p in pairs if p < depth - 1)
    if instr.op == "CALL_FUNCTION_EX":
        depth -= 2 + (instr.arg & 1)
        return depth, frozenset(p for p in pairs if p < depth - 1)
    depth += _effect(instr, jump)
    pairs = frozenset(p for p in pairs if p < depth)
    if is_callable_load(instr) or (instr.op == "PUSH_NULL" and PY313):
        pairs |= {depth - 2}
    elif instr.op == "PUSH_NULL":
        pairs |= {depth - 1}
    return depth, pairs


def _effect(instr: Decoded, jump: bool) -> int:
    if instr.op == "PRECALL":  # counted with its CALL
        return 0
    if instr.op == "RETURN_GENERATOR":
        return 1
    opcode = dis.opmap[instr.op]
    return dis.stack_effect(opcode, instr.arg if opcode >= dis.HAVE_ARGUMENT else None, jump=jump)


class _Session:
    """The session's ``CallThrough``, for constants of code: the garbage collector does not see what these refer to."""

    def __init__(self, through: CallThrough) -> None:
        self._through = weakref.ref(through)

    def __call__(self, callee: Any) -> Any:
        """What to call instead of the callee: itself where the session has gone, and a generator of its lives on."""
        through = self._through()
        return callee if through is None else through(callee)


def _bind(code: CodeType, session: _Session) -> CodeType:
    """Rewritten code that asks this session's ``CallThrough``."""
    consts = []
    for const in code.co_consts:
        if const is MARK:
            const = session
        elif isinstance(const, CodeType) and const.co_name in COMPREHENSIONS:
            const = _bind(const, session)
        consts.append(const)
    return code.replace(co_consts=tuple(consts))


# ------------------------------------------------------------------ who is called


class CallThrough:
    """What to call instead of a callee. One for each session; ``make`` turns a function into a dispatcher."""

    def __init__(self, make: Callable[[FunctionType, CodeType | None], Any]) -> None:
        self._make = make
        self._codes: dict[tuple[CodeType, str], CodeType] = {}
        self._functions: dict[tuple[CodeType, str], Any] = {}
        self._modules: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._counts: Counter[type] = Counter()

    def __call__(self, callee: Any) -> Any:
        """The callee itself, or what compiles it; called as the callee is."""
        kind = type(callee)
        if kind in NOT_FRAMES or devices() is None or torch_private.dispatch_mode_depth():
            return callee
        if kind is FunctionType:
            return self._function(callee)
        if kind is MethodType:
            made = self(callee.__func__) if type(callee.__func__) is FunctionType else callee.__func__
            return callee if made is callee.__func__ else MethodType(made, callee.__self__)
        if kind is functools.partial:
            made = self(callee.func)
            return callee if made is callee.func else functools.partial(made, *callee.args, **callee.keywords)
        if issubclass(kind, torch.nn.Module):
            return self._module(callee)
        method: Any = getattr(kind, "__call__", None)  # noqa: B004 (the method itself is wanted)
        made = self._function(method) if type(method) is FunctionType else method
        return callee if made is method else MethodType(made, callee)

    def native(self, callee: Any) -> Any:
        """The callee, its own frame run in Python, its calls going through here."""
        original = frame_only(callee)
        if original is not None:
            return self.native(original)
        if is_disabled(callee):
            return callee
        if isinstance(callee, torch.nn.Module):
            callee = MethodType(type(callee).__call__, callee)
        if type(callee) is MethodType and type(callee.__func__) is FunctionType:
            return MethodType(self.native(callee.__func__), callee.__self__)
        return self._rewritten(callee) if type(callee) is FunctionType else callee

    def forget(self) -> None:
        """Drop everything compiled."""
        for root in (*self._functions.values(), *(root for _, root in self._modules.values())):
            root.forget()
        self._functions.clear()
        self._modules.clear()
        self._counts.clear()

    def code(self, code: CodeType) -> CodeType:
        """The rewritten code, asking here."""
        key = (code, code.co_filename)  # codes of two files may be equal
        found = self._codes.get(key)
        if found is None:
            found = _bind(through_code(code), _Session(self)).replace(co_filename=code.co_filename)
            self._codes[key] = found
        return found

    def _rewritten(self, fn: FunctionType) -> FunctionType:
        made = FunctionType(self.code(fn.__code__), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        made.__kwdefaults__ = fn.__kwdefaults__
        made.__qualname__ = fn.__qualname__
        return made

    def _function(self, fn: FunctionType) -> Any:
        if frame_only(fn) is not None:
            return self.native(fn)
        if not _worth_compiling(fn):
            return self._rewritten(fn) if _wraps(fn) else fn
        if fn.__code__.co_flags & SUSPENDS:
            return self._rewritten(fn)
        key = (fn.__code__, fn.__code__.co_filename)
        root = self._functions.get(key)
        if root is None:
            root = self._functions[key] = self._make(_named(fn.__code__.co_name), fn.__code__)
        made = functools.partial(root, fn)
        made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__  # type: ignore[attr-defined] # for TypeErrors
        return made

    def _module(self, module: Any) -> Any:
        kind, key = type(module), id(module)
        if getattr(kind, "_jitney_is_compiled", False) or is_disabled(module):
            return module
        found = self._modules.get(key)
        if found is None or found[0]() is not module:
            if self._counts[kind] >= MAX_MODULES:
                return module
            self._counts[kind] += 1
            alive = weakref.ref(module, lambda _: self._modules.pop(key, None))
            found = self._modules[key] = (alive, self._make(_named(kind.__name__), None))
        return functools.partial(found[1], module)


def _call(callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    return callee(*args, **kwargs)


def _named(name: str) -> FunctionType:
    """``_call`` under the callee's name: the callee is an argument of what is compiled, so no cache keeps it alive."""
    return FunctionType(_call.__code__.replace(co_name=name, co_qualname=name), globals(), name)


def _worth_compiling(fn: FunctionType) -> bool:
    if trusted(fn.__globals__) and not _module_of(fn).startswith(COMPILED_LIBRARY):
        return False
    return not _stays_as_it_is(fn)


def _wraps(fn: FunctionType) -> bool:
    """Is it a library's wrapper, as ``torch.no_grad`` and ``contextlib`` make them, of a function worth compiling?"""
    if fn.__closure__ is None or fn.__code__.co_flags & SUSPENDS or _stays_as_it_is(fn):
        return False
    wrapped: Any = getattr(fn, "__wrapped__", None)
    return type(wrapped) is FunctionType and (_worth_compiling(wrapped) or _wraps(wrapped))


def _stays_as_it_is(fn: FunctionType) -> bool:
    return bool(is_disabled(fn) or is_allowed(fn) or policy.refused(_module_of(fn), fn.__code__.co_qualname))


def _module_of(fn: FunctionType) -> str:
    """Where it was written: a decorator may have copied ``__module__``, and ``__qualname__``, which code has, too."""
    return str(fn.__globals__.get("__name__", ""))
