"""CUDA graphs on a device."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch import nn

import jitney
from jitney_triton_gpu.cuda_graphs import recorded
from jitney_triton_gpu.cuda_graphs.device import recorder
from jitney_triton_gpu.cuda_graphs.recorded import Recorded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="records on a GPU")


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Are recorded too."""
    monkeypatch.setattr(recorded, "LEAST", 1)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for each replay."""
    found: list[int] = []
    recording = Recorded._recording

    def noting(self: Recorded, inputs: Any) -> Any:
        made = recording(self, inputs)
        if made is not None:
            found.append(len(found))
        return made

    monkeypatch.setattr(Recorded, "_recording", noting)
    return found


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64), nn.BatchNorm1d(64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 8)]
    return nn.Sequential(*layers).cuda()


@pytest.mark.parametrize("keeps", [False, True])
def test_training_is_the_same(replayed: list[int], keeps: bool) -> None:
    """As without graphs, with a list of losses; gradients that are kept are added to."""
    mine, theirs = model(), model()
    compiled = jitney.compile(mine, backend="triton_gpu", mode="reduce-overhead")
    plain = jitney.compile(theirs, backend="triton_gpu")
    losses: list[list[torch.Tensor]] = [[], []]
    for step in range(12):
        x = torch.randn(16, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        for n, (fn, module) in enumerate(((compiled, mine), (plain, theirs))):
            loss = fn(x).square().mean()
            loss.backward()
            losses[n].append(loss.detach())
            if not keeps or step % 3 == 2:
                with torch.no_grad():
                    for p in module.parameters():
                        p -= 0.1 * p.grad
                        p.grad = None
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-6)
    assert len(replayed) > 10


def test_random_numbers_go_on(replayed: list[int]) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(1000, device="cuda")
    compiled = jitney.compile(noisy, backend="triton_gpu", options={"cudagraphs": True})
    found = []
    for fn in (noisy, compiled):
        torch.manual_seed(0)
        found.append([fn(x) for _ in range(8)])
    torch.testing.assert_close(found[1], found[0])
    assert replayed


def test_within_the_users_own_recording() -> None:
    module = model().eval()
    compiled = jitney.compile(module, backend="triton_gpu", mode="reduce-overhead")
    x = torch.randn(16, 32, device="cuda")
    with torch.no_grad():
        for _ in range(5):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = compiled(x)
        x.copy_(torch.randn(16, 32, device="cuda"))
        graph.replay()
        torch.testing.assert_close(made, module(x))


@pytest.mark.parametrize("who", ["somebody", "a graph that is gone"])
def test_workspaces_that_are_taken_back(replayed: list[int], who: str) -> None:
    """cuBLAS's memory is recorded, and must not become another tensor's.

    torch takes it back when a CUDA graph of the same stream goes (pytorch issue 193402), and torch.compile does around
    its recordings.
    """
    mine = model().eval()
    large = torch.randn(2048, 2048, device="cuda")
    x = torch.randn(16, 32, device="cuda")
    options = {"cudagraphs": True}
    compiled = jitney.compile(mine, backend="triton_gpu", options=options)
    product = jitney.compile(lambda x: (x @ x).relu() @ x + 1, backend="triton_gpu", options=options)
    other = jitney.compile(lambda x: (x @ x).sin() @ x, backend="triton_gpu", options=options)
    with torch.no_grad():
        for _ in range(6):
            compiled(x), product(large), other(large)
        torch.cuda.synchronize()
        if who == "somebody":
            torch._C._cuda_clearCublasWorkspaces()
        else:
            del other
            gc.collect()
        torch.cuda.empty_cache()
        taken = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(32)]
        for _ in range(3):
            torch.testing.assert_close(compiled(x), mine(x), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(product(large), (large @ large).relu() @ large + 1, rtol=1e-4, atol=1e-2)
            assert all(bool((t == 7).all()) for t in taken)
    assert replayed


def test_a_graph_of_operators_alone(replayed: list[int]) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)

    compiled = jitney.compile(attention, backend="triton_gpu", mode="reduce-overhead")
    args = [torch.randn(2, 4, 64, 32, device="cuda") for _ in range(3)]
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(compiled(*args), attention(*args), rtol=1e-4, atol=1e-4)
    assert replayed


def test_streams_take_turns(replayed: list[int]) -> None:
    module = model().eval()
    compiled = jitney.compile(module, backend="triton_gpu", mode="reduce-overhead")
    streams = [torch.cuda.Stream() for _ in range(2)]
    with torch.no_grad():
        for step in range(20):
            x = torch.randn(16, 32, device="cuda")
            stream = streams[step % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                made = compiled(x)
                wanted = module(x)
            torch.cuda.current_stream().wait_stream(stream)
            torch.testing.assert_close(made, wanted)
            x.record_stream(stream)
    assert replayed


def test_a_recording_that_fails_leaves_all_as_it_was() -> None:
    device = recorder(torch.device("cuda", torch.cuda.current_device()))
    x = torch.randn(5, device="cuda")
    with pytest.raises(RuntimeError):
        device.record(lambda: [x + x.sum().item()])
    assert torch.rand(3, device="cuda").shape == (3,)
    made, replay = device.record(lambda: [x * 2])
    replay()
    torch.testing.assert_close(made[0], x * 2)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        taken = torch.ones(5, device="cuda")
    del taken, pool  # torch ends the process if it believes that something is recorded
    torch.cuda.empty_cache()


def test_what_waits_for_the_device_is_not_recorded(replayed: list[int]) -> None:
    def picks(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum() + torch.nonzero(x).sum()

    compiled = jitney.compile(picks, backend="triton_gpu", mode="reduce-overhead")
    for _ in range(6):
        x = torch.randn(50, device="cuda")
        torch.testing.assert_close(compiled(x), picks(x))


def test_a_copy_of_a_compiled_model(replayed: list[int]) -> None:
    module = model().eval()
    compiled = jitney.compile(module, backend="triton_gpu", mode="reduce-overhead")
    x = torch.randn(16, 32, device="cuda")
    with torch.no_grad():
        for fn in (compiled, copy.deepcopy(compiled)):
            for _ in range(5):
                torch.testing.assert_close(fn(x), module(x))


class Deep(nn.Module):
    """Launches much and computes little."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(12)])
        self.register_buffer("seen", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x).softmax(-1)
        if not self.training:
            self.seen += x.sum(0)
        return x


