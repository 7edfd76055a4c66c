from __future__ import annotations

from typing import Any

import pytest
import torch

import jitney
import jitney_scalars
from jitney.backends import HOOK_API_VERSION, registry


@pytest.fixture(autouse=True)
def begin() -> None:
    jitney_scalars._counts.clear()
    jitney_scalars._written.clear()


def step(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")
    return y.cos()


class Board:
    """As ``torch.utils.tensorboard.SummaryWriter``."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, int | None]] = []

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        self.rows.append((tag, value, global_step))


class Run:
    """As a run of wandb's."""

    def __init__(self) -> None:
        self.rows: list[tuple[dict[str, float], int | None]] = []

    def log(self, data: dict[str, float], step: int | None = None) -> None:
        self.rows.append((data, step))


def test_pip_made_it_an_extension():
    assert jitney_scalars.jitney_hook_api == HOOK_API_VERSION
    assert not registry.changes_graphs()


def test_what_changed_is_written_with_its_step():
    board, run, calls = Board(), Run(), []

    def log(at: int) -> None:
        jitney_scalars.log(board, at)
        jitney_scalars.log(run, at)
        jitney_scalars.log(lambda_writer, at, prefix="")

    def lambda_writer(numbers: dict[str, Any], at: int | None) -> None:
        calls.append((numbers, at))

    compiled = jitney.compile(step, backend="eager")
    compiled(torch.ones(2))
    log(0)
    log(1)  # nothing new
    compiled(torch.ones(3))
    log(2)
    found = {(tag, at): value for tag, value, at in board.rows}
    assert found["jitney/graphs", 0] == 2 and found["jitney/graphs", 2] == 4
    assert found["jitney/graph_breaks", 0] == 1 and ("jitney/recompiles", 0) not in found
    assert found["jitney/recompiles", 2] == 2 and found["jitney/compile_seconds", 2] > 0
    assert [at for _, at in run.rows] == [at for _, at in calls] == [0, 2]
    assert run.rows[1][0]["jitney/recompiles"] == calls[1][0]["recompiles"] == 2


class Metrics:
    """Loggers of one's own: equal to each other, without a hash, without weak references."""

    __slots__ = ("fails", "rows")

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.fails = False

    def __eq__(self, other: object) -> bool:
        return type(other) is Metrics

    def __call__(self, numbers: dict[str, float], at: int | None) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.rows.append(numbers)

    def write(self, numbers: dict[str, float], at: int | None) -> None:
        self(numbers, at)


class Logger:
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, numbers: dict[str, float], at: int | None) -> None:
        self.rows.append(numbers)


def test_writers_of_any_class_and_bound_methods_are_remembered_for_each_prefix():
    jitney.compile(step, backend="eager")(torch.ones(2))
    first, second, logger = Metrics(), Metrics(), Logger()
    for _ in range(2):
        jitney_scalars.log(first)
        jitney_scalars.log(second)
        jitney_scalars.log(second.write, prefix="own/")
        jitney_scalars.log(logger.write)
    assert len(first.rows) == len(logger.rows) == 1 and len(second.rows) == 2
    assert second.rows[0]["jitney/graphs"] == second.rows[1]["own/graphs"] == 2
    number = id(logger)
    del logger
    assert number not in jitney_scalars._written


def test_what_a_writer_did_not_take_is_written_the_next_time():
    jitney.compile(step, backend="eager")(torch.ones(2))
    writer, board = Metrics(), Board()
    writer.fails = True
    with pytest.raises(OSError, match="the disk is full"):
        jitney_scalars.log(writer)
    writer.fails = False
    assert jitney_scalars.log(writer)["jitney/graphs"] == writer.rows[0]["jitney/graphs"] == 2
    take = board.add_scalar

    def takes_one(tag: str, value: float, global_step: int | None = None) -> None:
        if board.rows:
            raise OSError("the disk is full")
        take(tag, value, global_step)

    board.add_scalar = takes_one  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the disk is full"):
        jitney_scalars.log(board)
    board.add_scalar = take  # type: ignore[method-assign]
    jitney_scalars.log(board)
    assert sorted(tag for tag, _, _ in board.rows) == sorted(f"jitney/{name}" for name in jitney_scalars.counts())
