"""Plain values as JSON, and back, and pickled: by the standard library's C code, of values that guards describe."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.python.c_boundary import held, specialise
from jitney.capture.tables import FunctionTable
from jitney.capture.torch.symbols import SYMBOLIC

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

DEEPEST = 50  # containers in each other
IN_JSON = (type(None), bool, int, float, str)
IN_PICKLE = (*IN_JSON, complex, bytes)
JSON_HINT = "call it outside compiled code"


@special(json.dumps)
def _dumps(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> str:
    """The text of values that guards describe, written by C code as eager writes it."""
    plain = {name: specialise(value) for name, value in kwargs.items()}
    if len(args) != 1 or not all(type(value) in (*IN_JSON, tuple) for value in plain.values()):
        raise Break("json.dumps() with functions or classes", JSON_HINT)
    value = _in_json(vm, args[0], DEEPEST)
    try:
        return json.dumps(value, **plain)
    except Exception as error:
        raise Break(f"json.dumps() raises {type(error).__name__}", JSON_HINT) from None


@special(json.loads)
def _loads(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The values in a text that is known."""
    if len(args) != 1 or kwargs or type(args[0]) not in (str, bytes):
        raise Break("json.loads() of more than a text", JSON_HINT)
    try:
        made = json.loads(args[0])
    except Exception as error:
        raise Break(f"json.loads() raises {type(error).__name__}", JSON_HINT) from None
    _mark_fresh(vm, made)
    return made


def _in_json(vm: Interpreter, value: Any, depth: int) -> Any:
    value = specialise(value) if type(value) in SYMBOLIC else value
    kind = type(value)
    if kind in IN_JSON:
        return value
    if kind not in (dict, list, tuple) or not depth:
        raise Break(f"json.dumps() of a {kind.__qualname__}", JSON_HINT)
    items = held(vm, value)
    if kind is dict:
        return {_in_json(vm, k, depth - 1): _in_json(vm, v, depth - 1) for k, v in items.items()}
    return [_in_json(vm, item, depth - 1) for item in items]


def _mark_fresh(vm: Interpreter, value: Any) -> None:
    if type(value) in (dict, list):
        vm.world.mark_fresh(value)
        for item in value.values() if type(value) is dict else value:
            _mark_fresh(vm, item)


@special(pickle.dumps)
def _pickled(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> bytes:
    """The bytes of plain values, as caches use them for keys."""
    if len(args) != 1 or kwargs:
        raise Break("pickle.dumps() with a protocol", JSON_HINT)
    return pickle.dumps(_in_pickle(vm, args[0], [], DEEPEST))


def _in_pickle(vm: Interpreter, value: Any, seen: list[Any], depth: int) -> Any:
    """A copy of plain values. What is there twice is written once: whether two equal ones are one is not guarded."""
    value = specialise(value) if type(value) in SYMBOLIC else value
    kind = type(value)
    if kind not in (*IN_PICKLE, dict, list, tuple) or not depth:
        raise Break(f"pickle.dumps() of a {kind.__qualname__}", JSON_HINT)
    if kind in (str, bytes, tuple, dict, list):
        if any(
            other is value or (kind not in (dict, list) and type(other) is kind and other == value) for other in seen
        ):
            raise Break("pickle.dumps() of what is there twice", JSON_HINT)
        seen.append(value)
    if kind in IN_PICKLE:
        return value
    items = held(vm, value)
    if kind is dict:
        return {
            _in_pickle(vm, k, seen, depth - 1): _in_pickle(vm, v, seen, depth - 1) for k, v in items.items()
        }  # fmt: skip
    return kind(_in_pickle(vm, item, seen, depth - 1) for item in items)
