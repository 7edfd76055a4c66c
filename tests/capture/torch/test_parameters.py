"""Parameters, buffers and whole modules made in compiled code: one graph, with eager's draws in eager's order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import FRONTEND, check, compile_fn, observe
from torch import nn

import jitney

pytestmark = pytest.mark.skipif(FRONTEND != "jitney", reason="graphs are counted")
BACKENDS = ("eager", "aot_eager", "llvm_cpu")


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
        self.register_buffer("calls", torch.zeros(()))
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x) * self.weight + self.calls


def written(x: torch.Tensor) -> Any:
    layer = nn.Linear(8, 8)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.mul_(2)
    return layer(x), layer.weight


def replaced(x: torch.Tensor) -> Any:
    layer = nn.Linear(8, 8)
    layer.weight.data = torch.ones(8, 8)
    layer.weight.data.normal_(0, 0.1)
    return layer(x), layer.weight


def returned(x: torch.Tensor) -> Any:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    return model(x), model


class Weighted(nn.Module):
    """As losses have their weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.arange(float(width)))
        self.offset = nn.Buffer(self.weight * 2, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.offset


def weighted(x: torch.Tensor) -> Any:
    model = Weighted(8)
    return model(x), model, list(dict(model.named_buffers())), model.offset.persistent, isinstance(x, nn.Buffer)


def answers(x: torch.Tensor) -> Any:
    p = nn.Parameter(x.detach())
    return p * x, p.requires_grad, p.is_leaf, p.grad_fn is None, isinstance(p, nn.Parameter), type(p) is nn.Parameter


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the troubleshooting page's": lambda x: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU())(x),
    "a parameter": lambda x: nn.Parameter(torch.zeros(8)) + x,
    "a parameter returned": lambda x: (nn.Parameter(torch.zeros(8)) + x, nn.Parameter(torch.ones(2))),
    "without a gradient": lambda x: (x * 2, nn.Parameter(x.detach() * 2, requires_grad=False)),
    "of an argument": lambda x: (x * 2, nn.Parameter(data=x)),
    "of a parameter": lambda x: (x * 2, nn.Parameter(nn.Parameter(torch.ones(3)))),
    "of nothing": lambda x: (x * 2, nn.Parameter()),
    "a buffer": lambda x: (x * 2, nn.Buffer(x.detach() + 1), nn.Buffer(x.detach(), persistent=False)),
    "a module with buffers": weighted,
    "answers": answers,
    "embedding": lambda x: nn.Embedding(10, 8, padding_idx=2)(torch.arange(4)) + x,
    "convolution": lambda x: nn.Conv2d(1, 2, 3)(x[None, None]),
    "attention": lambda x: nn.MultiheadAttention(8, 2)(x, x, x)[0],
    "lstm": lambda x: nn.LSTM(8, 4, 2)(x)[0],
    "transformer": lambda x: nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.1)(x),
    "batch norm": lambda x: nn.BatchNorm1d(8)(x),
    "a class of the program's": lambda x: Counted()(x),
    "written to": written,
    "a module returned": returned,
    "frozen": lambda x: nn.Linear(8, 8).requires_grad_(False)(x),
    "converted": lambda x: (nn.Linear(8, 8).double()(x.double()), nn.Sequential(nn.Linear(8, 8), nn.ReLU()).half()),
    "moved": lambda x: nn.BatchNorm1d(8).to(torch.float64).eval()(x.to(torch.float64)),
    "with other data": replaced,
    "of another dtype": lambda x: nn.Linear(8, 8, dtype=torch.float64).eval()(x.double()),
}


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        facts = (type(value), value.requires_grad, value.is_leaf, getattr(value, "persistent", None), value.stride())
        return [*facts, value.detach().clone(), value.grad if value.is_leaf else None]
    if isinstance(value, nn.Module):
        return [
            type(value),
            value.training,
            list(value.state_dict()),
            described(list(value.state_dict(keep_vars=True).values())),
        ]
    return list(map(described, value)) if isinstance(value, (list, tuple)) else value


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, wanted)
    elif isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert_same(a, b)
    else:
        assert found == wanted


