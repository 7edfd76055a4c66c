"""A graph that writes and then raises, within a ``try`` of the program's: the program's handler gets the exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn

FAR = torch.tensor([7])
told: list[str] = []


def _maximum_of_nothing(x: torch.Tensor, mask: torch.Tensor) -> Any:
    x.add_(1)
    try:
        return x[mask].max()
    except RuntimeError:
        return x * 2


def _before_the_write(x: torch.Tensor, mask: torch.Tensor) -> Any:
    try:
        y = x[mask].max()
        x.add_(1)
        return y
    except RuntimeError as error:
        return x * len(str(error))


def _index(x: torch.Tensor, mask: torch.Tensor) -> Any:
    drawn = torch.rand(2)
    x[1:].add_(1)
    try:
        return x[FAR + mask.int().sum()]
    except IndexError:
        return x * torch.rand(1), drawn


def _a_finally(x: torch.Tensor, mask: torch.Tensor) -> Any:
    x.add_(1)
    try:
        told.append("begin")
        with torch.no_grad():
            return torch.multinomial(x * 0, 1)
    finally:
        told.append("end")


def _in_a_callee(x: torch.Tensor, mask: torch.Tensor) -> Any:
    x.mul_(3)
    try:
        return _fails(x)
    except RuntimeError:
        x.sub_(1)
    return x.sum()


def _fails(x: torch.Tensor) -> Any:
    x.add_(1)
    return torch.linalg.cholesky(-torch.eye(3) * x[0])


def _unseen_by_versions(x: torch.Tensor, mask: torch.Tensor) -> Any:
    x.data.add_(1)
    try:
        return x[mask].max()
    except RuntimeError:
        return x * 2


def _of_shared_memory(x: torch.Tensor, mask: torch.Tensor) -> Any:
    rows = x[:1].expand(2)
    return _maximum_of_nothing(x, mask), rows.sum()


PROGRAMS = [
    _unseen_by_versions,
    _of_shared_memory,
    _maximum_of_nothing,
    _before_the_write,
    _index,
    _a_finally,
    _in_a_callee,
]


def _run(f: Callable[..., Any]) -> list[Any]:
    torch.manual_seed(0)
    told.clear()
    x, found = torch.ones(3), []
    for _ in range(2):
        try:
            found.append(f(x, torch.zeros(3, dtype=torch.bool)))
        except RuntimeError as error:
            found.append(len(str(error)))
        found += [x.clone(), x._version, torch.rand(1), len(told)]
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_handler_gets_the_exception(program: Any, backend: str) -> None:
    torch.testing.assert_close(_run(compile_fn(program, backend=backend)), _run(program), rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tensors_of_inference_mode(backend: str) -> None:
    """They count no writes, which are not done twice all the same."""

    def told(f: Callable[..., Any]) -> list[Any]:
        with torch.inference_mode():
            x = torch.ones(3)
            return [f(x, torch.zeros(3, dtype=torch.bool)), x]

    torch.testing.assert_close(told(compile_fn(_maximum_of_nothing, backend=backend)), told(_maximum_of_nothing))


def test_an_expanded_argument() -> None:
    def f(rows: torch.Tensor, mask: torch.Tensor) -> Any:
        rows[0].add_(1)
        try:
            return rows[mask].max()
        except RuntimeError:
            return rows * 2

    def told(f: Callable[..., Any]) -> list[Any]:
        rows = torch.ones(3).expand(2, 3)
        return [f(rows, torch.zeros(2, 3, dtype=torch.bool)), rows]

    torch.testing.assert_close(told(compile_fn(f, backend="eager")), told(f))


def test_an_exception_after_a_write_that_autograd_has_seen() -> None:
    """Its history cannot be undone: the exception goes past the handler, rather than the write being done twice."""

    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        x.mul_(w)
        try:
            return x[FAR + w.int().sum()]
        except IndexError:
            return x * 2

    w = torch.ones(3, requires_grad=True)
    with pytest.raises(IndexError):
        compile_fn(f, backend="eager")(torch.ones(3), w)
