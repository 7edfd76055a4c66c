"""Products with an operand in common, and sums of products, are products of larger matrices."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import jitney

Products = dict[str, int]
STEPS, ROWS, WIDTH = 5, 3, 8


class Recurrent(nn.Module):
    """What goes in is multiplied at each step, as is the state."""

    def __init__(self, layers: int = 1, first: bool = True) -> None:
        super().__init__()
        self.first = first
        self.inputs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.states = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = [x.new_zeros(x.size(1 if self.first else 0), WIDTH) for _ in self.inputs]
        results = []
        for t in range(x.size(0 if self.first else 1)):
            step = x[t] if self.first else x[:, t]
            for n, (read, keep) in enumerate(zip(self.inputs, self.states, strict=True)):
                step = h[n] = torch.tanh(read(step) + keep(h[n]))
            results.append(step)
        return torch.stack(results), h[0]


def products(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], train: bool = True, backend: str = "llvm_cpu"
) -> Products:
    """How many products each graph has; what comes out, and all gradients, are compared with eager's."""
    found: Products = {}

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph) and event.kind in ("forward", "backward", "inference"):
            names = Counter(str(node.target) for node in event.graph.nodes)
            found[event.kind] = names["aten.mm.default"] + names["aten.addmm.default"]

    eager = copy.deepcopy(function)
    compiled = jitney.compile(function, backend=backend)
    given = [[x.detach().clone().requires_grad_(train) for x in inputs] for _ in range(2)]
    with torch.set_grad_enabled(train), jitney.events.listen(look):
        expected, results = (leaves(f(*values)) for f, values in zip((eager, compiled), given, strict=True))
        if train:
            for several in (expected, results):
                sum((r.double() * r).sum() for r in several).backward()  # type: ignore[union-attr]
    near = {"rtol": 3e-2, "atol": 3e-2} if inputs[0].dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for a, b in zip(results, expected, strict=True):
        torch.testing.assert_close(a, b, **near)
        assert a.stride() == b.stride()
    if train:
        parameters = [[*f.parameters()] if isinstance(f, nn.Module) else [] for f in (eager, function)]
        for a, b in zip([*given[1], *parameters[1]], [*given[0], *parameters[0]], strict=True):
            torch.testing.assert_close(a.grad, b.grad, **near)
    return found


