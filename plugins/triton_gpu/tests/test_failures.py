"""A kernel that cannot be made costs that kernel: its operators run as torch's, and somebody is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_python
from triton.backends.compiler import GPUTarget

import jitney
from jitney import events
from jitney.config import config
from jitney.errors import BackendFailed
from jitney_lowering import NotLowered
from jitney_lowering.index import index
from jitney_triton_gpu import launcher
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.failures import NotCompiled, write_repro
from jitney_triton_gpu.launch import details

TARGET = GPUTarget("cuda", 90, 32)
Refuse = Callable[[str], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Refuse:
    """``refuse(word)``: functions with the word in them are not compiled."""
    load = launcher.load

    def refuse_some(word: str) -> None:
        def some(source: str, name: str, functions: dict[str, Function], *rest: Any) -> Any:
            bad = {entry: f for entry, f in functions.items() if word in f.text}
            if bad:
                raise NotCompiled(
                    {entry: RuntimeError(f"no {word}\nhere") for entry in bad},
                    {entry: details(f, TARGET) for entry, f in bad.items()},
                )
            return load(source, name, functions, *rest)

        monkeypatch.setattr(launcher, "load", some)

    monkeypatch.setattr(config, "base_dir", str(tmp_path / "made"))
    return refuse_some


def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x.exp() + 1).sum(-1), (x @ w).sin() * 2


def lowered(compiled: Any, *args: torch.Tensor) -> tuple[Any, list[events.Lowered]]:
    found: list[events.Lowered] = []
    with events.listen(lambda event: found.append(event) if isinstance(event, events.Lowered) else None):
        return compiled(*args), found


def test_operators_of_a_kernel_that_triton_refuses_run_as_they_are(
    refuse: Refuse, tmp_path: Path, device: torch.device
) -> None:
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    refuse("libdevice.sin")
    with pytest.warns(UserWarning, match=r"RuntimeError: here.*aten\.(mul|sin).*python .*made.*repeats it") as warned:
        got, (event,) = lowered(jitney.compile(program, backend="triton_gpu"), x, w)
    torch.testing.assert_close(got, program(x, w))
    assert event.kernels == 1  # the sum still is one
    assert ("aten.sin.default", "Triton does not compile its kernel") in event.whole
    assert len(warned) == len(list((tmp_path / "made").iterdir()))


def test_without_any_kernel_the_graph_runs_as_it_is(refuse: Refuse, device: torch.device) -> None:
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    refuse("def ")
    with pytest.warns(UserWarning, match="triton_gpu: Triton does not compile a kernel of program"):
        got, events_ = lowered(jitney.compile(program, backend="triton_gpu"), x, w)
    torch.testing.assert_close(got, program(x, w))
    assert events_[-1].kernels == 0


@pytest.mark.filterwarnings("ignore:triton_gpu. Triton does not compile")
def test_gradients_of_what_triton_refuses(refuse: Refuse, device: torch.device) -> None:
    refuse("libdevice.cos")  # the backward of sin
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    found = []
    for fn in (program, jitney.compile(program, backend="triton_gpu")):
        leaf = x.clone().requires_grad_()
        first, second = fn(leaf, w)
        (first.sum() + second.sum()).backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0])


def test_under_fullgraph_it_is_an_error(refuse: Refuse, device: torch.device) -> None:
    refuse("libdevice.sin")
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    with pytest.raises(BackendFailed, match="RuntimeError: no libdevice.sin"):
        jitney.compile(program, backend="triton_gpu", fullgraph=True)(x, w)


def test_a_kernel_that_has_no_code_costs_nothing_else(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    emit = launcher.emit

    def some(kernel: Any, *rest: Any, **more: Any) -> Any:
        if "sin" in str(kernel):
            raise NotLowered("no sine today")
        return emit(kernel, *rest, **more)

    monkeypatch.setattr(launcher, "emit", some)
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    got, (event,) = lowered(jitney.compile(program, backend="triton_gpu", fullgraph=True), x, w)
    torch.testing.assert_close(got, program(x, w))
    assert event.kernels == 1
    assert ("aten.sin.default", "no sine today") in event.whole


def test_steps_of_a_kernel_that_has_no_code_become_kernels(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    emit = launcher.emit

    def two_nests(kernel: Any, *rest: Any, **more: Any) -> Any:
        if len(kernel.body) > 2:
            raise NotLowered("many nests")
        return emit(kernel, *rest, **more)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x - x.mean(-1, keepdim=True)
        return y / y.square().mean(-1, keepdim=True)

    monkeypatch.setattr(launcher, "emit", two_nests)
    x = torch.randn(600, 50, device=device)
    got, (event,) = lowered(jitney.compile(fn, backend="triton_gpu"), x)
    torch.testing.assert_close(got, fn(x))
    assert event.kernels > 1 and event.whole == ()


def test_the_file_that_is_written_ends_in_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "base_dir", str(tmp_path))
    body = "    x = tl.arange(0, XBLOCK)\n    tl.store(b0 + x, tl.no_such_function(x))"
    function = Function("k0", (Parameter("b0", "buffer", "b0", torch.float32),), body, {"XBLOCK": 64}, index(1), 4)
    path = write_repro(function, launcher.HEADER, ValueError('it\'s """bad"""\n\\x'), details(function, TARGET))
    assert path is not None
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = run_python(path, env=environment, timeout=300)
    assert ran.returncode == 1
    assert "no_such_function" in ran.stderr.splitlines()[-1] or "no_such_function" in ran.stderr


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(config, "base_dir", str(tmp_path / "file"))
    function = Function("k0", (), "    pass", {}, index(1), 4)
    assert write_repro(function, launcher.HEADER, ValueError(""), details(function, TARGET)) is None


def test_a_kernel_that_triton_refuses_is_tried_with_other_blocks(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Triton 3.6 does where several rows of a tile each store something."""
    load, seen = launcher.load, []

    def one_row_at_a_time(source: str, name: str, functions: dict[str, Function], *rest: Any) -> Any:
        bad = {entry: f for entry, f in functions.items() if "[:, None]" in f.text}
        seen.append(len(bad))
        if bad:
            raise NotCompiled(
                dict.fromkeys(bad, RuntimeError("PassManager::run failed")),
                {entry: details(f, TARGET) for entry, f in bad.items()},
            )
        return load(source, name, functions, *rest)

    monkeypatch.setattr(launcher, "load", one_row_at_a_time)
    x = torch.randn(40, 20, device=device)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.exp().sum(-1).log()

    got, (event,) = lowered(jitney.compile(fn, backend="triton_gpu"), x)
    torch.testing.assert_close(got, fn(x))
    assert seen == [1, 1, 0]
    assert (event.kernels, event.whole) == (1, ())
