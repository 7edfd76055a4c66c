"""Matrix products whose rows get an edge, so that they begin at even places."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.decomposition import products


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """On whatever device the tests run, and however small."""
    monkeypatch.setattr(products, "DEVICE", device.type)
    monkeypatch.setattr(products, "WORTH", 0)
    monkeypatch.setattr(products, "FEW", 0)


@pytest.mark.parametrize("sizes", [(8, 16, 19), (7, 16, 16), (8, 13, 16), (5, 3, 9), (16, 8, 24), (1, 9, 1)])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_products_and_their_gradients_are_eagers(
    sizes: tuple[int, int, int], turned: str, device: torch.device
) -> None:
    m, k, n = sizes
    torch.manual_seed(0)
    a = torch.randn((k, m) if "a" in turned else (m, k)).to(device, torch.bfloat16).requires_grad_()
    b = torch.randn((n, k) if "b" in turned else (k, n)).to(device, torch.bfloat16).requires_grad_()

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.t() if "a" in turned else a) @ (b.t() if "b" in turned else b)

    found = []
    for run in (product, jitney.compile(product, backend="triton_gpu", fullgraph=True)):
        y = run(a, b)
        found.append((y.detach(), *torch.autograd.grad((y.float() * torch.arange(n, device=device)).sum(), (a, b))))
    torch.testing.assert_close(found[1], found[0])
    assert found[1][0].stride() == found[0][0].stride()


def test_an_uneven_vocabulary_is_padded_once(device: torch.device) -> None:
    """Logits keep their padded rows for the backward, and their gradient is computed into such: no copies."""
    torch.manual_seed(0)
    h = torch.randn(6, 16).to(device, torch.bfloat16).requires_grad_()
    w = torch.randn(29, 16).to(device, torch.bfloat16).requires_grad_()
    target = torch.randint(0, 29, (6,)).to(device)

    def loss(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy((h @ w.t()).float(), target)

    graphs: list[events.AtenGraph] = []
    with events.listen(lambda e: graphs.append(e) if isinstance(e, events.AtenGraph) else None):
        y = jitney.compile(loss, backend="triton_gpu", fullgraph=True)(h, w)
        found = torch.autograd.grad(y, (h, w))
    wanted = loss(h, w)
    torch.testing.assert_close((y, *found), (wanted, *torch.autograd.grad(wanted, (h, w))))
    backward = next(e for e in graphs if e.kind == "backward")
    assert len(backward.graph.find_nodes(op="call_function", target=torch.ops.aten.constant_pad_nd.default)) == 1
