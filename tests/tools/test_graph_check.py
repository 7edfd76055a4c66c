"""Graphs that fail are written down as ``config.repro_after`` and ``repro_level`` say; a cross-check raises at once."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_backends
import pytest
import torch
from faulty_backends import crashes_in_backward, crashes_on_relu, crashes_when_it_runs, off_by_a_percent, wrong_backward
from wrapper_classes import Pair

import jitney
from jitney.backends import Backend
from jitney.config import config
from jitney.errors import BackendFailed, InvalidOption, WrongNumbers
from jitney_tools.bisect import bisect
from jitney_tools.compare.verdict import cause_of
from jitney_tools.minifier.run import minified
from jitney_tools.minifier.script import load


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.patch(base_dir=str(tmp_path / "out")):
        yield tmp_path / "out"


def program(x: torch.Tensor) -> Any:
    y = torch.relu(x * 2) + 1
    return torch.tanh(y).exp().sum()


def run(backend: Any, *, grad: bool = True, **how: Any) -> torch.Tensor:
    x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_(grad)
    out = jitney.compile(program, backend=backend, **how)(x)
    if grad:
        out.backward()
    return out


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.py")) if folder.exists() else []


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_with_everything_off_emitted_code_calls_what_it_called_before(level: Any) -> None:
    made: list[Any] = []

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        made.append(graph.forward)
        return made[-1]

    def graph_of(options: Any) -> Any:
        run = jitney.compile(program, backend=Backend("plain", compile_graph, level=level), options=options)
        run(torch.ones(3))
        return run._jitney_root.functions[0].__globals__["_graph"]

    found = graph_of(None)
    names = {*found.__code__.co_names, getattr(found, "__qualname__", "")}
    assert found == made[0] or (level == "aten" and not any("CheckedGraph" in name for name in names))
    assert "CheckedGraph" in graph_of({"crosscheck": True}).__qualname__


def test_without_being_asked_nothing_is_written(folder: Path) -> None:
    with pytest.raises(BackendFailed, match="JITNEY_REPRO_AFTER=capture python"):
        run(crashes_on_relu)
    assert files(folder) == []


@pytest.mark.parametrize(
    ("backend", "after", "ops"),
    [
        (crashes_on_relu, "capture", 6),
        (crashes_on_relu, "aot", 6),  # it takes graphs as captured: there is nothing after AOT
        (crashes_in_backward, "capture", 6),
        (crashes_in_backward, "aot", None),
    ],
)
def test_a_crash_while_compiling_is_written_to_be_minified(folder: Path, backend: Any, after: Any, ops: Any) -> None:
    with config.patch(repro_after=after), pytest.raises(BackendFailed) as raised:
        run(backend)
    assert files(folder) == ["minifier_launcher.py"]
    assert f"minify: jitney minify {folder / 'minifier_launcher.py'}" in str(raised.value)
    found, path = minified(folder / "minifier_launcher.py")
    assert ops is None or found.before == ops
    assert found.case.op_count == 1
    with pytest.raises(BackendFailed) as again:
        runpy.run_path(str(path), run_name="__main__")
    assert str(cause_of(again.value)) == str(cause_of(raised.value))


def test_a_crash_at_run_time_is_written_with_the_inputs_of_the_call(folder: Path) -> None:
    with config.patch(repro_after="capture"), pytest.warns(UserWarning, match="jitney minify .*minifier_launcher.py"):
        run(crashes_when_it_runs)
    case, fault = load(folder / "minifier_launcher.py")
    (x,) = case.values
    assert torch.equal(x, torch.linspace(-1, 1, 24).reshape(4, 6)) and x.requires_grad
    assert fault is not None and fault.reason == "ArithmeticError: a kernel for (4, 6) failed"


def test_the_programs_own_errors_are_not_written(folder: Path) -> None:
    def refuses(x: torch.Tensor, at: torch.Tensor) -> Any:
        return x[at] + 1

    with config.patch(repro_after="capture"), pytest.raises(IndexError):
        jitney.compile(refuses, backend="eager")(torch.ones(3), torch.tensor([7]))
    assert files(folder) == []


def test_level_1_writes_the_graph_as_it_is(folder: Path) -> None:
    with (
        config.patch(repro_after="capture", repro_level=1),
        pytest.raises(BackendFailed, match="python .*repro.py runs"),
    ):
        run(crashes_on_relu)
    assert files(folder) == ["repro.py"]
    assert "A graph for the backend 'crashes_on_relu': 6 operations." in (folder / "repro.py").read_text()
    with pytest.raises(BackendFailed, match="there is no kernel for relu"):
        runpy.run_path(str(folder / "repro.py"), run_name="__main__")


def test_level_3_writes_every_graph_before_it_is_compiled(folder: Path) -> None:
    seen: list[list[str]] = []

    def look(graph: Any, inputs: Any, request: Any) -> Any:
        seen.append(files(folder))
        return graph.forward

    faulty_backends.look = Backend("look", look, level="aten")  # type: ignore[attr-defined]
    look.__module__ = "faulty_backends"
    with config.patch(repro_after="aot", repro_level=3):
        run(faulty_backends.look)  # type: ignore[attr-defined]
    assert [len(names) for names in seen] == [1, 2]
    assert [load(folder / name)[0].kind for name in files(folder)] == ["forward", "backward"]


@pytest.mark.parametrize(
    ("backend", "after", "place"),
    [
        (off_by_a_percent, "capture", "results"),
        (off_by_a_percent, "aot", "results"),
        (wrong_backward, "capture", "gradients"),
        (wrong_backward, "aot", "results"),
    ],
)
def test_level_4_finds_wrong_numbers(folder: Path, backend: Any, after: Any, place: str) -> None:
    with config.patch(repro_after=after, repro_level=4), pytest.raises(WrongNumbers) as raised:
        run(backend)
    assert f"backend {backend.name}: wrong numbers ({place})" in str(raised.value)
    found, path = minified(folder / "minifier_launcher.py")
    assert found.case.op_count == 1 and found.fault.place == place
    with pytest.raises(WrongNumbers, match="are wrong"):
        runpy.run_path(str(path), run_name="__main__")


def test_level_2_does_not_look_at_numbers(folder: Path) -> None:
    with config.patch(repro_after="capture"):
        run(off_by_a_percent)
    assert files(folder) == []


def test_a_backend_that_nobody_can_import_is_a_clear_word(folder: Path) -> None:
    with config.patch(repro_after="capture"), pytest.raises(BackendFailed):
        with pytest.warns(UserWarning, match="has no name at the top level of the module .*\ntry: assign it to a name"):
            run(lambda graph, inputs: 1 / 0)


def test_sizes_that_are_symbolic_are_sizes_again(folder: Path) -> None:
    def sized(x: torch.Tensor) -> Any:
        return torch.relu(x.reshape(x.shape[0] * 2, -1)) * x.shape[0]

    with config.patch(repro_after="capture"), pytest.raises(BackendFailed):
        jitney.compile(sized, backend=crashes_on_relu, dynamic=True)(torch.ones(3, 4))
    text = (folder / "minifier_launcher.py").read_text()
    assert "size(0)" in text and "dynamic=None" in text
    assert minified(folder / "minifier_launcher.py")[0].case.op_count == 1


def test_made_up_inputs_have_the_strides_of_those_that_nobody_has_seen(folder: Path) -> None:
    given = [
        torch.ones(3, 1).expand(3, 4),
        torch.ones(4, 3, dtype=torch.complex64).t(),
        torch.zeros(0, 2),
        torch.ones(3)[1:],
    ]
    with config.patch(repro_after="capture"), pytest.raises(BackendFailed):
        jitney.compile(lambda *x: torch.relu(x[0] + x[1].real) + x[2].sum() + x[3].sum(), backend=crashes_on_relu)(
            *given
        )
    made = load(folder / "minifier_launcher.py")[0].values
    assert {(t.shape, t.stride(), t.dtype) for t in made} == {(t.shape, t.stride(), t.dtype) for t in given}


# ---------------------------------------------------------------------- cross-check


def test_tensors_that_wrap_tensors_are_checked_inside(folder: Path) -> None:
    pair = Pair(torch.ones(3), torch.zeros(3))
    out = jitney.compile(lambda p: torch.exp(p) + 1, backend="aot_eager", options={"crosscheck": True})(pair)
    assert torch.allclose(out.a, torch.ones(3).exp() + 1)
    with pytest.raises(WrongNumbers, match="it was not minified: an input of the graph is a Pair, which wraps tensors"):
        jitney.compile(lambda p: torch.exp(p) + 1, backend=off_by_a_percent, options={"crosscheck": True})(pair)
    assert bisect(lambda p: torch.exp(p) + 1, (pair,), backend=off_by_a_percent).phase == "backend off_by_a_percent"


def test_a_cross_check_raises_with_the_minified_graph(folder: Path) -> None:
    with pytest.raises(WrongNumbers) as raised:
        run(off_by_a_percent, options={"crosscheck": True})
    text = str(raised.value)
    assert text.startswith(f"{__file__}:{program.__code__.co_firstlineno + 1}, in program: y = torch.relu(x * 2) + 1")
    assert "minified, 6 operations became 1" in text
    assert "      exp = " in text and f"run: python {folder / 'repro.py'}" in text
    with pytest.raises(WrongNumbers):
        runpy.run_path(str(folder / "repro.py"), run_name="__main__")


def test_gradients_are_checked_before_anybody_asks_for_them(folder: Path) -> None:
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    with pytest.raises(WrongNumbers, match="gradient 0"):
        jitney.compile(program, backend=wrong_backward, options={"crosscheck": True})(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_that_are_right_pass_with_the_same_results_and_effects(backend: str) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.5), torch.nn.ReLU())
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    found = []
    for options in (None, {"crosscheck": True}):
        net[1].reset_running_stats()
        net.zero_grad()
        torch.manual_seed(0)
        run = jitney.compile(net, backend=backend, options=options)
        for _ in range(2):
            out = run(x)
            out.square().sum().backward()
        found.append([out, *net.state_dict().values(), *[p.grad for p in net.parameters()], torch.rand(2)])
    for a, b in zip(*found):
        assert torch.equal(a, b)


def test_every_so_many_calls() -> None:
    calls = []

    def late(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            calls.append(1)
            (out,) = graph.forward(*args)
            return (out * 1.5 if len(calls) > 1 else out,)

        return run

    run = jitney.compile(lambda x: x.sin(), backend=late, options={"crosscheck": 3})
    for _ in range(3):  # the first is right, the second and third are wrong and not looked at
        run(torch.ones(3))
    with pytest.raises(WrongNumbers):
        run(torch.ones(3))


def test_wrong_values_of_the_option_are_refused() -> None:
    for value in (0, -1, "yes", 1.5):
        with pytest.raises(InvalidOption, match="option 'crosscheck'"):
            jitney.compile(program, backend="eager", options={"crosscheck": value})
    with pytest.raises(InvalidOption, match="has no option 'crosschek'.*") as raised:
        jitney.compile(program, backend="eager", options={"crosschek": True})
    assert "crosscheck" in str(raised.value)


def test_it_is_a_backends_callable_too() -> None:
    seen: list[Any] = []

    def compiler(graph: Any, inputs: Any, options: Any = None) -> Any:
        seen.append(options)
        return graph.forward

    jitney.compile(program, backend=compiler, options={"crosscheck": True, "x": 1})(torch.ones(2))
    assert seen == [{"x": 1}]


def test_where_nothing_can_be_written_the_fault_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, where a folder is to be")
    with config.patch(base_dir=str(tmp_path / "out"), repro_after="capture"):
        with pytest.warns(UserWarning, match="nothing is written for the minifier"), pytest.raises(BackendFailed):
            run(crashes_on_relu)
