"""``out=``: what kernels refuse is refused when compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import jitney

OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "clamp": lambda x, out: torch.clamp(x, 0, 1, out=out),
    "neg": lambda x, out: torch.neg(x, out=out),
    "softmax": lambda x, out: torch.softmax(x, 0, out=out),
    "tril": lambda x, out: torch.tril(x, out=out),
    "amax": lambda x, out: torch.amax(x, 0, out=out),
    "sort": lambda x, out: torch.sort(x, out=(out, torch.empty(0, dtype=torch.long))),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_out_of_another_dtype_is_refused_as_in_eager(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(0, dtype=torch.float64)
        OPERATIONS[name](x, out)
        return out

    with pytest.raises(RuntimeError) as eager:
        f(torch.ones(3, 3))
    with pytest.raises(RuntimeError) as compiled:
        jitney.compile(f, backend="aot_eager")(torch.ones(3, 3))
    assert str(compiled.value) == str(eager.value)


def test_out_of_the_results_dtype_and_factories_stay_in_one_graph() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, filled = torch.empty(3, 3), torch.empty(2, dtype=torch.half)
        torch.neg(x, out=out)
        torch.zeros(2, out=filled)
        return out, filled

    x = torch.ones(3, 3)
    out, filled = jitney.compile(f, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(out, -x)
    assert filled.dtype is torch.half and not filled.any()


def test_no_warning_where_a_size_depends_on_data() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        ends = torch.zeros(4, dtype=torch.long)
        torch.cumsum(torch.bincount(x, minlength=3), 0, out=ends[1:])
        return ends

    compiled = jitney.compile(f, backend="eager")
    for x in (torch.tensor([1, 2, 1]), torch.tensor([2, 0, 1, 1])):  # warnings are errors
        assert torch.equal(compiled(x), f(x))


def test_no_generator_is_said_for_sizes_that_change() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[0]
        drawn = torch.randn(x.shape, generator=None), torch.rand(n, generator=None), torch.randperm(n, generator=None)
        return (*drawn, torch.randint(0, 5, (n,), generator=None), x.clone().normal_(generator=None))

    compiled = jitney.compile(f, backend="aot_eager", fullgraph=True)
    for n in (2, 3, 4, 5):
        torch.manual_seed(n)
        expected = f(torch.ones(n))
        torch.manual_seed(n)
        for got, want in zip(compiled(torch.ones(n)), expected, strict=True):
            assert torch.equal(got, want)
