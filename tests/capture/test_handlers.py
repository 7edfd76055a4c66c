"""The one place where the tables of handlers become those of the interpreter; packages register more."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fork_server import run_python
from helpers import observe
from numpy_checks import difference

import jitney
import jitney_numpy
from jitney import config, events
from jitney.backends.identity import identity_of_handlers
from jitney.backends.registry import HANDLERS, Registry
from jitney.capture import handlers as merging
from jitney.capture.handlers import TABLES, handlers
from jitney.capture.interpreter import opcodes
from jitney.capture.tables import UNCAPTURED, FunctionTable, Handlers
from jitney_numpy.calls import ArrayTable

INSTALL = "pip install 'jitney[numpy]'"
X = np.arange(12.0).reshape(3, 4)


def test_no_two_modules_handle_the_same() -> None:
    tables = (*TABLES, *jitney_numpy.TABLES)
    handled = Counter(key for table in tables for key in (*table.functions, *table.codes))
    methods = Counter(name for table in jitney_numpy.TABLES for name in table.methods)
    parts = (opcodes.calling, opcodes.containers, opcodes.control, opcodes.exceptions, opcodes.matching)
    names = Counter(name for part in (*parts, opcodes.variables) for name in part.op.handlers)
    for counts in (handled, methods, names):
        assert [key for key, count in counts.items() if count > 1] == []
    everything = handlers()
    assert handled.keys() <= everything.functions.keys() | everything.codes.keys()  # and ``jitney.compile``, once used
    assert (methods.keys(), names.keys()) == (everything.arrays.methods.keys(), opcodes.HANDLERS.keys())


# ------------------------------------------------------------------ without the package for NumPy


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that finds nobody's handlers."""
    registry = Registry()
    registry._entry_points(HANDLERS)
    monkeypatch.setitem(registry._points, HANDLERS, {})
    monkeypatch.setattr(merging, "registry", registry)
    return registry


