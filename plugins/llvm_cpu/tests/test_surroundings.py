"""What is around a program: the disk, forks, threads, very large tensors, options, autocast."""

from __future__ import annotations

import errno
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import jitney
from jitney.cache import store as cache_module
from jitney_llvm_cpu import machine

HUGE = 2**31 + 64


def fn(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).tanh().sum(-1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of its own; no warning has been given yet, no engine knows it."""
    monkeypatch.setattr(cache_module, "_warned", type(cache_module._warned)())
    yield tmp_path
    machine.engine.cache_clear()


def again(folder: Path) -> Callable[..., Any]:
    """The function compiled as in a new process."""
    machine.engine.cache_clear()
    return jitney.compile(fn, backend="llvm_cpu", options={"cache_dir": str(folder)})


def test_a_damaged_cache_file_is_made_again(folder: Path) -> None:
    x = torch.randn(8, 40)
    torch.testing.assert_close(again(folder)(x), fn(x))
    files = sorted((folder / "llvm_cpu").iterdir())
    assert files
    whole = {f: f.read_bytes() for f in files}
    for damage in (b"", b"nonsense", None):
        for file, content in whole.items():
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 255]) if damage is None else damage)
        torch.testing.assert_close(again(folder)(x), fn(x))
        assert {f: f.read_bytes() for f in files} == whole


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_costs_a_warning(folder: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    x = torch.randn(8, 40)
    with pytest.warns(RuntimeWarning, match=os.strerror(code)):
        torch.testing.assert_close(again(folder)(x), fn(x))
    assert not [f for f in folder.rglob("*") if f.is_file()]


def test_a_disk_that_is_full_half_way_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            self.file.write(data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened = os.fdopen
    monkeypatch.setattr(cache_module.os, "fdopen", lambda *args: Full(opened(*args)))
    x = torch.randn(8, 40)
    with pytest.warns(RuntimeWarning, match="No space left"):
        torch.testing.assert_close(again(folder)(x), fn(x))
    assert not [f for f in folder.rglob("*") if f.is_file()]


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_costs_a_warning(folder: Path) -> None:
    folder.chmod(0o500)
    x = torch.randn(8, 40)
    try:
        with pytest.warns(RuntimeWarning, match="not kept"):
            torch.testing.assert_close(again(folder)(x), fn(x))
    finally:
        folder.chmod(0o700)


# --- processes and threads ------------------------------------------------------------------------------------------

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
QUIET = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Samples(Dataset[torch.Tensor]):
    """Rows, each put through compiled code in the worker."""

    def __init__(self, compiled: Callable[..., torch.Tensor]) -> None:
        self.compiled = compiled

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.compiled(torch.full((3, 50 + number % 2), float(number) / 10))


@FORKS
@QUIET
@pytest.mark.parametrize("before", [False, True])
def test_workers_of_a_data_loader_compile_and_run(before: bool) -> None:
    compiled = jitney.compile(fn, backend="llvm_cpu")
    if before:
        compiled(torch.randn(3, 50))
    loader = DataLoader(Samples(compiled), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=100)
    torch.testing.assert_close(torch.cat(list(loader)), torch.stack([Samples(fn)[i] for i in range(6)]))


@FORKS
@QUIET
def test_both_sides_of_a_fork_go_on() -> None:
    compiled = jitney.compile(fn, backend="llvm_cpu")
    x = torch.randn(64, 5000)
    compiled(x)
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()

    def work() -> None:
        queue.put([compiled(x).tolist(), compiled(x[:, :77].double()).tolist()])

    child = context.Process(target=work, daemon=True)
    child.start()
    known, new = queue.get(timeout=100)
    child.join()
    torch.testing.assert_close(torch.tensor(known), fn(x))
    torch.testing.assert_close(torch.tensor(new, dtype=torch.float64), fn(x[:, :77].double()))
    torch.testing.assert_close(compiled(x[:, :99]), fn(x[:, :99]))


def test_the_number_of_threads_changes_between_calls() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return fn(x), x.sum(0), x.sum(), x.argmax(), x.softmax(0)

    compiled = jitney.compile(program, backend="llvm_cpu")
    x = torch.randn(600, 700)
    wanted = program(x)
    before = torch.get_num_threads()
    try:
        for count in (1, 3, 2, 7, 1, 4):
            torch.set_num_threads(count)
            torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(before)


# --- more than 2 ** 31 elements -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_of_more_elements_than_fit_32_bits(dynamic: bool) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(), (x > 0).all()

    one = torch.ones(1, dtype=torch.int8)
    found = jitney.compile(program, backend="llvm_cpu", dynamic=dynamic, fullgraph=True)(one.expand(HUGE))
    assert [f.item() for f in found] == [HUGE, True]


@pytest.mark.parametrize("dynamic", [False, True])
def test_places_beyond_32_bits(dynamic: bool) -> None:
    """Of the 2 GB only the pages that are looked at exist."""

    def program(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[-8:] * 2, x[:: 1 << 26].sum(), x[at], x.select(0, HUGE - 3) + 1, x[HUGE - 20 :].flip(0)[:4] + 0

    at = torch.tensor([0, HUGE - 1, HUGE - 5])
    made = []
    for run in (program, jitney.compile(program, backend="llvm_cpu", dynamic=dynamic, fullgraph=True)):
        x = torch.empty(HUGE, dtype=torch.int8)
        x[:: 1 << 26] = 1
        x[-32:] = torch.arange(32)
        made.append(run(x, at))
        del x
    torch.testing.assert_close(made[1], made[0])


def test_the_position_of_an_extreme_beyond_32_bits() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + (torch.arange(HUGE) == HUGE - 5)).argmax()

    one = torch.ones(1, dtype=torch.int8)
    found = jitney.compile(program, backend="llvm_cpu", fullgraph=True)(one.expand(HUGE))
    assert found.item() == HUGE - 5


# --- options, autocast ----------------------------------------------------------------------------------------------


def test_vectors_that_the_machine_lacks_are_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    host = machine.machine(0).target
    plain = type(host)(host.triple, "some-cpu", "", 16)
    monkeypatch.setattr(machine.Target, "host", staticmethod(plain.with_vector_bytes))
    machine.machine.cache_clear()
    machine.engine.cache_clear()
    try:
        with pytest.raises(jitney.errors.JitneyError, match=r"vector_bytes=64 is more than this CPU \(some-cpu\) has"):
            jitney.compile(fn, backend="llvm_cpu", options={"vector_bytes": 64}, fullgraph=True)(torch.randn(4, 40))
    finally:
        machine.machine.cache_clear()
        machine.engine.cache_clear()


@pytest.mark.parametrize("wrong", [24, -1, 128])
def test_a_width_that_does_not_exist_is_refused_with_the_valid_ones(wrong: int) -> None:
    with pytest.raises(jitney.errors.JitneyError, match="16, 32 or 64"):
        jitney.compile(fn, backend="llvm_cpu", options={"vector_bytes": wrong}, fullgraph=True)(torch.randn(4, 40))


class Mixed(torch.nn.Module):
    """Keeps an autocast object for its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.amp = torch.autocast("cpu", torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.amp:
            inside = self.linear(x)
        return inside, self.linear(x)


def test_autocast_as_an_attribute_of_a_module() -> None:
    model = Mixed()
    compiled = jitney.compile(model, backend="llvm_cpu")
    x = torch.randn(4, 8)
    for enabled in (True, False, True):
        model.amp = torch.autocast("cpu", torch.bfloat16, enabled=enabled)
        wanted, got = model(x), compiled(x)
        assert [g.dtype for g in got] == [w.dtype for w in wanted]
        torch.testing.assert_close(got, wanted)
        assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("options", [{"grain": 0}, {"grain": -5}, {"vector_bytes": 48}])
def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, int]) -> None:
    with pytest.raises(jitney.errors.InvalidOption, match=next(iter(options))):
        jitney.compile(lambda x: x + 1, backend="llvm_cpu", options=options)
