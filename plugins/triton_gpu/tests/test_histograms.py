"""Many elements that are added to few places go to copies of these."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import jitney
from jitney_lowering.aten import scattering

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a histogram": lambda x, i: torch.zeros(7, device=x.device).scatter_add(0, i.flatten() % 7, x.flatten()),
    "for each row": lambda x, i: torch.ones(4, 5, dtype=x.dtype, device=x.device).scatter_add(1, i % 5, x),
    "rows": lambda x, i: x[:3].index_add(0, i[0, :4] % 3, x) * 2,
    "counts": lambda x, i: torch.zeros(7, dtype=torch.int64, device=x.device).index_add(
        0, i.flatten(), torch.ones_like(i.flatten())
    ),
    "halves": lambda x, i: torch.zeros(7, device=x.device, dtype=torch.float16).index_put(
        (i.flatten(),), x.flatten().half(), accumulate=True
    ),
    "in place": lambda x, i: x.clone().flatten()[:7].index_add_(0, i.flatten(), x.flatten(), alpha=2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_at_few_places(name: str, dynamic: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "MANY", 16)
    monkeypatch.setattr(scattering, "COPIES", (8,))
    monkeypatch.setattr(scattering, "WORTH", 1)
    copied: list[int] = []
    by_copies = scattering._by_copies
    monkeypatch.setattr(scattering, "_by_copies", lambda *given: copied.append(given[-1]) or by_copies(*given))
    compiled = jitney.compile(PROGRAMS[name], backend="triton_gpu", fullgraph=True, dynamic=dynamic)
    for length in (100, 130):
        x = torch.randn(4, length, device=device)
        i = torch.randint(7, (4, length), device=device)
        near = {"rtol": 2e-2, "atol": 5e-2} if name == "halves" else {"rtol": 1e-4, "atol": 1e-5}
        assert_close(compiled(x, i), PROGRAMS[name](x, i), **near)
    assert set(copied) == ({8} if name != "rows" else set())


def test_gradients_of_a_small_table(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "MANY", 16)
    monkeypatch.setattr(scattering, "WORTH", 1)

    def looked_up(table: Tensor, i: Tensor) -> Tensor:
        return (table[i] * i[..., None]).square().sum()

    found = []
    i = torch.randint(3, (50, 40), device=device)
    for call in (looked_up, jitney.compile(looked_up, backend="triton_gpu")):
        torch.manual_seed(0)
        table = torch.randn(3, 4, device=device, requires_grad=True)
        call(table, i).backward()
        found.append(table.grad)
    assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
