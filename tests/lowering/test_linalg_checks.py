"""Checks of factorisations are joined, and stay before whatever the caller could see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from jitney_lowering import joined_checks
from jitney_lowering.linalg_checks import CHECK
from jitney_lowering.linalg_errors import CHECKS, check_errors

aten = torch.ops.aten


def traced(fn: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*inputs)


def order(graph: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]


def several(a: Tensor, b: Tensor) -> list[Tensor]:
    x = torch.linalg.solve(a, b)
    y = torch.linalg.inv(a + x)
    return [torch.linalg.cholesky(y @ y.mT + torch.eye(3)) + 1]


def square(seed: int = 0) -> Tensor:
    return torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)) + 4 * torch.eye(3)


def test_one_check_where_the_last_was() -> None:
    a, b = square(), square(1)
    graph = traced(several, a, b)
    made = joined_checks(graph, {}, ("cpu",))
    assert order(graph).count(str(CHECK)) == 3, "the graph that was given stays as it is"
    assert CHECK not in {n.target for n in made.graph.nodes}
    names = order(made)
    assert (
        names.index(str(aten.linalg_cholesky_ex.default))
        < names.index(str(CHECKS))
        < names.index(str(aten.add.Tensor), -3)
    )
    assert torch.equal(made(a, b)[0], graph(a, b)[0])


def test_graphs_of_other_devices_stay() -> None:
    graph = traced(several, square(), square(1))
    assert joined_checks(graph, {}, ("cuda",)) is graph


def test_writes_come_after_the_checks_before_them() -> None:
    def writes(a: Tensor, b: Tensor) -> list[Tensor]:
        x = torch.linalg.inv(a)
        y = torch.linalg.inv(b)
        a.copy_(y)
        return [torch.linalg.inv(x + y)]

    names = order(joined_checks(traced(writes, square(), square(1)), {}, ("cpu",)))
    first, last = [n for n, name in enumerate(names) if name == str(CHECKS)]
    assert first < names.index(str(aten.copy_.default)) < last


def test_replaced_parts_of_inputs_come_after_the_checks_before_them() -> None:
    def writes(cache: Tensor, a: Tensor) -> list[Tensor]:
        return [aten.slice_scatter.default(cache, torch.linalg.inv(a), 0, 0, 3)]

    names = order(joined_checks(traced(writes, torch.zeros(6, 3), square()), {0: 0}, ("cpu",)))
    assert names.index(str(CHECKS)) < names.index(str(aten.slice_scatter.default))


def test_what_fails_for_unchecked_numbers_waits_and_no_other() -> None:
    def picks(a: Tensor, table: Tensor, index: Tensor) -> list[Tensor]:
        x = torch.linalg.inv(a)
        plain = table[index]
        y = torch.linalg.inv(a + 1)
        computed = table[x.long().flatten().remainder(3)]
        return [plain, computed, torch.linalg.inv(y + 1)]

    names = order(joined_checks(traced(picks, square(), torch.randn(3), torch.tensor([2, 0])), {}, ("cpu",)))
    plain, computed = [n for n, name in enumerate(names) if name == str(aten.index.Tensor)]
    first, last = [n for n, name in enumerate(names) if name == str(CHECKS)]
    assert plain < first < computed < last


def test_custom_operators_come_after_the_checks_before_them() -> None:
    @torch.library.custom_op("linalg_checks_test::noted", mutates_args=())
    def noted(x: Tensor) -> Tensor:
        return x.clone()

    noted.register_fake(torch.empty_like)

    def notes(a: Tensor) -> list[Tensor]:
        return [noted(torch.linalg.inv(a)) + 1]

    names = order(joined_checks(traced(notes, square()), {}, ("cpu",)))
    assert names.index(str(CHECKS)) < names.index("linalg_checks_test.noted.default")


def test_the_first_failure_is_raised() -> None:
    fine, first, second = torch.zeros(2), torch.tensor([0, 3]), torch.tensor(1)
    arguments = [fine.int(), first.int(), second.int()], ["linalg.inv", "linalg.cholesky", "linalg.inv"]
    check_errors([fine.int()], ["linalg.inv"], [False])
    with pytest.raises(torch.linalg.LinAlgError) as raised:
        check_errors(*arguments, [False, False, True])
    with pytest.raises(torch.linalg.LinAlgError) as wanted:
        torch.ops.aten._linalg_check_errors(first.int(), "linalg.cholesky", is_matrix=False)
    assert str(raised.value) == str(wanted.value)
