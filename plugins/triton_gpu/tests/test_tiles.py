"""Which tiles kernels get: along what lies side by side in memory, and as large as a thread can load at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney_triton_gpu import launcher, tiles
from jitney_triton_gpu.code import Function


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Function]:
    """What is compiled meanwhile; nothing is run."""
    found: list[Function] = []

    def noting(source: str, name: str, functions: dict[str, Function], *rest: Any) -> Any:
        found.extend(functions.values())
        return dict.fromkeys(functions, lambda *launched: None)

    monkeypatch.setattr(launcher, "load", noting)
    monkeypatch.setattr(tiles, "PROCESSORS", 132)
    return found


def compiled(fn: Callable[..., Any], *args: torch.Tensor) -> None:
    jitney.compile(fn, backend="triton_gpu", dynamic=False, fullgraph=True)(*args)


def heads_of(x: torch.Tensor) -> torch.Tensor:
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


def test_columns_of_heads_side_by_side(launched: list[Function], device: torch.device) -> None:
    """Of three parts one lies the other way; columns go along most of memory."""

    def bias_gradient(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole = torch.cat([heads_of(q), heads_of(k.mT), heads_of(v)], 2)
        return whole, whole.sum((0, 1))

    q, v = torch.randn(2, 2, 4, 128, 64, device=device)
    compiled(bias_gradient, q, torch.randn(2, 4, 64, 128, device=device), v)
    (columns, *_) = [f for f in launched if "sum" in f.name]
    assert columns.blocks["XBLOCK"] == 128


def test_short_axes_leave_more_of_a_tile_to_the_other(launched: list[Function], device: torch.device) -> None:
    """Pictures whose channels are put last, and windows, whose elements lie side by side whichever way one goes."""
    compiled(lambda x: (x * 2).permute(0, 2, 3, 1).contiguous(), torch.zeros(4, 3, 256, 256, device=device))
    compiled(lambda x: (x * 2).T.contiguous(), torch.zeros(1000, 1000, device=device))
    compiled(lambda x: x.unfold(-1, 16, 1).contiguous() * 2, torch.zeros(64, 4000, device=device))
    assert [{*f.blocks.values()} for f in launched[:2]] == [{4, 512}, {32, 64}]
    assert {*launched[2].blocks} == {"XBLOCK"}
    assert (tiles.transposing(1, 1).x, tiles.transposing(1, 1).r, tiles.transposing(None, 3).x) == (1, 1, 512)


def test_stencils_have_few_elements_a_thread(launched: list[Function], device: torch.device) -> None:
    def sweep(x: torch.Tensor) -> torch.Tensor:
        return (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)) * 0.25

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x * 0.25 + 1

    x = torch.zeros(1024, 1024, device=device)
    compiled(sweep, x)
    compiled(plain, x)
    each = [f.blocks["XBLOCK"] // (32 * f.warps) for f in launched]
    assert each == [2, 16]


@pytest.mark.parametrize(("length", "warps"), [(49, 1), (197, 1), (64, 4), (256, 4)])
def test_rows_that_begin_anywhere_have_a_warp(
    launched: list[Function], device: torch.device, length: int, warps: int
) -> None:
    compiled(lambda x: F.softmax(x, -1), torch.zeros(5000, length, device=device))
    assert [f.warps for f in launched] == [warps]


def test_positions_are_looked_for_once_the_extreme_is_known(launched: list[Function], device: torch.device) -> None:
    compiled(lambda x: (x + 1).min(1), torch.zeros(5000, 256, device=device))
    (function,) = launched
    assert function.warps == 1 and function.body.count("helpers.minimum_nan") == 1
    assert "first_lesser" not in function.body


def test_much_work_is_shared_by_warps(launched: list[Function], device: torch.device) -> None:
    compiled(lambda x: torch.atan2(x.sin(), x.cos()).sum(-1), torch.zeros(5000, 49, device=device))
    assert [f.warps for f in launched] == [4]


def test_sums_of_much_that_is_loaded_have_few_elements_a_thread(launched: list[Function], device: torch.device) -> None:
    def several(x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x, (1, 1, 1, 1))
        around = [padded[:, 1:-1, k : k + x.shape[2]] for k in (0, 2)] + [
            padded[:, k : k + x.shape[1], 1:-1] for k in (0, 2)
        ]
        return torch.stack([(x * part).sum((1, 2)) for part in around])

    x = torch.zeros(8, 768, 768, device=device)
    compiled(lambda x: x.sum(), x)
    compiled(several, x)
    each = [f.blocks["RBLOCK"] * f.blocks.get("XBLOCK", 1) // (32 * f.warps) for f in launched if "RBLOCK" in f.blocks]
    assert each[0] == 8 and min(each[1:]) < 8


def test_long_rows_of_much_work_are_gone_through_in_pieces(launched: list[Function], device: torch.device) -> None:
    def much(x: torch.Tensor) -> torch.Tensor:
        return (torch.atan2(x.sin(), x.cos()) ** 1.5 * torch.exp(-x.sigmoid()) * x**2.5 * x**3.5).sum(-1)

    for work in (much, lambda x: x.sum(-1)):
        compiled(work, torch.zeros(5000, 6400, device=device))
    assert [f.blocks["RBLOCK"] for f in launched] == [1024, 8192]


def test_long_rows_of_many_sums_have_few_elements_a_thread(launched: list[Function], device: torch.device) -> None:
    """Their registers would not hold more. On an H200 a kernel of 13 sums takes 0.29 ms so, for 2.2."""

    def sums(x: torch.Tensor, count: int) -> torch.Tensor:
        moments = [(x * (n + 1)).sin().sum(1) for n in range(count)]
        return torch.stack(moments, 1) * x[:, :1]

    x = torch.zeros(256, 40_000, device=device)
    for count in (1, 13):
        compiled(sums, x, count)
    one, many = [f for f in launched if "sum" in f.name]
    assert one.blocks["RBLOCK"] // (32 * one.warps) == 8
    assert many.blocks["RBLOCK"] // (32 * many.warps) <= 4


def test_rows_that_the_cache_does_not_hold_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "PROCESSORS", 132)
    assert tiles.rows_at_a_time(40_000) is None  # all of them are in the cache
    assert tiles.rows_at_a_time(200_000) == 132
    assert tiles.rows_at_a_time(512_000) is None


def test_what_a_thread_has_at_a_time_fits_its_registers(launched: list[Function], device: torch.device) -> None:
    """As sm_90's compiler says: a kernel of 32 buffers in tiles of 1,024 elements kept 4 KiB a thread in memory."""

    def states(x: list[torch.Tensor], decay: torch.Tensor) -> list[torch.Tensor]:
        made, state = [], x[0]
        for each in x:
            state = state * decay + each
            made.append(state)
        return made

    def columns(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * (1 - y)).sum(0), (x / (x + y) * y).sum(0)

    compiled(states, [torch.zeros(2, 8, 1 << 14, device=device) for _ in range(16)], torch.zeros(8, 1, device=device))
    (one,) = launched
    assert one.blocks["XBLOCK"] <= 8 * 32 * one.warps
    compiled(columns, *torch.zeros(2, 1_000_000, 8, device=device))
    two = next(f for f in launched[1:] if "parts" in f.name)
    assert two.blocks["XBLOCK"] * two.blocks["RBLOCK"] <= 32 * 32 * two.warps


