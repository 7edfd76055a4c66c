"""Logger calls: nothing where the level is off, a break where they write, and later where a helper writes them once.

A cached helper (``logger.warning_once``) decides by itself whether it writes, and capture cannot ask it. Its call waits
for the graph, like a pending write, if nobody can tell the difference: all that it does is to write text to streams.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import ATOMS
from jitney.capture.tables import FunctionTable
from jitney.capture.world.log_handlers import LEVELS, LOGGERS, WritesText, handlers_of
from jitney.capture.world.record import LogCall

if TYPE_CHECKING:
    from jitney.capture.codegen.rebuild import Rebuilder
    from jitney.capture.interpreter.interpreter import Interpreter
    from jitney.guards import Source

special = FunctionTable()

# The instructions of a helper that calls a logger and does nothing else.
STRAIGHT = frozenset(
    {"RESUME", "NOP", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_CONST", "LOAD_ATTR", "LOAD_METHOD",
     "PUSH_NULL", "PRECALL", "CALL", "CALL_FUNCTION_EX", "BUILD_MAP", "DICT_MERGE", "BUILD_LIST", "LIST_EXTEND",
     "BUILD_TUPLE", "LIST_TO_TUPLE", "CALL_INTRINSIC_1", "POP_TOP", "RETURN_VALUE", "RETURN_CONST"}
)  # fmt: skip
CACHED = type(functools.lru_cache(lambda: None))


# ------------------------------------------------------------------ the calls


def logger_call(method: str, level: int) -> Callable[[Interpreter, list[Any], dict[str, Any]], Any]:
    """A ``logging.Logger`` method: nothing where the level is off (guarded), a break where it prints."""

    def call(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> None:
        if vm.in_helper:
            _check_call(method, args, kwargs)
            return
        logger = args[0]
        at = level if level >= 0 else int(args[1])
        if type(logger).isEnabledFor is logging.Logger.isEnabledFor and not logger.isEnabledFor(at):
            source = vm.world.anchor(logger).source
            vm.world.guard(source, "true", f"not {{v}}.isEnabledFor({at})")
            vm.log_calls.append(LogCall(logger, vm.break_step(), None))
            return
        raise Break(f"logging: Logger.{method} writes", "log outside the compiled function")

    return call


def _check_call(method: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Break unless the call of a logger's method can wait: one that fails prints the stack."""
    texts = args[2:] if method == "log" else args[1:]
    if kwargs or not texts or (method == "log" and type(args[1]) is not int):
        raise Break(f"logging: Logger.{method} with more than a text", "log outside the compiled function")
    try:
        str(texts[0]) % tuple(texts[1:]) if texts[1:] else None
    except Exception:
        raise Break(f"logging: Logger.{method} with a text that cannot be formatted") from None


for _name, _level in LEVELS.items():
    special.add(getattr(logging.Logger, _name), logger_call(_name, _level))


# ------------------------------------------------------------------ cached helpers


def only_logs(fn: Any) -> bool:
    """Is this ``functools.lru_cache`` of a function that calls a logger and does nothing else?"""
    inner = getattr(fn, "__wrapped__", None)
    if type(fn) is not CACHED or type(inner) is not types.FunctionType:
        return False
    code = inner.__code__
    return code.co_names != () and LEVELS.keys() >= {*code.co_names} and {i.op for i in decode(code).instrs} <= STRAIGHT


def call_later(vm: Interpreter, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """The call of a cached helper waits. Its function is interpreted, to learn that it would not raise."""
    logger: Any = args[0] if args else None
    if kwargs or type(logger) not in LOGGERS or not all(type(v) in ATOMS for v in args[1:]):
        raise Break(f"call of the cached function {fn.__qualname__} with more than a logger and plain values")
    writes_text, record = WritesText(logger), vm.world.record_of(logger)
    if record is None or not writes_text():
        raise Break(f"{fn.__qualname__} runs handlers that may do anything", "log outside the compiled function")
    step = vm.break_step()
    vm.in_helper = True
    try:
        result = vm.call(fn.__wrapped__, *args)
    finally:
        vm.in_helper = False
    if result is not None:
        raise Break(f"call of the cached function {fn.__qualname__}")
    _guard_identity(vm, logger, record.source)
    _guard_identity(vm, fn, vm.world.anchor(fn).source)
    name = fn.__name__
    if vars(logging.Logger).get(name) is fn:  # added to a class whose attributes are not guarded
        vm.world.guard(vm.world.const(logging.Logger).step("class_dict", name), "is", fn)
    if not any(c.logger is logger and c.waiting for c in vm.log_calls):
        vm.world.guard(vm.world.const(writes_text), "true", "{v}()")
    vm.log_calls.append(LogCall(logger, step, (fn, tuple(args))))


def _guard_identity(vm: Interpreter, value: Any, source: Source) -> None:
    if not source.is_const:
        vm.world.guard(source, "is", value)


def waiting_calls(vm: Interpreter, rebuild: Rebuilder) -> Iterator[str]:
    """The text of the calls that have waited, in order. A restart where the frame itself changes how logging works."""
    for made in vm.log_calls:
        watched = {id(part) for part in _parts(made.logger)}
        for record in vm.world.records.values():
            if record.dirty and id(record.value) in watched:
                raise Restart(made.step, "logging is changed by the frame that logs", "set it up outside compiled code")
        if made.waiting is not None:
            fn, values = made.waiting
            yield f"{rebuild.expr(fn)}({rebuild.each(values)})"


def _parts(logger: logging.Logger) -> Iterator[Any]:
    """Everything that a call of this logger looks at."""
    yield from (sys, vars(sys), logging, vars(logging), logging.root, vars(logging.root))
    at: logging.Logger | None = logger
    while at is not None:
        yield from (at, vars(at), at.handlers, at.filters, at.manager, vars(at.manager))
        at = at.parent
    for handler in handlers_of(logger):
        yield from (handler, vars(handler), handler.filters)
        if handler.formatter is not None:
            yield from (handler.formatter, vars(handler.formatter))
