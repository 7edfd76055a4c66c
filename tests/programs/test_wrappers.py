"""Modules and wrappers of torch's that programs rely on, compiled by each backend for CPUs: as in eager.

Recurrent layers, parametrized and stateless modules, autocast, weights quantised by hand, collectives; tensors that no
graph holds (sparse, nested) are graph breaks, each with a reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import compile_fn, observe, t
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# Of torch's own: deprecated wrappers, sparse and nested tensors in beta.
pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass
class Case:
    """What is compared: ``make`` gives a new module, or a function; ``breaks``: what reasons are to be given."""

    make: Callable[[], Callable[..., Any]]
    args: Callable[[], tuple[Any, ...]] = lambda: (t(3, 4),)
    breaks: str = ""
    tolerance: float | None = None


class Calls(nn.Module):
    """A module whose forward is a function of it."""

    def __init__(self, call: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.call = call

    def forward(self, *args: Any) -> Any:
        """What ``call`` gives."""
        return self.call(self, *args)


class Symmetric(nn.Module):
    """A parametrization."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The upper triangle, mirrored."""
        return x.triu() + x.triu(1).mT


# --- recurrent layers ----------------------------------------------------------------------------------------------


def sequence() -> tuple[Any, ...]:
    return (t(2, 2, 4),)


def packed(self: Any, x: torch.Tensor) -> torch.Tensor:
    out, _ = self.layer(pack_padded_sequence(x * 2, [2, 1]))
    return pad_packed_sequence(out, total_length=2)[0] + 1


