"""The backend under torch.compile's own front end."""

from __future__ import annotations

import warnings

import pytest
import torch

from jitney.errors import InvalidOption


@pytest.fixture(autouse=True)
def _afresh() -> None:
    torch.compiler.reset()


def test_a_model_trains_under_torch_compile() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).double()  # rounds little
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own front end
        compiled = torch.compile(model, backend="jitney_llvm_cpu")
        for rows in (4, 7, 9):  # the second size makes it symbolic
            found = []
            for run in (model, compiled):
                x = torch.linspace(-1, 1, rows * 8).double().reshape(rows, 8).requires_grad_()
                model.zero_grad()
                result = run(x)
                result.square().sum().backward()
                found.append([result.detach(), x.grad, *[p.grad.clone() for p in model.parameters()]])
            for wanted, got in zip(*found, strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_options_are_checked() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(fn, backend="jitney_llvm_cpu", options={"vector_bytes": 16})
        assert torch.equal(compiled(torch.zeros(3)), torch.ones(3))
        with pytest.raises(Exception, match="has no option 'vectors'") as caught:
            torch.compile(fn, backend="jitney_llvm_cpu", options={"vectors": 16})(torch.zeros(4))
    causes = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(cause, InvalidOption) for cause in causes)
