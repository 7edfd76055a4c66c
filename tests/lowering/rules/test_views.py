"""Views are index arithmetic: of tensors in memory they are strides, of computed ones they cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import faked, kinds, lowered, trained

from jitney_lowering import CPU, GPU, Policy
from jitney_lowering.ir import Extern, Strided

VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, -1),
    "t": lambda x: x[0].t(),
    "unsqueeze": lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[:, None]),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze dims": lambda x: x[:1, :1].squeeze((0, 1)),
    "expand": lambda x: x[:, None].expand(-1, 5, -1, -1),
    "slice": lambda x: x[1:],
    "slice from the end": lambda x: x[:, -2:],
    "slice with steps": lambda x: x[..., 1::2],
    "slice of nothing": lambda x: x[3:2],
    "select": lambda x: (x[1], x[-1], x[:, 1, 2]),
    "split": lambda x: x.split(3, -1),
    "split sizes": lambda x: x.split([1, 2, 5], -1),
    "unsafe split": lambda x: torch.unsafe_split(x, 3, -1),
    "unsafe split sizes": lambda x: torch.unsafe_split_with_sizes(x, [1, 2, 5], -1),
    "chunk": lambda x: x.chunk(2, -1),
    "unbind": lambda x: x.unbind(0),
    "diagonal": lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-1, 2, 0)),
    "unfold": lambda x: x.unfold(-1, 3, 2),
    "view": lambda x: x.view(x.shape[0], -1),
    "view apart": lambda x: x.view(*x.shape[:2], 2, 4),
    "view mixed": lambda x: x.view(-1, 4),
    "flatten": lambda x: x.flatten(),
    "reshape of a transposed": lambda x: x.transpose(0, 1).reshape(-1),
    "reshape back": lambda x: x.reshape(-1).reshape(x.shape),
    "movedim": lambda x: x.movedim(0, -1),
    "chain": lambda x: x.transpose(0, 1)[1:].reshape(-1, 4)[:, ::2].t(),
    "detach": lambda x: x.detach(),
}
COPIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "flip": lambda x: (x.flip(0), x.flip(0, 2)),
    "roll": lambda x: (torch.roll(x, 2, -1), torch.roll(x, (1, -1), (0, 1)), torch.roll(x, 5), torch.roll(x[:0], 1, 0)),
    "repeat": lambda x: (x.repeat(1, 2, 1), x.repeat(2, 1, 1, 3), x.repeat(0, 1, 1)),
    "rot90": lambda x: torch.rot90(x, 1, (0, 2)),
    "clone": lambda x: x.transpose(0, 1).clone(),
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "copies": lambda x: [torch.permute_copy(x, (2, 0, 1)), torch.unsqueeze_copy(x, 0), torch.t_copy(x[0]),
                         torch.select_copy(x, 0, 1), *torch.unbind_copy(x, 0),
                         torch.expand_copy(x[:, :1], (3, 4, 8)), torch.view_copy(x, (-1,))],
    "triangles": lambda x: (x.tril(), x.triu(1), x.tril(-1), x.triu(-2)),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_what_is_in_memory(name: str, dynamic: bool) -> None:
    """Summing makes new tensors of them: only the additions remain, one loop nest each."""

    def fn(x: torch.Tensor) -> Any:
        made = VIEWS[name](x)
        return [m + 1 for m in (made if isinstance(made, (list, tuple)) else [made])]

    captured = lowered(fn, torch.randn(3, 4, 8), dynamic=dynamic)
    assert set(kinds(captured.program)) == {"pointwise"}
    assert len(captured.program.steps) == len(captured.program.outputs)


COMPUTED = [(name, False) for name in VIEWS] + [
    (name, True) for name in ("permute", "expand", "slice", "split", "view")
]


@pytest.mark.parametrize(("name", "dynamic"), COMPUTED)
def test_views_of_what_is_computed(name: str, dynamic: bool) -> None:
    """Read in loops, as outputs (with eager's strides), as arguments of operators that run as a whole."""

    def fn(x: torch.Tensor) -> Any:
        read, returned, given, inputs = VIEWS[name](x.exp()), VIEWS[name](x.sin()), VIEWS[name](x * 2), VIEWS[name](x)
        several = isinstance(read, (list, tuple))
        every = [*given, *inputs] if several else [given, inputs]
        return [m + 1 for m in (read if several else [read])], returned, [torch.cumsum(m, 0) for m in every]

    captured = lowered(fn, torch.randn(3, 4, 8), dynamic=dynamic, whole=None)
    assert set(kinds(captured.program)) <= {"pointwise", "cumsum.default"}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_other_layouts(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        made = VIEWS[name](x)
        return [m * 2 for m in (made if isinstance(made, (list, tuple)) else [made])]

    if "view" not in name and name != "chain":
        lowered(fn, torch.randn(8, 4, 3).permute(2, 1, 0))
        lowered(fn, torch.randn(6, 4, 8)[::2])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", COPIES)
def test_copies_have_memory_of_their_own(name: str, dynamic: bool) -> None:
    captured = lowered(COPIES[name], torch.randn(3, 4, 8), dynamic=dynamic)
    inputs = set(captured.program.inputs)
    assert all(o.buffer not in inputs for o in captured.program.outputs if isinstance(o, Strided))


def test_a_view_of_an_input_is_that_inputs_memory() -> None:
    graph = torch.fx.symbolic_trace(lambda x: (torch.ops.aten.slice.Tensor(x, 0, 1),))
    program = faked(graph, torch.randn(3, 4))
    assert program.steps == []
    (output,) = program.outputs
    assert (output.buffer, str(output.offset)) == (program.inputs[0], "4")


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_reshape_that_no_strides_express_is_index_arithmetic(dynamic: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.transpose(0, 1).reshape(-1) * y

    captured = lowered(fn, torch.randn(5, 7), torch.randn(35), dynamic=dynamic)
    assert kinds(captured.program) == ["pointwise"]


def test_merged_heads_need_no_copy() -> None:
    """What attention does after its product: the transposed heads are read where they are."""

    def fn(x: torch.Tensor) -> Any:
        return x.transpose(1, 2).reshape(2, 5, 12) + 1

    captured = lowered(fn, torch.randn(2, 3, 5, 4))
    assert kinds(captured.program) == ["pointwise"]


def test_bits_seen_as_another_dtype() -> None:
    lowered(lambda x: (x.view(torch.int32) + 1, (x * 2).view(torch.int32)), torch.randn(6))
    lowered(lambda x: x.view(torch.int16) + 1, torch.randn(6), whole=["view.dtype"])


def test_what_is_broadcast_is_computed_once() -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> Any:
        return x * s.exp()

    captured = lowered(fn, torch.randn(5, 7), torch.randn(7))
    assert [len(s.loops) for s in captured.program.steps] == [1, 2]


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["CPU", "GPU"])
@pytest.mark.parametrize("times", [1, 4])
def test_rows_that_begin_at_multiples_do_so_for_operators(policy: Policy, times: int) -> None:
    """As those of a mask that attention reads, for all of a batch: torch's kernels refuse others."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mask = F.pad(y * 2, (0, 3))[..., :5].expand(times, -1, -1)
        return torch.bmm(x, mask)

    found = lowered(fn, torch.randn(times, 6, 4), torch.randn(1, 4, 5), whole=None, policy=policy)
    (product,) = [step for step in found.program.steps if isinstance(step, Extern) and "bmm" in str(step.target)]
    assert [n.value for n in product.args[1].stride][-2:] == [8, 1]
    assert times == 1 or product.args[1].stride[0].value == 0


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["cpu", "gpu"])
def test_as_strided_reads_any_places(policy: Policy) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        return y.as_strided((3, 4), (5, 2), 7) + 1, y.as_strided((2, 3, 4), (6, 2, 1)).exp()

    lowered(fn, torch.randn(4, 6), policy=policy)


def test_as_strided_in_memory_of_another_runs_as_a_whole() -> None:
    lowered(lambda x: x[1:].as_strided((3, 4), (5, 2), 1) + 1, torch.randn(4, 6), whole=["as_strided.default"])


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("size", "step"), [(4, 2), (5, 2), (3, 3), (2, 5), (7, 1)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_windows(size: int, step: int, dynamic: bool, policy: Policy) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.unfold(1, size, step).sin()

    trained(fn, torch.randn(3, 17, 2, requires_grad=True), dynamic=dynamic, policy=policy)
