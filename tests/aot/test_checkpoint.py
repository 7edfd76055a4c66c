"""torch.utils.checkpoint in a graph: its regions are computed again in the backward, as the user asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import compile_fn, observe, t
from torch import nn
from torch.utils.checkpoint import checkpoint

from jitney import events


class Blocks(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8), nn.Dropout(0.2)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x))
        return x


def trained(model: nn.Module, call: Any, x: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    """Gradients, and the elements saved by the forward that are no parameter's."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(saved: torch.Tensor) -> torch.Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    torch.manual_seed(7)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        out = call(x)
    out.pow(2).sum().backward()
    return [p.grad for p in model.parameters()], sum(kept.values())


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_gradients_and_memory(backend: str) -> None:
    torch.manual_seed(0)
    plain, checkpointed, eager = Blocks(False), Blocks(True), Blocks(True)
    checkpointed.load_state_dict(plain.state_dict())
    eager.load_state_dict(plain.state_dict())
    x = t(64, 8)
    wanted, _ = trained(eager, eager, x)
    with observe() as seen:
        got, less = trained(checkpointed, compile_fn(checkpointed, backend=backend), x)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    _, everything = trained(plain, compile_fn(plain, backend=backend), x)
    assert less < everything / 2
    assert not seen.breaks


def test_the_region_runs_again_in_the_backward_and_dropout_does_not() -> None:
    model = Blocks(True)
    graphs: dict[str, list[str]] = {}
    x = t(4, 8)

    def look(event: Any) -> None:
        if isinstance(event, events.AtenGraph):
            graphs[event.kind] = [str(n.target) for n in event.graph.nodes if n.op == "call_function"]

    with events.listen(look):
        compile_fn(model, backend="aot_eager")(x).sum().backward()
    assert graphs["forward"].count("aten.gelu.default") == 3
    assert graphs["backward"].count("aten.gelu.default") == 3
    assert graphs["backward"].count("aten.addmm.default") >= 3
    assert not any("bernoulli" in name for name in graphs["backward"])


def test_what_would_happen_twice_breaks() -> None:
    def make() -> tuple[Any, list[int]]:
        calls: list[int] = []
        linear = nn.Linear(4, 4)

        def region(x: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return linear(x).tanh().sin()

        return lambda x: checkpoint(region, x, use_reentrant=False) * 2, calls

    for wrap in (lambda f: f, lambda f: compile_fn(f, backend="aot_eager")):
        torch.manual_seed(0)
        fn, calls = make()
        wrap(fn)(t(3, 4, requires_grad=True)).sum().backward()
        assert calls == [1, 1]


def test_batch_norm_inside_counts_as_in_eager() -> None:
    states = []
    for wrap in (lambda f: f, lambda f: compile_fn(f, backend="aot_eager")):
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(4)
        torch.manual_seed(1)
        x = torch.randn(6, 4, requires_grad=True)
        wrap(lambda x, norm=norm: checkpoint(norm, x, use_reentrant=False).sin())(x).sum().backward()
        states.append([norm.running_mean, norm.num_batches_tracked, x.grad])
    torch.testing.assert_close(states[0], states[1])


def test_writes_to_what_the_frame_made_break() -> None:
    def tensors(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 1

        def region(a: torch.Tensor) -> torch.Tensor:
            z.mul_(2)
            return a * z

        return checkpoint(region, y, use_reentrant=False)

    def lists(x: torch.Tensor, y: torch.Tensor) -> Any:
        calls: list[int] = []

        def region(a: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return a.sin() * x

        return checkpoint(region, y, use_reentrant=False), calls

    x, y = t(4), t(4)
    for program in (tensors, lists):
        seen = []
        for wrap in (lambda f: f, lambda f: compile_fn(f, backend="aot_eager")):
            leaf = y.clone().requires_grad_()
            result = wrap(program)(x.clone(), leaf)
            first = result[0] if isinstance(result, tuple) else result
            first.pow(2).sum().backward()
            seen.append((leaf.grad, result[1:] if isinstance(result, tuple) else None))
        torch.testing.assert_close(*seen)


def plain_statistics() -> Any:
    """A batch norm that counts no batches, so that only its statistics are written, which no version tells."""
    norm = nn.BatchNorm1d(4)
    norm.num_batches_tracked = None
    mean = norm.running_mean
    assert mean is not None
    return lambda x: checkpoint(lambda x: norm(x).sin() * mean, x, use_reentrant=False) * mean, norm


def norm_before_and_inside() -> Any:
    norm = nn.BatchNorm1d(4)
    return lambda x: checkpoint(norm, norm(x), use_reentrant=False).sin(), norm


def written_before_and_inside() -> Any:
    norm = nn.BatchNorm1d(4)

    def program(x: torch.Tensor) -> torch.Tensor:
        norm.running_var.add_(1)  # type: ignore[union-attr]

        def region(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                norm.running_var.mul_(2)  # type: ignore[union-attr]
            return x.sin().sin()

        return checkpoint(region, x, use_reentrant=False)

    return program, norm


def written_after() -> Any:
    norm = nn.BatchNorm1d(4)
    mean = norm.running_mean
    return lambda x: norm(checkpoint(lambda x: (x * mean).sin() * mean, x, use_reentrant=False)) * mean, norm


@pytest.mark.parametrize("make", [plain_statistics, norm_before_and_inside, written_before_and_inside, written_after])
def test_what_reads_running_statistics_reads_eagers(make: Any) -> None:
    seen = []
    for wrap in (lambda f: f, lambda f: compile_fn(f, backend="aot_eager")):
        torch.manual_seed(0)
        program, norm = make()
        call, x = wrap(program), torch.randn(6, 4, requires_grad=True)
        for _ in range(2):
            call(x).pow(2).sum().backward()
        seen.append([x.grad, *norm.buffers()])
    torch.testing.assert_close(*seen)


def test_batch_norm_without_statistics_stays_a_region() -> None:
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    with observe() as seen:
        call = compile_fn(lambda x: checkpoint(norm, x, use_reentrant=False).sin(), backend="aot_eager")
        call(t(6, 4, requires_grad=True)).sum().backward()
    assert not seen.breaks


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_a_compiled_function_may_be_the_region(backend: str, create: bool) -> None:
    """torch leaves the second run by an exception as soon as it has what it needs, which no fault of the graph is."""

    def story(wrap: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x, found = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), t(5, 3).requires_grad_(), []
        run = wrap(model)
        for _ in range(2):
            out = checkpoint(run, x * 2, use_reentrant=False).square().sum()
            (grad,) = torch.autograd.grad(out, x, create_graph=create)
            found += [grad, *(torch.autograd.grad(grad.square().sum(), x) if create else ())]
        return found

    for a, b in zip(story(lambda m: compile_fn(m, backend=backend)), story(lambda m: m), strict=True):
        torch.testing.assert_close(a, b)
