"""Products of a few rows or columns, which are sums that fuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.decomposition import products

PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm, torch.ops.aten.baddbmm}
Run = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """On whatever device the tests run."""
    monkeypatch.setattr(products, "DEVICE", device.type)


def normal(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)))


THREE = normal(5), normal(6, 2), normal(2, 5)
BATCHES = normal(4, 6, 5), normal(4, 6, 2), normal(4, 2, 5)
PROGRAMS: dict[str, tuple[Run, tuple[torch.Tensor, ...]]] = {
    "points turned": (lambda x, r: (x @ r.t()).relu(), (normal(37, 3), normal(3, 3))),
    "a layer of coordinates": (lambda x, w, b: F.linear(x, w, b).relu(), (normal(2, 9, 3), normal(16, 3), normal(16))),
    "a layer of two results": (lambda x, w, b: F.linear(x, w, b) * 2, (normal(3, 40), normal(2, 40), normal(2))),
    "places of an image": (lambda t, g: (g @ t.transpose(1, 2)).sin(), (normal(3, 2, 3), normal(3, 20, 3))),
    "statistics": (lambda x: x.t() @ x / x.shape[0], (normal(50, 4),)),
    "many statistics": (lambda x: x.transpose(1, 2) @ x, (normal(5, 30, 3),)),
    "one column by one row": (lambda a, b: a @ b + 1, (normal(7, 1), normal(1, 9))),
    "shares of all three": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), THREE),
    "nothing of the first": (lambda c, a, b: torch.addmm(c, a, b, beta=0), (THREE[0] * torch.nan, *THREE[1:])),
    "batches and a sum": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=3), BATCHES),
    "turned operands": (lambda a, b: (a.t() @ b.t()).tanh(), (normal(3, 11), normal(8, 3))),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_and_their_gradients_are_eagers(
    name: str, dtype: torch.dtype, dynamic: bool, device: torch.device
) -> None:
    program, given = PROGRAMS[name]
    found, graphs = [], list[events.AtenGraph]()
    with events.listen(lambda e: graphs.append(e) if isinstance(e, events.AtenGraph) else None):
        for run in (program, jitney.compile(program, backend="triton_gpu", fullgraph=True, dynamic=dynamic)):
            args = [a.to(device, dtype).requires_grad_() for a in given]
            y = run(*args)
            shares = torch.linspace(-1, 1, y.numel(), device=device).reshape(y.shape)
            found.append((y.detach(), *torch.autograd.grad((y.float() * shares).sum(), args)))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)
    assert [y.stride() for y in found[1]] == [y.stride() for y in found[0]]
    if not dynamic:
        forward = [e.graph for e in graphs if e.kind == "forward"]
        assert forward and not any(n.target in PRODUCTS for g in forward for n in _overloads(g))


def _overloads(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [n for n in graph.nodes if getattr(n.target, "overloadpacket", None) in PRODUCTS]


@pytest.mark.parametrize("sizes", [(0, 3, 5), (4, 0, 5), (4, 3, 0)])
def test_what_is_empty_stays_a_product(sizes: tuple[int, int, int], device: torch.device) -> None:
    m, k, n = sizes
    a, b = torch.ones(m, k, device=device), torch.ones(k, n, device=device)
    compiled = jitney.compile(lambda a, b: a @ b, backend="triton_gpu", dynamic=False)
    torch.testing.assert_close(compiled(a, b), a @ b)


def test_whole_numbers_and_two_types_stay_products() -> None:
    assert (
        products.bmm(torch.ones(2, 3, 3, dtype=torch.int32), torch.ones(2, 3, 3, dtype=torch.int32)) is NotImplemented
    )
    assert products.addmm(torch.ones(3), torch.ones(3, 3).half(), torch.ones(3, 3).half()) is NotImplemented
