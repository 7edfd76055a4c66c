"""Reading and writing at computed indices beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_indexing import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from backend_programs import Check, On, check, on  # noqa: F401 (fixtures)
from index_programs import GRADIENTS, READS, WRITES, WRONG, different, normal, refuses

import jitney


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READS)
def test_reads_are_eagers(check: Check, name: str, dynamic: bool) -> None:  # noqa: F811
    fn, make = READS[name]
    check(fn, *make(), dynamic=dynamic, fullgraph=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_eagers(check: Check, name: str, dynamic: bool) -> None:  # noqa: F811
    fn, make = WRITES[name]
    check(fn, *make(), dynamic=dynamic, fullgraph=True)


def test_what_shares_memory_with_an_input_sees_what_is_written(backend: str, on: On) -> None:  # noqa: F811
    def fn(x: torch.Tensor, view: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        before = view * 3
        x.index_copy_(0, i, y)
        return before + view

    found = []
    for run in (fn, jitney.compile(fn, backend=backend)):
        x = on(normal(9, 5))
        found.append((run(x, x[2:5], on(different(9, 4)), on(normal(4, 5))), x))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_eagers(on: On, backend: str, name: str) -> None:  # noqa: F811
    fn, make = GRADIENTS[name]
    x, *rest = on(make())
    found = []
    for run in (fn, jitney.compile(fn, backend=backend, fullgraph=True)):
        leaf = x.detach().clone().requires_grad_()
        y = run(leaf, *rest)
        (grad,) = torch.autograd.grad(y, leaf, torch.linspace(-1, 2, y.numel()).reshape(y.shape).to(y))
        found.append((y.detach(), grad))
    half = {"rtol": 0.02, "atol": 0.02} if x.dtype is torch.bfloat16 else {}  # eager on CPUs rounds each sum
    torch.testing.assert_close(found[1], found[0], **half)


@pytest.fixture
def catchable(device: torch.device) -> None:
    """A wrong index is an exception."""
    if device.type == "cuda":
        pytest.skip("a wrong index stops the device for good")


@pytest.mark.usefixtures("catchable")
@pytest.mark.parametrize("place", [6, -7, 2**40])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_an_error(name: str, place: int, backend: str) -> None:
    refuses(jitney.compile(WRONG[name][0], backend=backend, fullgraph=True), name, place)


ONE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index": lambda x, i: (x * 2)[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "index_add": lambda x, i: x.index_add(0, i, x.expand(2, 3)),
    "index_put": lambda x, i: x.index_put((i,), x[0] * 2),
    "index_fill": lambda x, i: x.index_fill(0, i, 3.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x.expand(2, 3)),
}


@pytest.mark.usefixtures("catchable")
@pytest.mark.parametrize("name", ONE)
def test_a_wrong_index_of_a_single_row_is_an_error(name: str, backend: str) -> None:
    compiled = jitney.compile(ONE[name], backend=backend, fullgraph=True)
    x = normal(1, 3)
    torch.testing.assert_close(compiled(x, torch.zeros(2, dtype=torch.int64)), ONE[name](x, torch.zeros(2).long()))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor([0, 7]))


@pytest.mark.parametrize("rows", [1, 5])
def test_a_number_that_does_not_fit_is_an_error(rows: int, backend: str, on: On) -> None:  # noqa: F811
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.scatter(0, i, 300)

    x, i = on(torch.zeros(4, 3, dtype=torch.int8)), on(torch.zeros(rows, 3, dtype=torch.int64))
    for run in (fn, jitney.compile(fn, backend=backend)):
        with pytest.raises(RuntimeError):
            run(x, i)
