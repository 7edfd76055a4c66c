"""Hooks for tools: what looks at graphs, failed captures and programs, and what is said where nobody does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_python

import jitney
from jitney.backends import FailedFrame, hookimpl, registry
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.config import config
from jitney.errors import BackendFailed, CaptureError, PluginError

TOOLS = "jitney_tools.extension"


def program(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@pytest.fixture
def no_tools() -> Iterator[None]:
    """As if jitney-tools were not installed."""
    hooks = registry.hooks()
    tools = hooks.get_plugin("tools")
    hooks.unregister(tools)
    yield
    hooks.register(tools, "tools")


@pytest.fixture
def extension(no_tools: None) -> Iterator[Any]:
    """Registers an object for the test, in the place of the tools."""
    known: list[Any] = []

    def register(**implementations: Any) -> None:
        module = type("Extension", (), {name: staticmethod(hookimpl(f)) for name, f in implementations.items()})
        registry.register_extension(module, "mine")
        known.append(module)

    yield register
    for module in known:
        registry.unregister_extension(module)


class Counted:
    """A check that counts what is compiled."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def compiled(self, make: Any) -> Any:
        self.seen.append("whole")
        return make()

    def half(self, graph: Any, inputs: Any, request: Any, make: Any) -> Any:
        self.seen.append(request.kind)
        return make()


def test_an_extension_looks_at_a_graph_and_its_halves(extension: Any) -> None:
    check, asked = Counted(), []
    extension(jitney_check_graph=lambda graph, backend: asked.append((len(graph.graph.nodes), backend.name)) or check)
    x = torch.ones(3, requires_grad=True)
    jitney.compile(program, backend="aot_eager")(x).sum().backward()
    assert asked == [] and check.seen == []  # nobody wanted it
    out = jitney.compile(program, backend="aot_eager", options={"crosscheck": True})(x)
    out.sum().backward()
    assert asked == [(4, "aot_eager")] and check.seen == ["whole", "forward", "backward"]
    assert torch.equal(out, program(x))


def test_what_is_no_check_is_an_error_that_names_the_extension(extension: Any) -> None:
    extension(jitney_check_graph=lambda graph: 3)
    with pytest.raises(BackendFailed, match="extension mine: returned a int, which is no GraphCheck"):
        jitney.compile(program, backend="eager", options={"crosscheck": True})(torch.ones(3))


def test_without_an_extension_a_crosscheck_says_what_to_install(no_tools: None) -> None:
    with pytest.raises(PluginError, match=r"option 'crosscheck' needs .*\ntry: pip install 'jitney\[tools\]'"):
        jitney.compile(program, options={"crosscheck": True})


def test_without_an_extension_explain_does_not_bisect(no_tools: None) -> None:
    with pytest.raises(PluginError, match=r"bisect=True\) needs .*\ntry: pip install 'jitney\[tools\]'"):
        jitney.explain(program, bisect=True)(torch.ones(3))


@pytest.mark.parametrize("change", [{"compile_debug": True}, {"repro_after": "aot"}, {"replay_record_enabled": True}])
def test_a_setting_that_nobody_does_the_work_of_is_a_warning(no_tools: None, change: dict[str, Any]) -> None:
    (name,) = change
    with config.patch(**change), pytest.warns(UserWarning, match=rf"config.{name} does nothing: .*\n.*jitney\[tools\]"):
        assert torch.equal(jitney.compile(program, backend="eager")(torch.ones(3)), program(torch.ones(3)))


def test_a_setting_of_an_extension_is_no_warning(extension: Any) -> None:
    extension(jitney_settings=lambda: ("compile_debug",))
    with config.patch(compile_debug=True):
        jitney.compile(program, backend="eager")(torch.ones(3))


def test_an_extension_is_told_of_a_frame_whose_capture_fails(extension: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[FailedFrame] = []
    extension(jitney_capture_failed=lambda frame: failed.append(frame) or 1 / 0)
    x = torch.ones(3)

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setitem(HANDLERS, "BINARY_OP", broken)
        warned = pytest.warns(UserWarning, match=r"extension 'mine' raised ZeroDivisionError.* \(in jitney_capture_fa")
        with pytest.raises(CaptureError), warned:
            jitney.compile(program, backend="eager")(x)
    (frame,) = failed
    assert frame.code is program.__code__ and frame.function is program and frame.arguments == {"x": x}
    assert isinstance(frame.error, KeyError)


RUN = """
import sys
{before}
import torch, jitney

def program(x):
    return x.sin() * 2

print(torch.equal(jitney.compile(program, backend="eager")(torch.ones(3)), program(torch.ones(3))))
print(sorted(name for name in sys.modules if name.startswith("jitney_tools")))
"""
HIDDEN = """
import importlib.metadata
own = importlib.metadata.distributions
importlib.metadata.distributions = lambda **kw: (found for found in own(**kw) if found.name != "jitney-tools")
sys.modules["jitney_tools"] = None
"""


def run(tmp_path: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "program.py"
    file.write_text(code)
    variables = {
        **os.environ,
        "JITNEY_BASE_DIR": str(tmp_path / "base"),
        "JITNEY_CACHE_DIR": str(tmp_path),
        **environment,
    }
    return run_python(file, env=variables, timeout=300)


def test_a_process_that_uses_no_tool_imports_their_hooks_alone(tmp_path: Path) -> None:
    found = run(tmp_path, RUN.format(before=""))
    assert found.stdout.splitlines() == ["True", str(["jitney_tools", TOOLS])], found.stderr
    assert not (tmp_path / "base").exists()


def test_a_debug_folder_has_the_first_event_of_a_process(tmp_path: Path) -> None:
    found = run(tmp_path, RUN.format(before=""), JITNEY_COMPILE_DEBUG="1")
    assert found.stdout.startswith("True"), found.stderr
    (log,) = (tmp_path / "base").glob("run_*/events.jsonl")
    lines = log.read_text().splitlines()
    assert '"event": "Run"' in lines[0] and '"event": "Step"' in lines[1] and '"capture"' in lines[1]
    assert any('"event": "FrameCaptured"' in line for line in lines)


def test_without_the_tools_installed_programs_run_and_commands_say_what_to_install(tmp_path: Path) -> None:
    found = run(tmp_path, RUN.format(before=HIDDEN), JITNEY_COMPILE_DEBUG="1")
    assert found.stdout.splitlines() == ["True", str(["jitney_tools"])], found.stderr
    assert "config.compile_debug does nothing" in found.stderr and "pip install 'jitney[tools]'" in found.stderr
    command = f"import sys\n{HIDDEN}\nfrom jitney.cli import main\nsys.exit(main(['bisect', 'program.py:program']))"
    found = run(tmp_path, command)
    assert found.returncode == 1 and "pip install 'jitney[tools]'" in found.stderr