def test_what_launches_much_is_recorded_without_being_asked(replayed: list[int]) -> None:
    """Results are the program's to keep, on any stream; buffers are written, settings heeded, numbers eager's."""
    mine = Deep().cuda().eval()
    theirs = copy.deepcopy(mine)
    compiled = jitney.compile(mine, backend="triton_gpu")
    held, wanted = [], []
    side = torch.cuda.Stream()
    with torch.no_grad():
        for step in range(10):
            x = torch.randn(64, 32, device="cuda")
            made = compiled(x)
            wanted.append(theirs(x))
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(100_000)
                held.append(made * 1)
            made.record_stream(side)
            del made
    torch.cuda.synchronize()
    torch.testing.assert_close(held, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine.seen, theirs.seen, rtol=1e-5, atol=1e-4)
    assert len(replayed) == 6


def test_training_is_recorded_without_being_asked(replayed: list[int]) -> None:
    """Gradients that are kept are added to; a forward that runs twice before its backward is launched."""
    mine = Deep().cuda()
    theirs = copy.deepcopy(mine)
    compiled = jitney.compile(mine, backend="triton_gpu")
    for step in range(18):
        for fn, module in ((compiled, mine), (theirs, theirs)):
            torch.manual_seed(step)
            losses = [fn(torch.randn(64, 32, device="cuda")).square().mean() for _ in range(1 + step // 12)]
            torch.stack(losses).sum().backward()
            if step % 3 == 2:
                with torch.no_grad():
                    for p in module.parameters():
                        p -= 0.1 * p.grad
                        p.grad = None
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-5)
    assert len(replayed) > 10


def test_operators_of_others_are_never_recorded_without_being_asked(replayed: list[int]) -> None:
    """They may do anything at each call."""
    calls: list[int] = []

    @torch.library.custom_op("jitney_test_graphs::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + 1

    @noted.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    module = Deep().cuda().eval()
    compiled = jitney.compile(lambda x: noted(module(x)), backend="triton_gpu")
    with torch.no_grad():
        for _ in range(6):
            compiled(torch.randn(64, 32, device="cuda"))
    assert len(calls) == 6 and not replayed