def run(fn: Any, calls: int, trains: bool) -> Any:
    """Results, arguments and gradients of calls with one seed for all of them."""
    torch.manual_seed(1)
    seen = []
    for _ in range(calls):
        x = torch.randn(4, 8).requires_grad_(trains)
        result = fn(x)
        first = result[0] if isinstance(result, tuple) else result
        if first.requires_grad:
            first.sum().backward()
        seen.append(described([result, x]))
    return seen


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["trained", "made", "no_grad", "inference"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_is_one_graph_with_eagers_draws(name: str, mode: str, backend: str) -> None:
    fn = PROGRAMS[name]
    scopes: dict[str, Any] = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
    scope = scopes.get(mode, contextlib.nullcontext)
    with scope():
        wanted = run(fn, 3, mode == "trained")
        with observe() as seen:
            found = run(compile_fn(fn, backend=backend), 3, mode == "trained")
    assert_same(found, wanted)
    assert len(seen.graphs) == 1 and not seen.breaks


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_what_is_not_returned_is_compiled_with_its_backward(backend: str) -> None:
    with observe() as seen:
        fn = compile_fn(PROGRAMS["the troubleshooting page's"], backend=backend, fullgraph=True)
        fn(torch.randn(4, 8, requires_grad=True)).sum().backward()
        with torch.no_grad():
            fn(torch.randn(4, 8))
    assert not seen.kept


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_change(backend: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        scale = nn.Parameter(torch.ones(x.shape[0], 1))
        return scale * x, scale

    compiled = compile_fn(fn, backend=backend, dynamic=True)
    with observe() as seen:
        for size in (3, 5, 7):
            x = torch.randn(size, 8)
            assert_same(described(list(compiled(x))), described(list(fn(x))))
    assert len(seen.graphs) == 1


def test_a_module_made_before_a_graph_break_goes_on_after_it() -> None:
    def fn(x: torch.Tensor) -> Any:
        model = nn.Linear(8, 8)
        print("made")
        return model(x), model.weight

    check(fn, torch.randn(4, 8), breaks=1)


def test_a_replaced_constructor_is_not_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor) -> Any:
        return nn.Parameter(x) + 1

    compiled = compile_fn(fn)
    compiled(torch.ones(2))
    original = nn.Parameter.__new__
    monkeypatch.setattr(nn.Parameter, "__new__", lambda cls, data, requires_grad=True: original(cls, data * 2))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_what_it_does_not_take_raises_as_in_eager() -> None:
    for fn in (lambda x: nn.Parameter(x.int()), lambda x: nn.Parameter(x, True, 3), lambda x: nn.Parameter(3)):
        with pytest.raises(Exception) as wanted:
            fn(torch.ones(2))
        with pytest.raises(type(wanted.value)) as found:
            compile_fn(fn)(torch.ones(2))
        assert str(found.value) == str(wanted.value)


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("yes and no")


@pytest.mark.parametrize("flag", [True, False, 1, 0, None, "yes", 2.5, Undecided()])
def test_a_buffer_keeps_its_flag_as_it_is_given(flag: Any) -> None:
    def fn(x: torch.Tensor, flag: Any) -> Any:
        made = nn.Buffer(x * 2, persistent=flag)
        module = nn.Module()
        if not isinstance(flag, Undecided):
            module.made = made
        return made, made.persistent, list(module.state_dict())

    for found in (fn(torch.ones(2), flag), compile_fn(fn, backend="eager")(torch.ones(2), flag)):
        made, asked, names = found
        assert type(made.persistent) is type(flag)
        assert made.persistent == flag
        assert asked == flag
        assert names == (["made"] if not isinstance(flag, Undecided) and flag else [])


def test_a_module_made_inside_is_moved_to_where_a_tensor_is() -> None:
    def fn(x: torch.Tensor) -> Any:
        made = nn.Linear(3, 2).to(x)
        frozen = nn.Linear(2, 2).to(x, True)
        return frozen(made(x))

    def scenario(wrap: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        called = wrap(fn)
        return [called(torch.ones(4, 3, dtype=dtype)) for dtype in (torch.float32, torch.float64)]

    wanted = scenario(lambda fn: fn)
    with observe() as seen:
        torch.testing.assert_close(scenario(lambda fn: jitney.compile(fn, backend="eager")), wanted)
    assert len(seen.breaks) == 0