def test_sums_of_much_work_have_few_elements_a_thread(launched: list[Function], device: torch.device) -> None:
    """Code is written out for each: of digamma functions it spilled 7 KB of registers for each thread."""

    def gradients(x: torch.Tensor) -> torch.Tensor:
        return (torch.digamma(x) + torch.digamma(x + 2) - torch.digamma(2 * x)).sum()

    for fn in (torch.sum, gradients):
        compiled(fn, torch.zeros(1 << 20, device=device))
    each = [f.blocks["RBLOCK"] // (32 * f.warps) for f in launched if f.name.endswith("parts")]
    assert each == [8, 2]


def test_parts_of_a_launch_have_few_elements_a_thread_if_one_has_much_work(
    launched: list[Function], device: torch.device
) -> None:
    x, y = torch.zeros(1 << 20, device=device), torch.ones(1 << 20, device=device)
    compiled(lambda x, y: (torch.digamma(x) - torch.digamma(2 * x), y + 1), x, y)
    compiled(lambda x, y: (x - 1, y + 1), x, y)
    assert [f.blocks["XBLOCK"] // (32 * f.warps) for f in launched] == [2, 16]


@pytest.mark.parametrize(("parts", "stages"), [(1, 3), (12, 1)])
def test_what_is_on_its_way_fits_shared_memory(
    launched: list[Function], device: torch.device, parts: int, stages: int
) -> None:
    """Rows that are summed over, of one number each or of pieces of twelve: Triton keeps several rows on their way."""

    def gradients(x: torch.Tensor, rest: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        y = x
        for part in rest:
            y = y * part
        return y.softmax(-1), y.sum(0)

    rows = [torch.randn(4096, 8192, device=device) for _ in range(parts)]
    compiled(gradients, rows[0], rows[1:])
    (sweep,) = [f for f in launched if "program * rows" in f.body]
    assert (f"num_stages={stages}" in sweep.body) == (stages > 1)
    assert ("num_stages" in sweep.body) == (stages > 1)