def steps(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = None
    for part in x:
        h = self.cell(part, h)
    assert h is not None
    return h


RECURRENT = {
    "lstm": Case(lambda: nn.LSTM(4, 3), sequence),
    "lstm, two directions": Case(lambda: nn.LSTM(4, 3, bidirectional=True, batch_first=True), sequence),
    "lstm with projection": Case(lambda: nn.LSTM(4, 3, proj_size=2), sequence),
    "lstm from a state": Case(lambda: nn.LSTM(4, 3), lambda: (t(2, 2, 4), (t(1, 2, 3), t(1, 2, 3)))),
    "lstm without a batch": Case(lambda: nn.LSTM(4, 3), lambda: (t(2, 4),)),
    "lstm with dropout": Case(lambda: nn.LSTM(4, 2, 2, dropout=0.5), sequence),
    "gru": Case(lambda: nn.GRU(4, 3), sequence),
    "gru of one step": Case(lambda: nn.GRU(4, 3), lambda: (t(1, 2, 4),)),
    "gru, two directions": Case(lambda: nn.GRU(4, 3, bidirectional=True, bias=False), sequence),
    "gru from a state": Case(lambda: nn.GRU(4, 3, batch_first=True), lambda: (t(2, 2, 4), t(1, 2, 3))),
    "rnn": Case(lambda: nn.RNN(4, 3, nonlinearity="relu"), sequence),
    "lstm cell": Case(lambda: nn.LSTMCell(4, 3)),
    "gru cell in a loop": Case(lambda: Calls(steps, cell=nn.GRUCell(4, 3)), sequence),
    "rnn cell in a loop": Case(lambda: Calls(steps, cell=nn.RNNCell(4, 3)), sequence),
    "packed": Case(lambda: Calls(packed, layer=nn.GRU(4, 3)), sequence),
}

# --- other parameters than its own ---------------------------------------------------------------------------------


def symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def cached(self: Any, x: torch.Tensor) -> torch.Tensor:
    with parametrize.cached():
        out: torch.Tensor = self.layer(self.layer(x))
        return out


def doubled(self: Any, x: torch.Tensor) -> Any:
    return torch.func.functional_call(self.layer, {k: v * 2 for k, v in self.layer.named_parameters()}, (x,))


def stateless(self: Any, x: torch.Tensor) -> Any:
    return nn.utils.stateless.functional_call(self.layer, {k: v * 2 for k, v in self.layer.named_parameters()}, x)


PARAMETRIZED = {
    "weight norm": Case(lambda: parametrizations.weight_norm(nn.Linear(4, 4))),
    "weight norm by a hook": Case(lambda: nn.utils.weight_norm(nn.Linear(4, 4))),
    "spectral norm": Case(lambda: parametrizations.spectral_norm(nn.Linear(4, 4))),
    "spectral norm, not training": Case(lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval()),
    "orthogonal": Case(lambda: parametrizations.orthogonal(nn.Linear(4, 4))),
    "one's own": Case(symmetric),
    "one's own, cached": Case(lambda: Calls(cached, layer=symmetric())),
    "pruned": Case(lambda: prune.random_unstructured(nn.Linear(4, 4), "weight", 0.5)),
    "functional call": Case(lambda: Calls(doubled, layer=nn.Linear(4, 4))),
    "stateless": Case(lambda: Calls(stateless, layer=nn.Linear(4, 4))),  # it warns that it is deprecated
}

# --- numbers of other kinds ----------------------------------------------------------------------------------------


def casts(self: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = self.layer(x)
        with torch.autocast("cpu", enabled=False):
            high = self.layer(x)
    return low.float() + high, low


class Sine(torch.autograd.Function):
    """In float32, whatever autocast says."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0].cos()


def casts_a_function(self: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return Sine.apply(self.layer(x))


@torch.autocast("cpu", dtype=torch.bfloat16)
def casts_by_a_decorator(self: Any, x: torch.Tensor) -> Any:
    return self.layer(x)


def int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = weight.abs().amax(1) / 127
    return (weight / scale[:, None]).round().to(torch.int8), scale


def weights_and_inputs(self: Any, x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(1, keepdim=True) / 127
    return torch._int_mm((x / scale).round().to(torch.int8), self.weight.t()).float() * scale * self.scale


def int8_weights(call: Callable[..., Any]) -> nn.Module:
    weight, scale = int8(t(8, 8))
    return Calls(call, weight=weight, scale=scale)


NUMBERS = {
    "autocast": Case(lambda: Calls(casts, layer=nn.Linear(4, 4)), tolerance=0.02),
    "autocast of a custom function": Case(lambda: Calls(casts_a_function, layer=nn.Linear(4, 4)), tolerance=0.02),
    "autocast, a decorator": Case(lambda: Calls(casts_by_a_decorator, layer=nn.Linear(4, 4)), tolerance=0.02),
    "int8 weights": Case(
        lambda: int8_weights(lambda m, x: F.linear(x, m.weight.to(x.dtype)) * m.scale), lambda: (t(3, 8),)
    ),
    "int8 weights and inputs": Case(lambda: int8_weights(weights_and_inputs), lambda: (t(32, 8),)),
    "int8 weights, torch's operator": Case(
        lambda: Calls(
            lambda m, x: torch._weight_int8pack_mm(x, m.weight, m.scale),
            weight=torch.randint(-128, 127, (8, 32), dtype=torch.int8),
            scale=torch.rand(8, dtype=torch.bfloat16),
        ),
        lambda: (t(4, 32).bfloat16(),),
        tolerance=0.02,
    ),
    "fake quantisation": Case(
        lambda: lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127) * 2,
        lambda: (t(3, 4, requires_grad=True),),
    ),
}

# --- tensors that no graph holds -----------------------------------------------------------------------------------


def jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([t(2, 3), t(4, 3)], layout=torch.jagged)


OUTSIDE = {
    "sparse inside": Case(lambda: lambda x: torch.sparse.mm((x * 2).to_sparse(), x.t()) + 1, breaks="sparse tensor"),
    "sparse from outside": Case(lambda: lambda a, x: a @ x + 1, lambda: (t(3, 4).to_sparse(), t(4, 2)), "sparse_coo"),
    "sparse by rows": Case(lambda: lambda x: x.relu().to_sparse_csr() @ x.t() + 1, breaks="sparse_csr"),
    "made sparse": Case(
        lambda: lambda x: torch.sparse_coo_tensor([[0, 1], [1, 0]], x[0, :2], (2, 2)).to_dense() + 1,
        breaks="sparse_coo",
    ),
    "a sparse gradient": Case(lambda: nn.Embedding(5, 3, sparse=True), lambda: (torch.tensor([1, 2, 1]),)),
    "nested inside": Case(
        lambda: lambda x: (torch.nested.nested_tensor([x[:2], x]) * 2).to_padded_tensor(0.0) + 1, breaks="layout"
    ),
    "nested from outside": Case(lambda: lambda n: (n * 2).values() + 1, lambda: (jagged(),), "jagged"),
    "quantised": Case(
        lambda: lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() + 1,
        breaks="a quantized tensor",
    ),
    "of a library": Case(lambda: lambda x: x.to_mkldnn().to_dense() + 1, breaks="mkldnn"),
}

CASES = {**RECURRENT, **PARAMETRIZED, **NUMBERS, **OUTSIDE}


def leaves(value: Any) -> list[torch.Tensor]:
    found = torch.utils._pytree.tree_leaves(value)
    return [leaf.to_dense() if leaf.is_sparse else leaf for leaf in found if isinstance(leaf, torch.Tensor)]


def story(case: Case, wrap: Callable[[Any], Any]) -> Any:
    """A training step, then one without gradients: results, gradients, buffers."""
    torch.manual_seed(0)
    target, args = case.make(), case.args()
    module = target if isinstance(target, nn.Module) else nn.Module()
    compiled, told = wrap(target), []
    for training in (True, False):
        torch.manual_seed(1)
        with torch.set_grad_enabled(training):
            results = leaves(compiled(*args))
        losses = [r.float().sum() for r in results if r.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()
        wanted = [*module.parameters(), *leaves(args)]
        told.append([r.detach().clone() for r in results])
        told.append([leaves(p.grad.clone())[0] for p in wanted if p.is_leaf and p.grad is not None])
        told.append([b.clone() for b in module.buffers()])
    return told


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_eager_gives(name: str, backend: str) -> None:
    case = CASES[name]
    with observe() as seen:
        found = story(case, lambda target: compile_fn(target, backend=backend))
    near = {} if case.tolerance is None else {"rtol": case.tolerance, "atol": case.tolerance}
    torch.testing.assert_close(found, story(case, lambda target: target), **near)
    told = [*seen.breaks, *seen.skips]
    if case.breaks:
        assert any(case.breaks in reason for reason in told), told
    elif "sparse" not in name:
        assert not told


def test_a_sparse_gradient_is_a_break_where_the_backward_is_a_graph() -> None:
    layer = nn.Embedding(5, 3, sparse=True)
    for backend, breaks in (("eager", 0), ("llvm_cpu", 1)):
        with observe() as seen:
            compile_fn(layer, backend=backend)(torch.tensor([1, 2])).sum().backward()
        assert len(seen.breaks) == breaks and all("sparse gradients" in reason for reason in seen.breaks)
        assert layer.weight.grad is not None and layer.weight.grad.is_sparse
    with observe() as seen, torch.no_grad():
        compile_fn(layer, backend="llvm_cpu")(torch.tensor([1, 2]))
    assert not seen.breaks


@pytest.fixture
def world() -> Iterator[None]:
    """One process that is a group by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        yield
        torch.distributed.destroy_process_group()


def group() -> Any:
    return torch.distributed.group.WORLD


COLLECTIVES: dict[str, Callable[[torch.Tensor], Any]] = {
    "all_reduce": lambda x: collectives.all_reduce(x * 2, "sum", torch.distributed.group.WORLD) + 1,
    "all_reduce twice": lambda x: collectives.all_reduce(collectives.all_reduce(x, "sum", group()) * 2, "sum", group()),
    "all_gather": lambda x: collectives.all_gather_tensor(x * 2, 0, group()) + 1,
    "all_gather with gradients": lambda x: collectives.all_gather_tensor_autograd(x * 2, 0, group()) * 3,
    "reduce_scatter": lambda x: collectives.reduce_scatter_tensor(x * 2, "sum", 0, group()) + 1,
    "all_to_all": lambda x: collectives.all_to_all_single(x * 2, None, None, group()) + 1,
    "several": lambda x: [v + 1 for v in collectives.all_reduce_coalesced([x, x * 2], "sum", group())],
    "broadcast": lambda x: collectives.broadcast(x.detach() * 2, 0, group()) + 1,
}


@pytest.mark.parametrize("backend", ["eager", "llvm_cpu"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_functional_collectives_are_operations(name: str, backend: str, world: None) -> None:
    fn = COLLECTIVES[name]
    compiled = compile_fn(fn, backend=backend, fullgraph=True)
    for requires_grad in (False, True):
        sides = []
        for run in (compiled, fn):
            x = t(4, 3, requires_grad=requires_grad)
            found = [collectives.wait_tensor(leaf) for leaf in leaves(run(x))]
            tracked = [leaf.sum() for leaf in found if leaf.requires_grad]
            gradient = torch.autograd.grad(torch.stack(tracked).sum(), x, allow_unused=True)[0] if tracked else None
            sides.append((found, [] if gradient is None else [gradient]))
        torch.testing.assert_close(*sides)


def test_a_collective_that_loses_the_gradient_as_an_operator_is_a_break(world: None) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return collectives.broadcast(x * 2, 0, group()) + 1

    gradients = []
    for run in (fn, compile_fn(fn, backend="llvm_cpu")):
        x = t(4, 3, requires_grad=True)
        gradients.append(torch.autograd.grad(run(x).sum(), x)[0])
    torch.testing.assert_close(*gradients)


def test_another_group_is_another_graph(world: None) -> None:
    def fn(x: torch.Tensor, over: Any) -> Any:
        return collectives.all_reduce(x * 2, "sum", over) + 1

    other = torch.distributed.new_group([0])
    compiled = compile_fn(fn, backend="eager", fullgraph=True)
    with observe() as seen:
        for over in (group(), other, group()):
            torch.testing.assert_close(compiled(t(3), over), t(3) * 2 + 1)
    assert len(seen.graphs) == 2
