"""Float64 as referee between two roundings."""

from __future__ import annotations

import pytest
import torch

from jitney.backends import Backend
from jitney_testing.opinfo.case import try_case
from jitney_testing.opinfo.referee import as_good, wide
from jitney_testing.opinfo.samples import Call, Case

pytestmark = pytest.mark.filterwarnings("default")


def truth_and(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    truth = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return truth, truth.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_better_of_two_roundings_is_as_good(dtype: torch.dtype) -> None:
    truth, best = truth_and(dtype)
    rough = best * (1 + 20 * torch.finfo(dtype).eps)
    assert as_good([rough], [best], [truth])
    assert not as_good([best], [rough], [truth])


def test_a_result_that_is_twice_as_far_and_more_is_not() -> None:
    truth, best = truth_and(torch.float32)
    eager = best + 1e-4
    assert as_good((eager,), (best - 1.9e-4,), (truth,))
    assert not as_good((eager,), (best - 2.1e-4,), (truth,))


def test_what_is_not_finite_must_be_eagers() -> None:
    truth, best = truth_and(torch.float32)
    eager, found = best.clone(), best + 1e-7
    eager[3], found[3] = torch.inf, torch.inf
    assert as_good(eager, found, truth)
    found[3] = torch.nan
    assert not as_good(eager, found, truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_one_element_that_is_wrong_is_seen_among_many(dtype: torch.dtype) -> None:
    truth = torch.randn(10000, dtype=wide(dtype), generator=torch.Generator().manual_seed(0))
    eager = truth.to(dtype)
    found = eager.clone()
    found[(truth.abs() - 0.5).abs().argmin()] = 0
    assert as_good([eager], [eager.clone()], [truth])
    assert not as_good([eager], [found], [truth])


def test_where_there_is_no_truth_eager_is_right() -> None:
    truth, eager = torch.full((4,), torch.nan, dtype=torch.float64), torch.ones(4)
    assert as_good(eager, eager.clone(), truth)
    assert not as_good(eager, eager * 7, truth)


def test_integers_have_no_roundings() -> None:
    numbers = torch.arange(5)
    assert not as_good([numbers], [numbers + 1], [numbers])


def test_arguments_get_wide() -> None:
    x = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    found = wide({"x": [x, 1, torch.arange(2)], "dtype": torch.float32})
    assert found["x"][0].dtype is torch.float64 and found["x"][0].requires_grad
    assert found["x"][2].dtype is torch.int64 and found["dtype"] is torch.float64


def chain(dtype: torch.dtype, variant: str = "call") -> Call:
    """Many roundings in eager."""

    def function(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        for _ in range(11):
            x = (x + 100) * 1.01 - 101
        return torch.sub((x + 100) * 1.01, 101, out=out)

    x = torch.randn(50, generator=torch.Generator().manual_seed(0)).to(dtype)
    return Call(Case("chain", str(dtype), variant, 0), function, (x,), {}, False, lambda result: result)


@pytest.mark.parametrize("variant", ["call", "out"])
@pytest.mark.parametrize(("factor", "passes"), [(1.01, False), (1.0, True)])
def test_a_case_is_judged_by_it(factor: float, passes: bool, variant: str) -> None:
    """A backend with one rounding where eager has many is right, one that is off is not."""

    def compile_graph(graph, inputs, request):  # type: ignore[no-untyped-def]
        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            made = graph.forward(*(a.double() if a.is_floating_point() else a for a in args))
            return [(m * factor).to(args[0].dtype) if m.is_floating_point() else m for m in made]

        return run

    precise = Backend(name="precise", compile=compile_graph, level="aten")
    outcome = try_case(chain(torch.bfloat16, variant), precise)
    assert outcome.refereed and outcome.forward
    assert try_case(chain(torch.float32, variant), precise).forward is passes