def leaves(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else [*results]


def steps(seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(STEPS, ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("first", [True, False], ids=["steps_first", "rows_first"])
@pytest.mark.parametrize("layers", [1, 2])
def test_what_goes_into_a_layer_is_multiplied_at_once(layers: int, first: bool) -> None:
    x = steps() if first else steps().transpose(0, 1).contiguous()
    assert products(Recurrent(layers, first), [x], train=False) == {"inference": layers * (1 + STEPS)}


@pytest.mark.parametrize("layers", [1, 2])
def test_a_backward_has_one_product_for_the_gradient_of_each_weight(layers: int) -> None:
    found = products(Recurrent(layers), [steps()])
    assert found["forward"] == layers * (1 + STEPS)
    # Each layer: the gradients of both weights, of what goes in, and of the state before each step but the first.
    assert found["backward"] == layers * (3 + STEPS - 1)


def test_halves_are_added_up_as_eager_rounds_them() -> None:
    found = products(Recurrent().to(torch.bfloat16), [steps(dtype=torch.bfloat16)])
    assert found == {"forward": 1 + STEPS, "backward": 2 * STEPS + 1 + STEPS - 1}


def test_other_numbers_of_rows_need_no_other_code() -> None:
    model = Recurrent()
    eager, compiled = copy.deepcopy(model), jitney.compile(model, backend="llvm_cpu")
    graphs = []
    with jitney.events.listen(lambda e: graphs.append(e) if isinstance(e, jitney.events.AtenGraph) else None):
        for rows in (3, 5, 17, 4):
            x = torch.randn(STEPS, rows, WIDTH)
            gradients = []
            for f in (eager, compiled):
                f.zero_grad()
                f(x)[0].square().sum().backward()
                gradients.append([p.grad.clone() for p in f.parameters()])
            torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
            if rows == 5:
                graphs.clear()
    assert not graphs


@pytest.mark.parametrize("of", [0, 1], ids=["all_steps", "the_last_state"])
def test_a_part_of_the_gradients_may_be_asked_for(of: int) -> None:
    model = Recurrent(2)
    x = steps().requires_grad_()
    compiled = jitney.compile(copy.deepcopy(model), backend="llvm_cpu")
    expected = torch.autograd.grad(model(x)[of].sum(), x)
    torch.testing.assert_close(torch.autograd.grad(compiled(x)[of].sum(), x), expected, rtol=1e-4, atol=1e-5)


def test_a_gradient_up_to_a_result_that_others_are_made_of() -> None:
    weight = torch.randn(WIDTH, WIDTH)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.stack([torch.tanh(step @ weight) for step in x.unbind(0)])
        return y, sum((step @ weight).sin() for step in y.unbind(0))  # type: ignore[return-value]

    gradients = []
    for function in (f, jitney.compile(f, backend="llvm_cpu")):
        x = steps().requires_grad_()
        y, z = function(x)
        gradients.append([*torch.autograd.grad(z.sum(), y, retain_graph=True), *torch.autograd.grad(z.sum(), x)])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_a_product_of_a_product_by_the_same_matrix_is_not_joined_to_it() -> None:
    weight = torch.randn(WIDTH, WIDTH)

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(STEPS):
            x = torch.tanh(x @ weight)
        return x

    def crossed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        other = weight.flip(0)
        a, b = x @ weight, y @ other  # each pair alone could be joined, both pairs cannot
        return (a.sin() @ other) * (b.cos() @ weight)

    assert products(chain, [steps()[0]], train=False) == {"inference": STEPS}
    assert products(crossed, [steps()[0], steps(1)[0]], train=False) == {"inference": 3}


def test_rows_with_another_addend_or_in_another_number_are_apart() -> None:
    weight, bias = torch.randn(WIDTH, WIDTH), torch.randn(2, WIDTH)
    assert products(lambda x: [F.linear(x[t], weight, bias[t]) for t in range(2)], [steps()], False) == {"inference": 2}
    assert products(lambda x: [torch.addmm(x[t], x[t], weight) for t in range(2)], [steps()], False) == {"inference": 2}
    assert products(lambda x: [x[0] @ weight, x[1, :2] @ weight], [steps()], train=False) == {"inference": 2}
    joined = [lambda x: [(x[0] @ weight).sin(), (x[1] @ weight).cos(), 1 + (2 * x[3]) @ weight]]
    assert [products(f, [steps()], train=False) for f in joined] == [{"inference": 1}]


def test_what_the_program_gets_has_memory_of_its_own() -> None:
    weight = torch.randn(WIDTH, WIDTH)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [step @ weight for step in x.unbind(0)]

    assert products(f, [steps()], train=False) == {"inference": STEPS}
    results = jitney.compile(f, backend="llvm_cpu")(steps())
    assert {(r.storage_offset(), r.untyped_storage().nbytes()) for r in results} == {(0, 4 * ROWS * WIDTH)}


def test_sums_of_products_beside_other_terms() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = y[0].new_ones(WIDTH, WIDTH)
        for a, b in zip(x, y, strict=True):
            total = total + a.t() @ b
        return total + y[0].t() @ y[1] * 2

    assert products(f, [steps(), steps(1)], train=False) == {"inference": 2}


def test_a_matrix_that_is_there_twice() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = x[0].sin()
        return a.t() @ y[0] + a.t() @ y[1], a.sum(0) + y[0].sum(0) + a.sum(0)

    assert products(f, [steps(), steps(1)], train=False) == {"inference": 1}


def test_a_product_that_somebody_else_reads_stays_in_the_sum() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        terms = [a.t() @ a.cos() for a in x]
        return terms[0] + terms[1] + terms[2] + terms[3], terms[1].exp()

    assert products(f, [steps()], train=False) == {"inference": 2}


def test_long_sums_are_several_products(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitney_lowering.joint import products as joined

    monkeypatch.setattr(joined, "ROWS", 2 * ROWS)
    found = products(lambda x: sum(a.t() @ a.cos() for a in x), [steps()], train=False)
    assert found == {"inference": 3}


def test_checkpointed_steps_are_computed_again() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([checkpoint(self.model, step, use_reentrant=False) for step in x.unbind(0)])

    products(Steps(), [steps()])


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_random_numbers_are_drawn_in_the_order_of_the_program(train: bool) -> None:
    weight = torch.randn(WIDTH, WIDTH)

    def f(x: torch.Tensor) -> torch.Tensor:
        noisy = []
        for t in range(3):
            y = F.dropout(x[t]) @ weight
            noisy.append(y + torch.rand_like(y))
        return torch.stack(noisy)

    x = steps().requires_grad_(train)
    results = []
    for run in (f, jitney.compile(f, backend="llvm_cpu")):
        torch.manual_seed(0)
        results.append(run(x))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_running_statistics_are_read_before_and_after_they_are_written(train: bool) -> None:
    weight = torch.randn(WIDTH, WIDTH)

    def sums(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
        first = x[0] @ weight
        return [F.batch_norm(first, mean, variance, training=True), (x[1] + mean) @ weight]

    def addends(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
        first = torch.addmm(mean.double(), x[0].double(), weight.double())
        y = F.batch_norm(x[2], mean, variance, training=True)
        return [first, y, torch.addmm(mean.double(), x[1].double(), weight.double())]

    def factors(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> list[torch.Tensor]:
        first = x[0] @ mean[:, None].expand(WIDTH, WIDTH)
        y = F.batch_norm(x[2], mean, variance, training=True)
        return [first, y, x[1] @ mean[:, None].expand(WIDTH, WIDTH)]

    for f in (sums, addends, factors):
        results = []
        for run in (f, jitney.compile(f, backend="llvm_cpu")):
            mean, variance = torch.ones(WIDTH), torch.ones(WIDTH)
            results.append([*run(steps().requires_grad_(train), mean, variance), mean, variance])
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize(("inner", "columns"), [(WIDTH, 0), (0, WIDTH)], ids=["columns", "inner"])
def test_matrices_without_elements(inner: int, columns: int) -> None:
    weight = torch.randn(inner, columns)
    products(lambda x: [x[t] @ weight for t in range(STEPS)], [steps()[:, :, :inner]], train=False)


def test_rows_that_are_twice_below_each_other_are_added_up_once() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (x[0] @ w + x[1] @ w + b).sin() * (x[2] + b).sin()

    products(f, [steps(), torch.randn(WIDTH, WIDTH), torch.randn(WIDTH)])
