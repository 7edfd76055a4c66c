"""What the backend tells of its kernels: to debug folders, reports and profiles."""

from __future__ import annotations

import torch

import jitney
from jitney import events
from jitney.torch_compat import markers


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).exp().sum(-1) + 1


def test_kernels_are_told_with_their_bytes_and_code(device: torch.device) -> None:
    told: list[events.Event] = []
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    with events.listen(told.append), events.details(), jitney.config.patch(cache=False):
        jitney.compile(program, backend="triton_gpu")(x, w)
    (scheduled,) = [event for event in told if isinstance(event, events.Scheduled)]
    product, kernel = scheduled.launches
    assert (product.kind, kernel.kind) == ("extern", "kernel") and kernel.operators == ("exp", "sum", "add")
    assert (kernel.read, kernel.written) == (6 * 4 * 4, 6 * 4)
    code = [event.text for event in told if isinstance(event, events.Artefact) and event.name == "output_code"]
    assert len(code) == 1 and "tl.load" in code[0]


def test_kernels_have_names_in_profiles_and_the_same_results(device: torch.device) -> None:
    x, w = torch.randn(6, 5, device=device), torch.randn(5, 4, device=device)
    with markers.collecting() as spans:
        got = jitney.compile(program, backend="triton_gpu")(x, w)
    torch.testing.assert_close(got, program(x, w))
    assert {span.name for span in spans if span.kind in ("kernel", "extern")} == {"0 mm", "1 exp+sum+add"}
