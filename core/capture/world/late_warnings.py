"""``warnings`` in captured code: what is warned waits for the graph, and so does what filters it.

A warning's place is known, that it is no exception is guarded, and filters decide when it is due. ``catch_warnings``
and the filters that are set in its block are repeated where the warnings are given, in the order of the program. While
the block is captured, no operation may warn: the graph that repeats it runs outside the block.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.resume import origin
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.python.c_boundary import specialise
from jitney.capture.tables import Args, FunctionTable, Handler, Kwargs

if TYPE_CHECKING:
    from jitney.capture.codegen.rebuild import Rebuilder
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

SETTERS = (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
HINT = "warn outside the compiled function"


class Late(Protocol):
    """Something about warnings that is done once the graph has run."""

    def text(self, rebuild: Rebuilder) -> str:
        """The line that does it."""


# ------------------------------------------------------------------ warnings


@dataclass
class LateWarning:
    """A warning from a place in the program, in the module of that name."""

    message: str
    category: type[Warning]
    filename: str
    lineno: int
    module: str

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        return ["call", f"{__name__}:LateWarning", [writer.ref(part) for part in astuple(self)]]

    def __call__(self) -> bool:
        """Do the filters of now not make an exception of it? Asked as ``warnings.warn_explicit`` does."""
        return self.action(warnings.filters) != "error"

    def action(self, filters: Any) -> str | None:
        """What the first of these filters that matches says."""
        for action, text, category, module, line in filters:
            named = _matches(text, self.message) and _matches(module, self.module)
            if named and issubclass(self.category, category) and line in (0, self.lineno):
                return str(action)
        return None

    def warn(self) -> None:
        """Give the warning, as if from its place."""
        registry = vars(sys.modules[self.module]).setdefault("__warningregistry__", {})
        warnings.warn_explicit(self.message, self.category, self.filename, self.lineno, self.module, registry)


@dataclass
class WarningCall:
    """The warning that an instruction gives."""

    warning: LateWarning
    step: int

    def text(self, rebuild: Rebuilder) -> str:
        """The line that gives it."""
        return f"{rebuild.pool.object(self.warning)}.warn()"


def log_of_warnings() -> Any:
    """The list of a ``catch_warnings(record=True)`` that is entered; None outside one."""
    return getattr(getattr(warnings, "_showwarnmsg_impl", None), "__self__", None)


def logs_warnings(value: Any) -> bool:
    """Is it that list?"""
    return value is log_of_warnings()


def are_logged() -> bool:
    """Does such a list get the warnings of now?"""
    return log_of_warnings() is not None


def _matches(pattern: Any, text: str) -> bool:
    return pattern is None or (pattern == text if isinstance(pattern, str) else pattern.match(text) is not None)


@special(warnings.warn)
def _warn(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    named = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    text, category = specialise(named.pop("message", None)), named.pop("category", None) or UserWarning
    depth = specialise(named.pop("stacklevel", 1))
    if type(text) is not str or not isinstance(category, type) or any(v is not None for v in named.values()):
        raise Break("a warning of more than a text and a class", HINT)
    frames = vm.frames[-max(depth, 1) :]
    if len(frames) < depth or any(f.name == "forward" for f in frames[1:]):  # torch's frames are not among ours
        raise Break("a warning that names the caller of compiled code", HINT)
    code, at = origin(frames[0].info.code, frames[0].at)
    module = str(frames[0].globals.get("__name__"))
    warning = LateWarning(text, category, code.co_filename, decode(code).instrs[at].line or 0, module)
    own = warning.action(reversed([f for block in vm.filter_blocks for f in block.filters]))
    if vars(sys.modules.get(module, sys)) is not frames[0].globals or ((own or "error") == "error" and not warning()):
        raise Break("a warning that is an exception here", HINT)
    if own is None:
        vm.world.guard(vm.world.const(warning), "true", "{v}()")
    vm.warned.append(WarningCall(warning, vm.break_step()))


# ------------------------------------------------------------------ filters


@dataclass
class Block:
    """A ``with warnings.catch_warnings()`` that the captured program is in.

    Args:
        manager: the program's own, made by the frame, which is entered once the graph has run.
        step: where it was entered.
        filters: those set in it, the latest last; none makes an exception of a warning.
    """

    manager: Any
    step: int
    filters: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._apart = warnings.catch_warnings(record=True)
        self._seen: Any = self._apart.__enter__()
        warnings.simplefilter("always")

    def check(self) -> None:
        """Capture again with a break before the block if an operation in it has warned."""
        if self._seen:
            text = str(self._seen[0].message).partition("\n")[0]
            raise Restart(self.step, f"an operation warns in a block that filters warnings: {text}", HINT)

    def close(self) -> None:
        """Give back what is done with warnings outside the block."""
        self._apart.__exit__(None, None, None)


@dataclass
class Entered:
    """The beginning of a block."""

    block: Block

    def text(self, rebuild: Rebuilder) -> str:
        """The line that enters it."""
        return f"{rebuild.expr(self.block.manager)}.__enter__()"


@dataclass
class Left:
    """The end of a block."""

    block: Block

    def text(self, rebuild: Rebuilder) -> str:
        """The line that leaves it."""
        return f"{rebuild.expr(self.block.manager)}.__exit__(None, None, None)"


@dataclass
class Filtered:
    """A call that sets filters."""

    function: Any
    args: Args
    kwargs: Kwargs

    def text(self, rebuild: Rebuilder) -> str:
        """The line that sets them."""
        named = "".join(f"{name}={rebuild.expr(value)}, " for name, value in self.kwargs.items())
        return f"{rebuild.constant(self.function)}({rebuild.each(self.args)}{named})"


def lines(vm: Interpreter, rebuild: Rebuilder) -> list[str]:
    """What emitted code does once the graph has run."""
    for block in vm.filter_blocks:
        block.check()
    if any(type(late) is Entered for late in vm.warned):
        _refuse_changes(vm)
    if given := [late for late in vm.warned if type(late) is WarningCall]:
        _refuse_own_log(vm, given[0].step)
    return [late.text(rebuild) for late in vm.warned]


def _refuse_changes(vm: Interpreter) -> None:
    """Capture again with a break before the first block if the frame looks at, or changes, how warnings are given."""
    step = next(late.block.step for late in vm.warned if type(late) is Entered)
    for record in vm.world.records.values():
        if record.value is warnings.filters or (record.dirty and record.value in (warnings, vars(warnings))):
            raise Restart(step, "warnings are set up in a block of warnings.catch_warnings()", "set them up outside")


def _refuse_own_log(vm: Interpreter, step: int) -> None:
    """Capture again with a break before a warning if the frame knows the list that it is appended to."""
    logged = are_logged()
    vm.world.guard(vm.world.const(are_logged), "true", f"{{v}}() is {logged}")
    for record in list(vm.world.records.values()) if logged else ():
        if type(record.value) is list and not record.source.is_const:
            if logs_warnings(record.value):
                raise Restart(step, "a warning is kept in a list that the compiled function has", HINT)
            vm.world.guard(record.source, "answers", (logs_warnings, False))


def close(vm: Interpreter) -> None:
    """Leave the blocks that the captured program is still in."""
    while vm.filter_blocks:
        vm.filter_blocks.pop().close()


@special(warnings.catch_warnings.__enter__)
def _enter(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    (manager,) = args
    if type(manager) is not warnings.catch_warnings or not vm.world.is_fresh(manager):
        raise Break("a warnings.catch_warnings from outside is entered")
    state = vars(manager)
    plain = state["_record"] is False and state["_module"] is warnings
    if not plain or any(getattr(late, "block", None) and late.block.manager is manager for late in vm.warned):
        raise Break("warnings.catch_warnings() keeps the warnings", HINT)
    vm.filter_blocks.append(Block(manager, vm.break_step()))
    vm.warned.append(Entered(vm.filter_blocks[-1]))
    if state["_filter"] is not None:
        _set(vm, warnings.simplefilter, [*state["_filter"]], {})
        vm.warned.pop()  # it does so by itself


@special(warnings.catch_warnings.__exit__)
def _exit(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    if not vm.filter_blocks or vm.filter_blocks[-1].manager is not args[0]:
        raise Break("a warnings.catch_warnings that was entered outside is left")
    vm.filter_blocks[-1].check()
    block = vm.filter_blocks.pop()
    block.close()
    vm.warned.append(Left(block))


def _setter(function: Any) -> Handler:
    return lambda vm, args, kwargs: _set(vm, function, args, kwargs)


def _set(vm: Interpreter, function: Any, args: Args, kwargs: Kwargs) -> None:
    """Set a filter in the innermost block; it is set for real, too, so that what it refuses is refused."""
    if not vm.filter_blocks:
        raise Break(f"warnings.{function.__name__}() changes how warnings are given", "call it outside compiled code")
    block = vm.filter_blocks[-1]
    args, kwargs = list(map(specialise, args)), {name: specialise(value) for name, value in kwargs.items()}
    if any(not isinstance(value, (str, int, type)) for value in (*args, *kwargs.values())):
        raise Break(f"warnings.{function.__name__}() with more than texts and classes")
    append = kwargs.get("append", args[3 if function is warnings.simplefilter else 5 :])
    if function is warnings.resetwarnings or append not in ([], [False], False):
        raise Break(f"warnings.{function.__name__}() takes filters away, or adds one that comes last")
    block.check()
    vm.native(function, *args, **kwargs)
    latest = warnings.filters[0]
    warnings.simplefilter("always")  # what operations warn is seen all the same
    if latest[0] == "error":
        raise Break(f"warnings.{function.__name__}() makes exceptions of warnings", "set it outside compiled code")
    block.filters.append(latest)
    vm.warned.append(Filtered(function, args, kwargs))


for _function in SETTERS:
    special(_function)(_setter(_function))