PROGRAMS = {
    "an operator": lambda x: (torch.from_numpy(x) + 1, x * 2 + 1),
    "functions": lambda x: np.sum(np.sin(x)),
    "a method": lambda x: x.sum(0),
    "an item": lambda x: x[1:],
    "a length": lambda x: len(x),
    "iteration": lambda x: [row for row in x],
    "of a tensor": lambda x: (torch.ones(3) + 1).numpy(),
    "made": lambda x: torch.ones(3) * float(np.float64(2)) + torch.as_tensor(np.arange(3)),
    "linalg": lambda x: np.linalg.norm(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_are_left_to_numpy_with_a_hint(alone: Registry, name: str) -> None:
    assert handlers().arrays is UNCAPTURED
    seen: list[events.Event] = []
    with events.listen(seen.append):
        found = jitney.compile(PROGRAMS[name], backend="eager")(X)
    want = PROGRAMS[name](X)
    if isinstance(found, tuple):
        assert torch.equal(found[0], want[0]) and difference(found[1], want[1]) == ""
    elif isinstance(found, torch.Tensor):
        assert torch.equal(found, want)
    else:
        assert difference(found, want) == ""
    assert INSTALL in [event.hint for event in seen if isinstance(event, events.GraphBreak)]


def _hints(fn: Callable[..., Any], *args: Any) -> list[str]:
    jitney.reset()
    seen: list[events.Event] = []
    with events.listen(seen.append):
        jitney.compile(fn, backend="eager")(*args)
    return [event.hint for event in seen if isinstance(event, events.GraphBreak)]


def test_the_package_for_numpy_can_be_disabled() -> None:
    before = identity_of_handlers()
    assert _hints(lambda x: x + 1, X) == []
    with config.patch(plugins_disabled="numpy"):
        assert _hints(lambda x: x + 1, X) == [INSTALL]
        assert (identity_of_handlers(), [row[0] for row in before]) == ([], ["numpy"])
        with config.patch(trace_numpy=False):
            assert INSTALL not in _hints(lambda x: x + 1, X)


IMPORTS = """
import sys, torch, numpy, jitney
before = "jitney_numpy" in sys.modules
found = jitney.compile(lambda x: x.sum(0) * 2, backend="eager")(numpy.ones((3, 4)))
print(before, "jitney_numpy" in sys.modules, found.tolist())
"""


def test_the_package_is_imported_where_a_frame_is_captured_only(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(IMPORTS)
    environment = os.environ | {"JITNEY_CACHE": "1", "JITNEY_CACHE_DIR": str(tmp_path / "cache")}
    printed = [run_python(tmp_path / "program.py", env=environment, check=True).stdout for _ in "12"]
    assert printed == [f"False {captured} [6.0, 6.0, 6.0, 6.0]\n" for captured in (True, False)]


# ------------------------------------------------------------------ handlers of others


def _registered(registry: Registry, monkeypatch: pytest.MonkeyPatch, source: str, name: str = "mine") -> None:
    """Give a registry an entry point to ``handlers`` of a module with this text."""
    module = type(sys)(f"handlers_of_{name}")
    module.__dict__["source"] = source
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source, module.__dict__)
    registry._points[HANDLERS][name] = [EntryPoint(name, f"{module.__name__}:handlers", HANDLERS)]


OWN = """
from jitney.capture.tables import FunctionTable, Handlers
import math
jitney_hook_api = 1
table = FunctionTable()

@table(math.lgamma)
def lgamma(vm, args, kwargs):
    return 17.0

handlers = Handlers(table.functions, table.codes)
"""


def test_a_package_registers_handlers(alone: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _registered(alone, monkeypatch, OWN)
    assert id(math.lgamma) in handlers().functions and handlers().arrays is UNCAPTURED
    found = jitney.compile(lambda x: x + math.lgamma(3.5), backend="eager")(torch.zeros(2))
    assert found.tolist() == [17.0, 17.0]


class Rounded:
    """The program says how C code handles it."""

    def __index__(self) -> int:
        return 3


def test_a_handler_is_no_code_of_the_programs(alone: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    helped = OWN.replace("return 17.0", "return 10.0 + seven()") + "\ndef seven():\n    return 7.0\n"
    _registered(alone, monkeypatch, helped)
    with observe() as seen:
        found = jitney.compile(lambda x, n: x + math.lgamma(n), backend="eager")(torch.zeros(2), Rounded())
    assert (found.tolist(), seen.breaks, seen.skips) == ([17.0, 17.0], [], [])


def test_code_of_the_programs_that_a_handler_enters_is_seen(alone: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _registered(alone, monkeypatch, OWN.replace("return 17.0", "return float(range(9)[args[0]])"))
    with observe() as seen:
        jitney.compile(lambda x, n: x + math.lgamma(n), backend="eager")(torch.zeros(2), Rounded())
    assert any("Rounded.__index__, which C code has called" in reason for reason in (*seen.breaks, *seen.skips))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("jitney_hook_api = 1", "failed to import: AttributeError"),
        ("jitney_hook_api = 1\nhandlers = {}", "is not a jitney.capture.tables.Handlers but dict"),
        (OWN.replace("api = 1", "api = 99"), "hook API"),
    ],
)
def test_broken_handlers_are_named_and_left_out(
    alone: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, source: str, reason: str
) -> None:
    _registered(alone, monkeypatch, OWN, "good")
    _registered(alone, monkeypatch, source, "bad")
    with caplog.at_level(logging.WARNING, "jitney.plugins"):
        found = [handlers() for _ in range(2)]
    assert found[0] is found[1]
    (said,) = caplog.messages
    assert "'bad'" in said and "left out" in said and reason in said
    assert [row.status for row in alone.handler_listings()] == ["broken", "loaded"]


def test_who_comes_second_is_left_out(
    alone: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, function in (("first", "math.lgamma"), ("second", "math.lgamma"), ("third", "len")):  # the core has len
        _registered(alone, monkeypatch, OWN.replace("math.lgamma", function), name)
    with caplog.at_level(logging.WARNING, "jitney.plugins"):
        handlers()
    assert [said.partition(" are left out")[0] for said in caplog.messages] == ["handlers 'second'", "handlers 'third'"]


def test_what_the_program_put_in_the_place_of_a_function_is_not_handled_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, handler = np.sum, lambda vm, args, kwargs: None
    for other in (lambda x: 3, np.nansum):
        monkeypatch.setattr(np, "sum", other)
        table = ArrayTable()
        table.captures(np.sum, handler)
        table.captures(np.cumsum, handler)
        assert [*table.functions] == [id(np.cumsum)]
    monkeypatch.setattr(np, "sum", original)
    table.captures(np.sum, handler)
    assert id(np.sum) in table.functions


def test_a_table_alone_is_enough() -> None:
    assert Handlers(FunctionTable().functions, {}).arrays is UNCAPTURED
