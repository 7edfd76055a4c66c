"""How kernels count: in 32 bits, in 64 where that is not enough, and never wrong in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney.errors import BackendFailed
from jitney_lowering import Kernel
from jitney_lowering.ir import Load, index_width, placed, walk
from jitney_triton_gpu import launcher, tiles
from jitney_triton_gpu.code import Function

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "elements": lambda x: x.exp() + 1,
    "turned": lambda x: x.t().contiguous() * 2,
    "rows": lambda x: x.softmax(-1),
    "columns": lambda x: x.sum(0),
    "everything": lambda x: (x.sum(), x.argmax()),
    "norm": lambda x: F.layer_norm(x, (x.shape[1],), x[0], x[1]),
    "few read, many counted": lambda x: x[:1, :1].expand(40, 40).sum(),
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, compiled_functions: list[Function]) -> list[Function]:
    """What is compiled meanwhile, where 32 bits can count to a thousand."""
    monkeypatch.setattr(index_width, "NARROW", 1000)
    return compiled_functions


@pytest.mark.parametrize("name", PROGRAMS)
def test_large_tensors_are_counted_in_64_bits(name: str, launched: list[Function], device: torch.device) -> None:
    for rows, wide in ((40, True), (20, False)):
        x = torch.randn(rows, 40, device=device, requires_grad=True)
        compiled = jitney.compile(PROGRAMS[name], backend="triton_gpu", dynamic=False, fullgraph=True)
        wanted, got = PROGRAMS[name](x), compiled(x)
        torch.testing.assert_close(got, wanted)
        if name != "few read, many counted":
            assert {f.wide for f in launched} == {wide}
        launched.clear()


def test_sizes_that_change_are_counted_at_each_call(launched: list[Function], device: torch.device) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)

    compiled = jitney.compile(fn, backend="triton_gpu", dynamic=True)
    small, large = torch.randn(20, 40, device=device), torch.randn(40, 40, device=device)
    torch.testing.assert_close(compiled(small), fn(small))
    with pytest.warns(UserWarning, match="more than 2\\*\\*31 elements"):
        torch.testing.assert_close(compiled(large), fn(large))
    torch.testing.assert_close(compiled(small), fn(small))
    with pytest.raises(BackendFailed, match="dynamic=False compiles for one"):
        jitney.compile(fn, backend="triton_gpu", dynamic=True, fullgraph=True)(large)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs 15 GiB on a GPU")
def test_more_elements_than_32_bits_count(device: torch.device) -> None:
    x = torch.zeros(2**31 + 4097, dtype=torch.int8, device=device)
    x[-1], x[2**31 + 5] = 7, 9
    compiled = jitney.compile(lambda x: (x + 1, x.amax(), x.argmax()), backend="triton_gpu", fullgraph=True)
    more, highest, place = compiled(x)
    assert (more[-1].item(), more[2**31 + 5].item(), more[0].item()) == (8, 10, 1)
    assert (highest.item(), place.item()) == (9, 2**31 + 5)


def test_what_is_overwritten_is_not_read_again(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """A row goes by in pieces, twice; in between its memory gets the new values of the argument."""
    monkeypatch.setattr(tiles, "LONGEST_ROW", 32)
    monkeypatch.setattr(tiles, "PIECE", (32, 1))

    def shares(x: torch.Tensor) -> torch.Tensor:
        weights = x.exp()
        result = weights / weights.sum(-1, keepdim=True)
        x.add_(1)
        return result

    mine, theirs = (torch.randn(130, 100, generator=torch.Generator().manual_seed(0)).to(device) for _ in range(2))
    result = jitney.compile(shares, backend="triton_gpu", fullgraph=True)(mine)
    torch.testing.assert_close((result, mine), (shares(theirs), theirs))


@pytest.mark.parametrize("longest", [32, 1024])
def test_what_is_overwritten_is_kept_beside_sums_over_rows(
    longest: int, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    """The backward of a layer norm: its gradient, a sum, gives way to what comes of it, and is read after that."""
    monkeypatch.setattr(tiles, "LONGEST_ROW", longest)
    monkeypatch.setattr(tiles, "PIECE", (32, 1))
    generator = torch.Generator().manual_seed(0)
    x, a, b, c, d = (torch.randn(100, 100, generator=generator).to(device) for _ in range(5))

    def several(x: torch.Tensor, bias: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x @ d + bias, (100,), weight, weight)
        return (y @ a).tanh() + (y @ b).sin() + (y @ c).cos()

    found = []
    for fn in (several, jitney.compile(several, backend="triton_gpu", fullgraph=True)):
        leaves = [t.clone().requires_grad_() for t in (x, a[0], b[0])]
        fn(*leaves).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("width", [8, 6], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_steps_that_read_other_rows_share_their_kernels(
    width: int, train: bool, compiled_functions: list[Function], device: torch.device
) -> None:
    """Where each step's rows begin is an argument; where no vector may begin the rest is a part of the code."""
    weight = torch.randn(width, width, device=device)

    def steps(x: torch.Tensor) -> torch.Tensor:
        h, results = x[0], []
        for t in range(1, x.size(0)):
            h = torch.tanh(x[t] + h @ weight)
            results.append(h)
        return torch.stack(results)

    x = torch.randn(9, 3, width, device=device)
    outcomes = []
    for run in (steps, jitney.compile(steps, backend="triton_gpu", fullgraph=True, dynamic=False)):
        given = x.clone().requires_grad_(train)
        result = run(given)
        outcomes.append([result, *(torch.autograd.grad(result.square().sum(), given) if train else ())])
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-4, atol=1e-5)
    if not train:
        assert len(compiled_functions) == (2 if width == 8 else 3)


def test_what_is_gone_through_backwards_begins_where_its_last_element_is(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    """Block sizes are tried in memory that has nothing before it."""
    found: list[tuple[Kernel, dict[str, int]]] = []

    def noted(*args: Any) -> tuple[Kernel, dict[str, int]]:
        found.append(placed(*args))
        return found[-1]

    def flipped(x: torch.Tensor) -> list[torch.Tensor]:
        return [x[t + 1 :].flip(0) * 2 for t in range(3)] + [x[t + 1].flip(0).exp() for t in range(3)]

    monkeypatch.setattr(launcher, "placed", noted)
    x = torch.randn(6, 4, 8, device=device)
    torch.testing.assert_close(jitney.compile(flipped, backend="triton_gpu", fullgraph=True)(x), flipped(x))
    assert any(later for _, later in found)
    for kernel, later in found:
        for nest in kernel.body:
            loads = [v for statement in nest.statements for v in walk(statement.value) if isinstance(v, Load)]
            assert all((load.index.bounds()[0] or 0) >= 0 for load in loads if load.buffer in later)
