"""Programs that write to their inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aot.sides import same
from helpers import compile_fn, t


def plain() -> tuple[Any, ...]:
    return (t(3, 4),)


def leaf() -> tuple[Any, ...]:
    return (t(3, 4, requires_grad=True),)


def result() -> tuple[Any, ...]:
    return (t(3, 4, requires_grad=True) * 1.5,)


def plain_and_leaf() -> tuple[Any, ...]:
    return t(3, 4), t(3, 4, requires_grad=True)


EITHER = pytest.mark.parametrize("make", [plain, result])


@EITHER
def test_data(make: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sin()

    same(f, make)


@EITHER
def test_nothing_is_returned(make: Any) -> None:
    def f(x: torch.Tensor) -> None:
        x.mul_(2)

    same(f, make)


@EITHER
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.unsqueeze_(1),
        lambda x: x.swapdims_(0, 1),
        lambda x: x.squeeze_(),
    ],
)
def test_metadata(make: Any, write: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        write(x)
        return x * 2

    same(f, make)


@EITHER
def test_squeeze(make: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.squeeze_(0)
        return x * 2

    same(f, lambda: (make()[0][:1],))


@EITHER
def test_metadata_and_data(make: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x.t_()
        x.mul_(3)
        return x * 2

    same(f, make)


@pytest.mark.parametrize("part", [lambda x: x[1:], lambda x: x[:, 1:3], lambda x: x.t()[2:], lambda x: x[::2]])
def test_metadata_and_data_of_a_part_of_larger_memory(part: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x.t_()
        return x * 2

    base = plain()[0]
    same(f, lambda: (part(base.clone()),))
    same(f, lambda: (part(t(3, 4, requires_grad=True) * 1.5),))


def test_metadata_of_parts_at_other_offsets() -> None:
    """A write to one part, compiled for another one that begins elsewhere."""

    def f(x: torch.Tensor) -> None:
        x.t_()
        x.add_(100)

    compiled = compile_fn(f, backend="aot_eager")
    for at in (0, 1, 3):
        expected, found = t(8, 2), t(8, 2)
        f(expected[at : at + 3])
        compiled(found[at : at + 3])
        assert torch.equal(expected, found)


def test_metadata_where_autograd_does_not_look() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.unsqueeze_(0)
        return x * 2

    same(f, plain)
    same(f, leaf, kept="the shape of an input that requires grad")


def test_resize_breaks_the_graph() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.resize_(2, 2)
        return x * 2

    same(f, plain, calls=1, breaks=1, poke=False)


@EITHER
def test_a_view_of_it(make: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x[0].mul_(3)
        return x.sin()

    same(f, make)


@EITHER
def test_a_view_of_it_that_is_returned(make: Any) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        v = x.t()[1:]
        v.mul_(3)
        return v, x, x[1]

    same(f, make)


@EITHER
def test_items(make: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x[0] = 1
        x[:, 1] = x[:, 0].clone()
        x[x > 1] = 0.5
        return x * 2

    same(f, make)


def test_what_requires_grad_into_what_did_not() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(y * 2)
        return x * 2

    same(f, plain_and_leaf)


def test_what_requires_grad_into_a_part_of_what_did_not() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> None:
        x[0].copy_(y[1])

    same(f, plain_and_leaf)


def test_parameters_under_no_grad() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        with torch.no_grad():
            x.mul_(2)
        return y + x * 2

    same(f, leaf)


def test_a_saved_input_written_under_no_grad_raises_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * x
        with torch.no_grad():
            x.mul_(2)
        return y

    same(f, leaf, kept="modified by an inplace operation")


@pytest.mark.parametrize("make", [plain, leaf, result])
@pytest.mark.parametrize("view", [lambda x: x.data, lambda x: x.detach()])
def test_past_autograd(make: Any, view: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        view(x).mul_(2)
        return y + x * 2

    same(f, make)


def test_the_version_counter_does_not_see_writes_to_data() -> None:
    """A backward of before, which saved the tensor, goes on as in eager."""

    def f(x: torch.Tensor) -> None:
        x.data.mul_(2)

    def g(x: torch.Tensor, y: torch.Tensor) -> None:
        x.data.mul_(2)
        y.data.add_(1)

    for fn, count in ((f, 1), (g, 2)):
        gradients = []
        for run in (fn, compile_fn(fn, backend="aot_eager")):
            tensors = [t(3, requires_grad=True) for _ in range(count)]
            out = torch.stack([x * x for x in tensors]).sum()
            run(*tensors)
            assert all(x._version == 0 for x in tensors)
            gradients.append(torch.autograd.grad(out, tensors))
        for eager, compiled in zip(*gradients, strict=True):
            assert torch.equal(eager, compiled)


def test_assignment_to_data_breaks_the_graph() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.data = x.data * 2
        return x * 3

    same(f, leaf, calls=1, breaks=1, poke=False)


def test_detaching_in_place_is_kept() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.detach_()
        return x * 2

    same(f, result, kept="an input is detached in place")
    same(f, lambda: (t(3, 4).clone().requires_grad_(),), kept="an input is detached in place")


def test_what_requires_grad_into_a_leaf_detached_in_place() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.detach_()
        y.add_(x)
        return y * 2

    def make() -> tuple[Any, ...]:
        return t(3, 4, requires_grad=True), t(3, 4).clone().requires_grad_()

    same(f, make, kept="an input is detached in place")


def test_the_same_tensor_twice() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    def make() -> tuple[Any, ...]:
        x = t(3, 4)
        return x, x

    same(f, make)


@pytest.mark.parametrize("make", [plain, result])
def test_inputs_in_the_same_memory(make: Any) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x * y

    def shared() -> tuple[Any, ...]:
        base = make()[0]
        return base, base[0]

    def apart() -> tuple[Any, ...]:
        base = make()[0]
        return base[1], base[0]

    same(f, shared)
    same(f, apart)


def test_inputs_that_share_memory_only_sometimes() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x * y

    compiled = compile_fn(f, backend="aot_eager")
    for at in (0, 4, 2, 4, 1, 0):
        expected, found = t(8), t(8)
        wanted, got = f(expected[:4], expected[at : at + 4]), compiled(found[:4], found[at : at + 4])
        assert torch.equal(wanted, got) and torch.equal(expected, found)


def test_interleaved_inputs_that_do_not_overlap() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y.add_(x)
        return x * y

    def make() -> tuple[Any, ...]:
        base = t(3, 4)
        return base[:, ::2], base[:, 1::2]

    same(f, make)


def test_an_input_with_gaps_keeps_its_strides() -> None:
    """``reshape`` copies it in eager, so what is written to the copy does not show."""

    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y = x.reshape(-1)
        y.mul_(2)
        return y

    same(f, lambda: (t(3, 4)[:, :2],))
    same(f, lambda: ((t(3, 4, requires_grad=True) * 1)[:, :2],))


def test_random_numbers_into_an_input() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.normal_()
        x[0].uniform_()
        return x * 2

    same(f, plain)


def test_several_calls_accumulate() -> None:
    def f(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total += x
        return total * 2

    compiled = compile_fn(f, backend="aot_eager")
    expected, found = t(4), t(4)
    for i in range(3):
        assert torch.equal(f(expected, t(4) + i), compiled(found, t(4) + i))
        assert torch.equal(expected, found)


def test_versions_beside_an_operation_on_lists() -> None:
    """It counts for what it writes to, and for nothing else."""

    def fn(q: torch.Tensor, listed: list[torch.Tensor]) -> torch.Tensor:
        q.data.mul_(0.5)
        torch._foreach_add_(listed, 1.0)
        return (q * q).sum()

    found = []
    for run in (fn, compile_fn(fn, backend="aot_eager")):
        q, listed = torch.arange(3.0).requires_grad_(), [torch.ones(3), torch.zeros(3)]
        before = (q * q).sum()  # autograd keeps q, of which nobody is to have written
        run(q, listed).backward()
        before.backward()
        found.append((q.grad, listed, q._version, [t._version for t in listed]))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
