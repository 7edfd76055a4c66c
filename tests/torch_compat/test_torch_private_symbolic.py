"""Operators on stand-ins of symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins import strides

REFUSAL = "Cannot call numel() on tensor with symbolic sizes/strides"


def in_python_form() -> bool:
    return bool(torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PythonDispatcher))


def test_what_refuses_symbols_runs_in_its_python_form() -> None:
    forms: list[bool] = []

    def picky(x: int, *, y: int) -> int:
        forms.append(in_python_form())
        if not forms[-1]:
            raise RuntimeError(REFUSAL)
        return x + y

    assert torch_private.run_on_stand_ins(picky, (1,), {"y": 2}) == 3
    assert forms == [False, True]


def test_other_errors_are_what_they_are() -> None:
    calls: list[Any] = []

    def wrong() -> None:
        calls.append(None)
        raise RuntimeError("no symbols in this")

    with pytest.raises(RuntimeError, match="no symbols"):
        torch_private.run_on_stand_ins(wrong, (), {})
    assert len(calls) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_product_that_refuses_symbols_is_captured(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``matmul`` of torch 2.11 does on CUDA."""

    def refusing(func: Any, args: Any, kwargs: Any) -> Any:
        symbolic = any(isinstance(n, torch.SymInt) for a in args if isinstance(a, torch.Tensor) for n in a.shape)
        if getattr(func, "__name__", "") == "matmul" and symbolic and not in_python_form():
            raise RuntimeError(REFUSAL)
        return func(*args, **kwargs)

    run = torch_private.run_on_stand_ins
    seen: list[str] = []

    def noting(func: Any, args: Any, kwargs: Any, *call: Any) -> Any:
        seen.append(getattr(func, "__name__", ""))
        return run(lambda *a, **k: refusing(func, a, k), args, kwargs, *call)

    monkeypatch.setattr(torch_private, "run_on_stand_ins", noting)
    captured: list[Any] = []
    compiled = jitney.compile(lambda x, w: torch.matmul(x, w).relu(), backend=backend, dynamic=True, fullgraph=True)
    w = torch.randn(4, 4)
    with jitney.events.listen(lambda e: captured.append(e) if isinstance(e, jitney.events.FrameCaptured) else None):
        for n in (2, 5, 7):
            x = torch.randn(n, 3, 4)
            torch.testing.assert_close(compiled(x, w), torch.matmul(x, w).relu())
    assert len(captured) == 1 and "matmul" in seen


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "integer": lambda x: torch.ops.aten.mul.Tensor(x, 1),
    "float": lambda x: torch.ops.aten.mul.Tensor(x, 1.0),
    "bool": lambda x: torch.ops.aten.mul.Tensor(x, True),
    "list": lambda x: torch.ops.aten.sum.dim_IntList(x, [0], True),
    "list of tensors": lambda x: torch.ops.aten.cat.default([x, x], 0),
    "dtype": lambda x: torch.ops.aten.sum.default(x, dtype=torch.float64),
    "view": lambda x: torch.ops.aten.view.default(x, [12]) if x.is_contiguous() else x.t(),
    "tuple of results": lambda x: torch.ops.aten.max.dim(x, 1),
    "in place": lambda x: torch.ops.aten.add_.Tensor(x.detach(), 1),
}
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(3, 4),
    "integers": lambda: torch.ones(3, 4, dtype=torch.int64),
    "transposed": lambda: torch.ones(4, 3).t(),
    "a part": lambda: torch.ones(24)[12:].view(3, 4),
    "gradient": lambda: torch.ones(3, 4, requires_grad=True),
    "conjugated": lambda: torch.ones(3, 4, dtype=torch.complex64).conj(),
    "no elements": lambda: torch.ones(0, 4),
}


def test_what_is_looked_up_of_stand_ins_is_what_torch_computes() -> None:
    """Each call twice, the second from torch's cache, which torch compares with what the operator gives."""
    mode = torch_private.LeanFakeTensorMode()
    mode.cache_crosscheck_enabled = True
    hits = mode.cache_hits
    with mode:
        for _ in range(3):
            for make in TENSORS.values():
                for call in CALLS.values():
                    x = mode.from_tensor(make())
                    if x.is_complex() and call is CALLS["tuple of results"] or not x.numel() and call is CALLS["view"]:
                        continue
                    call(x)
    assert mode.cache_hits - hits > len(TENSORS) * len(CALLS)


def test_equal_numbers_of_other_types_are_told_apart() -> None:
    mode = torch_private.LeanFakeTensorMode()
    with mode:
        x = torch.ones(2, dtype=torch.int64)
        for _ in range(2):
            assert torch.ops.aten.mul.Tensor(x, 1).dtype is torch.int64
            assert torch.ops.aten.mul.Tensor(x, 1.0).dtype is torch.float32
            assert torch.ops.aten.mul.Tensor(x > 0, True).dtype is torch.bool


def test_parts_of_memory_of_unknown_size_have_keys_of_their_own() -> None:
    """The part has plain sizes, its memory does not."""
    compiled = jitney.compile(lambda x: x[:2].sin() + x[1:3].cos(), backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (4, 5, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), x[:2].sin() + x[1:3].cos())


def test_strides_beside_a_size_that_only_the_running_graph_knows() -> None:
    def fn(x: torch.Tensor, chosen: torch.Tensor) -> Any:
        made = x[:, chosen]
        return made.stride(), made.new_empty(made.stride()).shape, made * 2

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    x = torch.arange(6.0).reshape(2, 3)
    for flags in ([True, False, True], [False, False, True], [True, True, True]):
        got, wanted = compiled(x, torch.tensor(flags)), fn(x, torch.tensor(flags))
        assert got[:2] == wanted[:2] and torch.equal(got[2], wanted[2])


def test_what_torch_remembers_of_stand_ins_does_not_grow_with_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strides, "REMEMBERED", 5)
    remembered = torch_private.FakeTensorMode.cache
    for number in range(20):
        jitney.compile(lambda x, k=float(number): x * k, backend="eager")(torch.ones(2))
    assert len(remembered) < 15
