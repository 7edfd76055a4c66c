"""Symbolic sizes, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aot.view_programs import masked_write
from helpers import compile_fn, observe, t

import jitney


def check(fn: Any, *makes: Callable[[], tuple[Any, ...]], recompiles: int = 0, **options: Any) -> None:
    """Results, written inputs and gradients as in eager, for arguments of several sizes, by one graph."""
    compiled = compile_fn(fn, backend="aot_eager", dynamic=True, **options)
    with observe() as seen:
        for make in makes:
            sides = []
            for run in (fn, compiled):
                args = make()
                leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
                results = run(*args)
                results = results if isinstance(results, tuple) else (results,)
                roots = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
                if roots:
                    torch.autograd.backward(roots, [torch.ones_like(r) for r in roots])
                sides.append((results, args, [a.grad for a in leaves]))
            for eager, found in zip(flat(sides[0]), flat(sides[1]), strict=True):
                if isinstance(eager, torch.Tensor):
                    assert eager.shape == found.shape and eager.stride() == found.stride()
                    assert eager.storage_offset() == found.storage_offset()
                    torch.testing.assert_close(eager, found, rtol=1e-6, atol=1e-6)
                else:
                    assert type(eager) is type(found) and eager == found
    assert not seen.kept and not seen.breaks
    assert len(seen.recompiles) == recompiles, seen.recompiles


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, (tuple, list)) else [value]


def leaf(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (t(*shape, requires_grad=True),)


def test_elementwise() -> None:
    check(lambda x: x.sin() * x, leaf(3, 4), leaf(5, 6), leaf(2, 9))


def test_sizes_as_results() -> None:
    check(lambda x: (x * x.shape[0], x.shape[0] + 1, x.numel(), x.shape), leaf(3, 4), leaf(5, 6))


def test_numbers_in_and_out() -> None:
    def make(n: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (t(4, requires_grad=True), n)

    check(lambda x, n: (x * n, n * 2, x.new_ones(n) * x.sum()), make(3), make(5), make(7), recompiles=1)


def test_a_quotient_of_sizes_in_decomposed_batch_norm() -> None:
    weight = torch.linspace(-1, 1, 6)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, None, None, weight, training=True).tanh()

    with jitney.config.patch(cache=False):
        check(fn, leaf(5, 6), leaf(3, 6), leaf(8, 6), options={"decompose": "core"})


def test_views_of_inputs_and_of_results() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return x[1:], x.view(-1), y.t(), y[:, 1:], y.view(x.shape[1], x.shape[0]), x.expand(2, *x.shape)

    check(f, leaf(3, 4), leaf(5, 6), leaf(6, 7))


def test_parts_by_size() -> None:
    def f(x: torch.Tensor) -> Any:
        half = x.shape[0] // 2
        return x[:half].exp(), x[half:].sum(0), x.split(half), (x * 3).chunk(2)

    check(f, leaf(4, 3), leaf(8, 5), leaf(10, 3))


def test_writes_to_inputs() -> None:
    def f(x: torch.Tensor) -> Any:
        x[1:].mul_(2)
        x.t_()
        x.add_(1)
        return x * 2

    check(f, lambda: (t(3, 4),), lambda: (t(5, 6),), lambda: (t(9, 5)[2:],), lambda: (t(6, 8)[:, 2:],), recompiles=1)


def test_writes_to_results_of_operators() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.mul_(x.sum())
        return y[0], x * 2

    def make(n: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (t(n, requires_grad=True), t(n, n + 1))

    check(f, make(3), make(4), make(6))


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "clamp_": lambda x: x.clamp_(-0.5, 0.5),
    "clip_": lambda x: x.clip_(min=0.1),
    "cumsum_": lambda x: x.cumsum_(0),
    "tril_": lambda x: x.tril_(),
    "nan_to_num_": lambda x: x.nan_to_num_(),
    "logit_": lambda x: x.logit_(0.1),
    "hardsigmoid_": lambda x: F.hardsigmoid(x, inplace=True),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_in_place_whose_cpp_takes_no_symbols(name: str) -> None:
    """Functionalization tries them without data first, and wants numbers for sizes there."""
    write = IN_PLACE[name]

    def fn(x: torch.Tensor) -> Any:
        write(x)
        return x * 2, write(x.sin())

    check(fn, lambda: (t(3, 4),), lambda: (t(5, 6),))
    check(lambda x: write(x * 2) * x, leaf(3, 4), leaf(5, 6))


def test_a_loss_that_clamps_inside() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cosine_embedding_loss(x, y, torch.ones(x.shape[0]), margin=0.2) + F.cosine_similarity(x, y).sum()

    check(fn, lambda: (t(3, 4, requires_grad=True), t(3, 4)), lambda: (t(5, 6, requires_grad=True), t(5, 6)))


def test_broadcasting_and_reductions() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, (x * y).sum(-1), x.mean(0), x.softmax(-1), x.amax(1)

    def make(n: int, m: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (t(n, m, requires_grad=True), t(1, m, requires_grad=True))

    check(f, make(3, 4), make(5, 6), make(7, 2))


def test_matrix_products() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        h = torch.relu(x @ w)
        return h, h.flatten(0, 1).sum(), torch.cat([h, x @ w], dim=1)

    def make(b: int, n: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (t(b, n, 4, requires_grad=True), t(4, 5, requires_grad=True))

    check(f, make(2, 3), make(3, 7), make(5, 2))


def test_masked_writes_keep_strides() -> None:
    check(masked_write, leaf(3, 4), leaf(5, 6))


def test_unused_results_get_zeros_of_the_right_size() -> None:
    def f(x: torch.Tensor) -> Any:
        a, b = torch.aminmax(x, dim=0)
        return a, b, torch.var_mean(x)[0], x.sum(0)

    compiled = compile_fn(f, backend="aot_eager", dynamic=True)
    for n in (3, 5):
        for use in range(4):
            gradients = []
            for run in (f, compiled):
                x = t(n, n + 1, requires_grad=True)
                gradients.append(torch.autograd.grad(run(x)[use].sum(), x)[0])
            torch.testing.assert_close(*gradients)


def test_layer_norm_and_attention() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    compiled = compile_fn(layer, backend="aot_eager", dynamic=True)
    for b, n in ((2, 3), (3, 5), (4, 7)):
        gradients = []
        for run in (layer, compiled):
            layer.zero_grad()
            x = torch.randn(b, n, 8, generator=torch.Generator().manual_seed(b)).requires_grad_()
            run(x).square().sum().backward()
            gradients.append([x.grad, *(p.grad.clone() for p in layer.parameters())])
        for eager, found in zip(*gradients, strict=True):
            torch.testing.assert_close(eager, found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_memory_budget(budget: float) -> None:
    import jitney

    with jitney.config.patch(activation_memory_budget=budget):
        check(lambda x: (x.sin().exp() * x).softmax(-1).sum(0), leaf(3, 4), leaf(5, 6))


def test_sizes_that_take_a_second_value() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * x.shape[0]).sum(0)

    compiled = compile_fn(f, backend="aot_eager")
    with observe() as seen:
        for n in (3, 5, 7, 1, 9):
            x, y = t(n, 2, requires_grad=True), t(n, 2, requires_grad=True)
            f(x).sum().backward()
            compiled(y).sum().backward()
            assert torch.equal(x.grad, y.grad)
    assert not seen.kept and len(seen.graphs) == 3


PADS: dict[str, Any] = {
    "one side": lambda x, n: F.pad(x, (0, n)),
    "several sides": lambda x, n: F.pad(x, (n, 2 * n, 1, 0), value=2.0),
    "cut off": lambda x, n: F.pad(x, (n, -n)),
    "nothing but cut off": lambda x, n: F.pad(x, (-n + 1, -1)),
    "up to a size": lambda x, n: F.pad(x.narrow(-1, 0, n), (0, 6 - n)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", PADS)
def test_symbolic_padding_stays_in_the_graph(name: str, backend: str) -> None:
    program = PADS[name]
    with observe() as seen:
        run = compile_fn(lambda x, n: program(x, n).sin() * 2, backend=backend)
        for n in (2, 3, 4, 2):
            x = torch.arange(96.0).reshape(2, 2, 4, 6).to(memory_format=torch.channels_last)
            found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
            result, expected = run(found, n), program(wanted, n).sin() * 2
            torch.testing.assert_close(result, expected)
            assert result.stride() == expected.stride()
            result.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(found.grad, wanted.grad)
    assert not seen.breaks and len(seen.recompiles) == 1


def test_padding_that_takes_too_much_raises_as_in_eager() -> None:
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return F.pad(x, (0, n)).sin()

    run, x = compile_fn(program, backend="aot_eager"), torch.ones(2, 4)
    for n in (-1, -2, -3):
        torch.testing.assert_close(run(x, n), program(x, n))
    for call in (run, program):
        with pytest.raises(RuntimeError, match="negative output size|narrow|length"):
            call(x, -5)


def test_a_size_rounded_up_from_floats_times_another() -> None:
    def grid(x: torch.Tensor, step: int) -> torch.Tensor:
        columns = torch.arange(step / 2, x.shape[1], step)
        rows = torch.arange(step / 2, x.shape[0], step)
        return torch.vstack([m.reshape(-1) for m in torch.meshgrid(rows, columns, indexing="xy")]) * 2

    check(grid, lambda: (t(16, 32), 4), lambda: (t(9, 13), 4))


def test_distributions_check_their_arguments_in_the_graph() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        made = torch.distributions.Normal(x, x.exp(), validate_args=True)
        return made.log_prob(x * 2)

    check(f, lambda: (t(3, 4),), lambda: (t(5, 4),))
    compiled = compile_fn(f, backend="eager", dynamic=True)
    for n in (3, 5):
        torch.testing.assert_close(compiled(t(n, 4)), f(t(n, 4)))
    with pytest.raises(ValueError, match="Expected parameter loc"):
        compiled(t(4, 4) * torch.nan)
