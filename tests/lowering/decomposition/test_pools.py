"""Places within windows say the same as places within planes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.decomposition import pools
from jitney_lowering.decomposition.pools import Windows

PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(PAIRS, PAIRS, st.tuples(st.integers(0, 2), st.integers(0, 2)), PAIRS, st.booleans(), st.booleans())
def test_places_come_back(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    ceil_mode: bool,
    nan: bool,
) -> None:
    assume(all(2 * p <= k for p, k in zip(padding, kernel, strict=True)))
    x = torch.randn(2, 3, 17, 14, generator=torch.Generator().manual_seed(0))
    if nan:
        x[0, 0, ::3, ::2] = float("nan")
    _, places = F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
    windows = Windows(kernel, stride, padding, dilation)
    offsets = windows.offsets(places, 14)
    assert offsets.dtype is torch.int8
    assert int(offsets.min()) >= 0 and int(offsets.max()) < kernel[0] * kernel[1]
    assert torch.equal(windows.places(offsets, 14), places)


def test_what_is_kept_for_a_backward_is_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On other devices than the CPU; here it is made one of them."""

    class Elsewhere:
        """Is no device's type."""

        def __eq__(self, other: object) -> bool:
            return False

    monkeypatch.setattr(pools, "CPU", Elsewhere())

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x.sin(), 3, 2, 1) * 2

    graphs: list[events.AtenGraph] = []
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    with events.listen(lambda event: graphs.append(event) if isinstance(event, events.AtenGraph) else None):
        made = jitney.compile(program, backend="llvm_cpu")(x)
        (found,) = torch.autograd.grad(made.sum(), x)
    torch.testing.assert_close(made, program(x))
    torch.testing.assert_close(found, torch.autograd.grad(program(x).sum(), x)[0])
    (forward,) = [e.graph for e in graphs if e.kind == "forward"]
    kept = [n.meta["val"].dtype for n in forward.output_node().args[0]]
    assert torch.int8 in kept and torch.int64 not in kept
