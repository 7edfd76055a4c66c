"""Indexing with everything, assignment by index, and random numbers in step with eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from helpers import check, check_made, t

import jitney

LONG = torch.tensor([1, 0])
INDICES: dict[str, Any] = {
    "int": 1,
    "negative": -1,
    "slice": slice(0, 2),
    "step": slice(None, None, 2),
    "none": None,
    "ellipsis": ...,
    "tuple of ints": (1, 2),
    "int and slice": (0, slice(1, None)),
    "mixed": (..., None, 0),
    "none in front": (None, slice(None), 1),
    "bool": True,
    "false": False,
    "list": [0, 2],
    "lists": ([0, 1], [2, 3]),
    "tensor": LONG,
    "tensor and slice": (slice(None), LONG),
    "two tensors": (LONG, LONG),
    "tensor, none, int": (LONG, None, 1),
    "broadcast tensors": (LONG[:, None], LONG[None]),
    "zero-dim tensor": torch.tensor(1),
    "bool list": [True, False, True],
    "empty list": [],
    "empty tuple": (),
    "uint8 row": (torch.tensor([0, 2]), slice(None, None, 3)),
}
MASKS: dict[str, Any] = {
    "rows": torch.tensor([True, False, True]),
    "all": t(3, 4) > 0,
    "row and int": (torch.tensor([True, False, True]), 1),
    "slice and mask": (slice(None), torch.tensor([True, False, True, True])),
}


@pytest.mark.parametrize("name", INDICES)
def test_read(name: str) -> None:
    index = INDICES[name]
    check(lambda x, i: x[i] + 1, t(3, 4), index, graphs=1)


@pytest.mark.parametrize("name", MASKS)
def test_read_with_mask(name: str) -> None:
    check(lambda x, i: x[i] + 1, t(3, 4), MASKS[name], skips=None)


@pytest.mark.parametrize("name", INDICES)
def test_write_number(name: str) -> None:
    def fn(x: torch.Tensor, i: Any) -> torch.Tensor:
        y = x + 1
        y[i] = 9
        x[i] = -1.5
        return y

    check(fn, t(3, 4), INDICES[name], graphs=1)


@pytest.mark.parametrize("name", MASKS)
def test_write_with_mask(name: str) -> None:
    def fn(x: torch.Tensor, i: Any) -> torch.Tensor:
        y = x + 1
        y[i] = 0
        x[i] += 1
        return y

    check(fn, t(3, 4), MASKS[name], skips=None)


@pytest.mark.parametrize("name", ["int", "slice", "step", "tensor", "tensor and slice", "mixed"])
def test_write_tensor_and_augmented(name: str) -> None:
    def fn(x: torch.Tensor, i: Any) -> torch.Tensor:
        x[i] = x[i] * 2 + 1
        x[i] += 1
        x[i] *= x[i]
        return x.sum()

    check(fn, t(3, 4), INDICES[name], graphs=1)


def test_mask_computed_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        mask = x > 0
        y = x.clone()
        y[mask] = 0
        y[~mask & (x < -0.3)] = -1
        y[mask.any(1)] += 5
        return y, x.masked_fill(mask, 1.0)

    check(fn, t(3, 4), skips=None)


def test_index_from_loop_size_and_arithmetic() -> None:
    def fn(x: torch.Tensor, k: int) -> list[torch.Tensor]:
        n = x.shape[0]
        return [x[i, (i + k) % x.shape[1]] for i in range(n)] + [x[n - 1], x[: n // 2], x[-k:], x[:, k - 1 : k + 1]]

    check(fn, t(3, 4), 2, graphs=1)


def test_index_by_another_tensor_of_the_graph() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        order = x[:, 0].argsort(descending=True)
        return x[order], x.gather(1, x.argmax(1, keepdim=True)), x[torch.arange(3), x.argmax(1)], x.take(order)

    check(fn, t(3, 4), graphs=1)


def test_zero_dim_tensor_as_list_index() -> None:
    check(lambda x, items: (items[x.long().sum() * 0 + 1], x + 1), t(), ["a", "b"])


def test_index_errors() -> None:
    def out_of_range(x: torch.Tensor) -> torch.Tensor:
        return x[7]

    def too_many(x: torch.Tensor) -> torch.Tensor:
        return x[0, 0, 0]

    check(out_of_range, t(3, 4), raises=IndexError)
    check(too_many, t(3, 4), raises=IndexError)


def test_delete_item_of_tensor_raises() -> None:
    def fn(x: torch.Tensor) -> None:
        del x[0]

    check(fn, t(), raises=TypeError)


def test_setitem_with_broadcast_dtype_and_overlap() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> tuple[Any, ...]:
        x[0] = torch.tensor([1, 2, 3, 4])
        x[1:] = x[:1].clone()
        i[:, 0] = 7.9
        x[:, 1:3] = torch.ones(2)
        return x, i

    check(fn, t(3, 4), torch.ones(2, 2, dtype=torch.int64), graphs=1)


def test_setitem_on_requires_grad_result() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x * 2
        y[0] = 0
        return y, torch.autograd.grad(y.sum(), x)

    check(fn, t(3, requires_grad=True), skips=None)


# --- random numbers ------------------------------------------------------------------------------------------------


RANDOM: dict[str, Any] = {
    "rand": lambda x: x + torch.rand(3),
    "randn and randint": lambda x: (torch.randn(2), torch.randint(0, 10, (3,)), torch.randperm(4), torch.rand_like(x)),
    "dropout": lambda x: functional.dropout(x, 0.5) + functional.dropout(x, 0.5),
    "bernoulli": lambda x: (
        torch.bernoulli(torch.full((3,), 0.5)),
        torch.normal(x, 1.0),
        torch.multinomial(x.softmax(0), 2),
    ),
    "in place": lambda x: (torch.empty(3).uniform_(0, 1), torch.empty(3).normal_(), torch.empty(3).exponential_()),
    "seeded inside": lambda x: (torch.manual_seed(7), torch.rand(2))[1] + x[:2],
    "distribution": lambda x: torch.distributions.Normal(x, 1.0).sample(),
    "init": lambda x: torch.nn.init.normal_(torch.empty(2, 2)),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_in_step(name: str) -> None:
    check(RANDOM[name], t(), calls=3, skips=None)


def test_generator_argument() -> None:
    def make() -> Any:
        g = torch.Generator().manual_seed(3)
        return (lambda x: x + torch.rand(3, generator=g)), lambda: g.get_state()

    check_made(make, t(), calls=3, skips=None)


def test_random_across_a_break() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a = torch.rand(3)
        print("between")
        b = functional.dropout(x, 0.5)
        return a, b, torch.rand(1).item() < 2

    check(fn, t(), calls=3)


def test_random_in_training_module() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.3), torch.nn.Dropout(0.3))
    check(model, t(4, 3), calls=3, graphs=1)


def test_random_in_an_abandoned_path() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        try:
            a = torch.rand(2)
            raise ValueError
        except ValueError:
            return a, torch.rand(2)

    check(fn, t(), calls=2)


def test_arrays_of_numpy_as_indices() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.clone()
        y[np.array([0, 2])] = 5
        y[:, np.arange(2)] += 1
        picked = x[:, np.arange(3)], x[np.array([0, 1]), np.array([1, 2])]
        return y, picked, x[np.int64(1)], np.float32(3.5) * x, x / np.float64(3), torch.clamp(x, min=np.float32(0.1))

    check(fn, torch.linspace(-1, 1, 24).reshape(4, 6), graphs=1, breaks=0)


def off_diagonal(x: torch.Tensor) -> Any:
    mask = ~torch.eye(x.shape[0], dtype=torch.bool)
    rows = x[mask].view(x.shape[0], -1)
    return rows.sum(1), x.masked_select(mask), x[None][..., mask], x[mask[0]], mask.nonzero(), torch.nonzero(mask)[1:]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_a_mask_of_constants_is_known(backend: str) -> None:
    x, y = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    y.data.copy_(x.data)
    with jitney.CompileProfiler() as profile:
        found = jitney.compile(off_diagonal, backend=backend)(x)
    wanted = off_diagonal(y)
    torch.testing.assert_close(found, wanted)
    sum(part.sum() for part in found[:4]).backward()
    sum(part.sum() for part in wanted[:4]).backward()
    torch.testing.assert_close(x.grad, y.grad)
    assert profile.graph_breaks == 0


@pytest.mark.parametrize("sizes", [(4, 4), (3, 4), (2, 4, 4)], ids=str)
def test_a_mask_of_constants_has_the_sizes_of_what_it_selects_from(sizes: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x[..., torch.eye(3, dtype=torch.bool)]

    with pytest.raises(IndexError, match="The shape of the mask"):
        jitney.compile(fn, backend="eager")(torch.randn(sizes))


def test_a_mask_that_is_written_to_later_is_read_before() -> None:
    def fn(x: torch.Tensor) -> Any:
        mask = torch.ones(3, dtype=torch.bool)
        first = x[mask]
        mask[0] = False
        return first, x[mask]

    check(fn, torch.arange(3.0))


@pytest.mark.filterwarnings("ignore:where received a uint8")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_where_takes_bytes_as_flags(backend: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        flags = (x > 0).to(torch.uint8) * 2
        return torch.where(flags, x, 1.0), x.where(flags, x * 3)

    x = torch.tensor([-1.0, 2.0, 3.0])
    with jitney.CompileProfiler() as profile:
        found = jitney.compile(fn, backend=backend)(x)
    torch.testing.assert_close(found, fn(x))
    assert profile.graph_breaks == 0
