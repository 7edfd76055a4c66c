"""Functions and methods of torch, the standard library and Python that the program has put its own in the place of."""

from __future__ import annotations

import builtins
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fork_server import run_python
from torch import nn
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)

import jitney

pytestmark = pytest.mark.filterwarnings("ignore:.*which capture relies on")

Patch = Callable[[Any, str, Any], None]


@pytest.fixture(params=["eager", "aot_eager"])
def backend(request: pytest.FixtureRequest) -> Any:
    """A backend that runs the captured graph, and one that traces through it."""
    return request.param


@pytest.fixture
def patch() -> Iterator[Patch]:
    """Set an attribute; everything is as before after the test, methods that a class inherits too."""
    undo: list[Callable[[], None]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        if name in vars(owner):
            undo.append(functools.partial(setattr, owner, name, vars(owner)[name]))
        else:
            undo.append(functools.partial(delattr, owner, name))
        setattr(owner, name, value)

    yield put
    for step in reversed(undo):
        step()


def same(compiled: Any, fn: Any, *args: Any) -> None:
    """The compiled function gives what the function gives now, twice."""
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=0, atol=0)


def phases(fn: Any, args: tuple[Any, ...], backend: Any, patch: Patch, owner: Any, name: str, made: Any) -> None:
    """Compiled before, patched, patched otherwise and restored; then compiled where it is patched already."""
    original = getattr(owner, name)
    compiled = jitney.compile(fn, backend=backend)
    same(compiled, fn, *args)
    patch(owner, name, made(original, 1))
    late = jitney.compile(fn, backend=backend)
    same(late, fn, *args)
    same(compiled, fn, *args)
    setattr(owner, name, made(original, 2))
    same(late, fn, *args)
    same(compiled, fn, *args)
    setattr(owner, name, original)
    same(late, fn, *args)
    same(compiled, fn, *args)


def shifted(original: Any, by: int) -> Any:
    """As the original, less a number."""
    return lambda *args, **kwargs: original(*args, **kwargs) - by


def disguised(original: Any, by: int) -> Any:
    """As ``shifted``, under the original's name and module."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) - by

    return wrapper


X = torch.tensor([[0.5, -1.5, 2.0]])

FUNCTIONS: list[tuple[Any, str, Callable[..., Any]]] = [
    (F, "softmax", lambda x: F.softmax(x, -1)),
    (F, "relu", lambda x: F.relu(x)),
    (F, "gelu", lambda x: F.gelu(x)),
    (F, "max_pool1d", lambda x: F.max_pool1d(x, 2)),
    (torch, "relu", lambda x: torch.relu(x)),
    (torch, "norm", lambda x: torch.norm(x, dim=1)),
    (torch, "sum", lambda x: torch.sum(x) + x.sum()),
    (torch.Tensor, "relu", lambda x: x.relu() + torch.relu(x)),
    (torch.Tensor, "sum", lambda x: x.sum() + torch.sum(x)),
    (torch.Tensor, "norm", lambda x: x.norm() * 2),
    (torch.Tensor, "__add__", lambda x: x + 2),
    (torch.Tensor, "__radd__", lambda x: 2 + x),
    (torch.Tensor, "__getitem__", lambda x: x[0] * 2),
    (torch.Tensor, "__neg__", lambda x: -x),
    (torch.linalg, "norm", lambda x: torch.linalg.norm(x)),
]


@pytest.mark.parametrize("made", [shifted, disguised])
@pytest.mark.parametrize(("owner", "name", "fn"), FUNCTIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_replaced_function_of_torch_runs_as_in_eager(
    owner: Any, name: str, fn: Any, made: Any, backend: Any, patch: Patch
) -> None:
    phases(fn, (X,), backend, patch, owner, name, made)


MODULES: list[tuple[Any, str, Any]] = [
    (F, "softmax", nn.Softmax(-1)),
    (F, "relu", nn.Sequential(nn.ReLU(), nn.ReLU())),
    (F, "linear", nn.Linear(3, 3)),
    (F, "layer_norm", nn.LayerNorm(3)),
    (nn.Softmax, "forward", nn.Softmax(-1)),
    (nn.Module, "__call__", nn.Sequential(nn.ReLU(), nn.Tanh())),
    (nn.ReLU, "__call__", nn.Sequential(nn.ReLU(), nn.Tanh())),
    (nn.Sequential, "forward", nn.Sequential(nn.ReLU(), nn.Tanh())),
    (nn.Module, "_call_impl", nn.Sequential(nn.ReLU(), nn.Tanh())),
    (torch.Tensor, "softmax", nn.Softmax(-1)),
    (torch, "relu", nn.ReLU()),
]


@pytest.mark.parametrize("made", [shifted, disguised])
@pytest.mark.parametrize(
    ("owner", "name", "module"), MODULES, ids=lambda v: v if isinstance(v, str) else type(v).__name__
)
def test_what_torchs_own_modules_call_may_be_replaced(
    owner: Any, name: str, module: Any, made: Any, backend: Any, patch: Patch
) -> None:
    phases(module, (X,), backend, patch, owner, name, made)


def test_what_a_function_of_torch_calls_may_be_replaced(backend: Any, patch: Patch) -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    fn = lambda x: attention(x, x, x, need_weights=False)[0]  # noqa: E731
    x = torch.arange(12.0).view(1, 3, 4).requires_grad_()
    phases(fn, (x,), backend, patch, F, "scaled_dot_product_attention", shifted)


def test_the_original_is_called_by_a_reference_while_its_name_is_another_function(backend: Any, patch: Patch) -> None:
    softmax, relu, tanh, method = F.softmax, torch.relu, F.tanh, torch.Tensor.sigmoid

    def fn(x: torch.Tensor) -> torch.Tensor:
        return softmax(x, -1) + relu(x) + tanh(x) + method(x)

    compiled = jitney.compile(fn, backend=backend)
    same(compiled, fn, X)
    expected = fn(X)
    patch(F, "softmax", lambda x, dim: x * 100)
    patch(torch, "relu", lambda x: x * 100)
    patch(F, "tanh", F.sigmoid)
    patch(torch.Tensor, "sigmoid", lambda x: x * 100)
    same(compiled, fn, X)
    assert torch.equal(jitney.compile(fn, backend=backend)(X), expected)


def test_a_name_that_became_another_function_of_torch(backend: Any, patch: Patch) -> None:
    softmax = F.softmax
    both = lambda x: F.softmax(x, -1) + softmax(x, -1)  # noqa: E731
    phases(both, (X,), backend, patch, F, "softmax", lambda original, by: (F.log_softmax, F.softmin)[by - 1])
    methods = lambda x: x.relu() + x.tanh()  # noqa: E731
    phases(
        methods, (X,), backend, patch, torch.Tensor, "relu", lambda o, by: (torch.Tensor.exp, torch.Tensor.cos)[by - 1]
    )


def test_a_captured_graph_that_runs_later_calls_the_original(patch: Patch) -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    softmax = F.softmax
    patch(F, "softmax", lambda x, dim: x * 100)
    compiled = jitney.compile(lambda x: softmax(x, -1) + 1, backend=keep)
    compiled(X)
    (graph,) = graphs
    graph.recompile()  # as backends do that change it
    assert torch.equal(graph(X)[0], softmax(X, -1) + 1)


def test_a_disguised_function_keeps_its_own_closure_defaults_and_globals(backend: Any, patch: Patch) -> None:
    box = {"by": 1.0}
    cell = 1.0

    @functools.wraps(F.softmax)
    def mine(x: Any, dim: Any = None, more: float = 1.0, **kwargs: Any) -> Any:
        return x * box["by"] + cell + more

    patch(F, "softmax", mine)
    module = nn.Softmax(-1)
    compiled = jitney.compile(module, backend=backend)
    same(compiled, module, X)
    box["by"] = 2.0
    same(compiled, module, X)
    cell = 5.0
    same(compiled, module, X)
    mine.__defaults__ = (None, 7.0)
    same(compiled, module, X)


def test_a_replaced_class_of_torch(backend: Any, patch: Patch) -> None:
    class Doubled(nn.ReLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    fn = lambda x: nn.ReLU()(x)  # noqa: E731
    phases(fn, (X,), backend, patch, nn, "ReLU", lambda original, by: Doubled)


def test_a_replaced_function_of_the_standard_library(backend: Any, patch: Patch) -> None:
    phases(lambda x: x * math.sqrt(4.0), (X,), backend, patch, math, "sqrt", shifted)


def test_an_optimizers_own_functions_may_be_replaced(backend: Any, patch: Patch) -> None:
    def step(compile: bool) -> list[float]:
        weight = nn.Parameter(torch.ones(2))
        weight.grad = torch.full((2,), 0.5)
        sgd = torch.optim.SGD([weight], lr=0.1)
        run = jitney.compile(sgd.step, backend=backend) if compile else sgd.step
        run()
        original = torch.optim.SGD._init_group
        patch(
            torch.optim.SGD,
            "_init_group",
            lambda self, *a: [p.mul_(3) for p in self.param_groups[0]["params"]] and original(self, *a),
        )
        run()
        torch.optim.SGD._init_group = original  # type: ignore[method-assign]
        run()
        return weight.tolist()

    assert step(True) == step(False)


BUILTINS: list[tuple[str, Any, Callable[..., Any]]] = [
    ("len", lambda original: lambda value: original(value) + 10, lambda x, items: x + len(items)),
    ("sum", lambda original: lambda *args: original(*args) + 10, lambda x, items: x + sum(items)),
    ("range", lambda original: lambda n: original(n + 1), lambda x, items: x + [i for i in range(3)][-1]),
    ("max", lambda original: min, lambda x, items: x + max(items)),
    ("abs", lambda original: lambda value: original(value) + 1, lambda x, items: abs(x) + abs(-2)),
    ("isinstance", lambda original: lambda value, kind: kind is str, lambda x, items: x + isinstance(items, str)),
    ("getattr", lambda original: lambda *args: 7, lambda x, items: x + getattr(items, "nothing", 1)),
    ("print", lambda original: lambda *args: args[0], lambda x, items: x + print(items[0])),
    ("float", lambda original: lambda value: 3.5, lambda x, items: x + float(items[0])),
]


@pytest.mark.parametrize(("name", "made", "fn"), BUILTINS, ids=[row[0] for row in BUILTINS])
def test_a_replaced_builtin_does_as_in_eager(
    name: str, made: Any, fn: Any, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(builtins, name)
    replacement = made(original)
    early, late = jitney.compile(fn, backend=backend), jitney.compile(fn, backend=backend)
    results: list[Any] = []

    def call() -> None:
        for function in (early, late, fn):
            try:
                results.append(function(X, [1, 2, 3]))
            except TypeError as error:  # what print gives cannot be added
                results.append(str(error))

    early(X, [1, 2, 3]) if name != "print" else None
    for current in (replacement, original, replacement, original):
        setattr(builtins, name, current)
        call()
    for i in range(0, len(results), 3):
        a, b, wanted = results[i : i + 3]
        if isinstance(wanted, torch.Tensor):
            assert torch.equal(a, wanted)
            assert torch.equal(b, wanted)
        else:
            assert a == b == wanted
    assert not torch.equal(results[2], results[5]) if name != "print" else True


def test_what_makes_frames_run_eagerly_is_told_once(patch: Patch) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + len([1, 2])

    compiled, original = jitney.compile(fn, backend="eager"), builtins.len
    patch(builtins, "len", lambda items: original(items))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        same(compiled, fn, X)
    (warning,) = said
    assert "in fn: the builtin len has been replaced, which capture relies on" in str(warning.message)
    assert warning.filename == __file__


def test_a_replaced_print_is_captured_as_any_function(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        print("once")
        return x + 1

    monkeypatch.setattr(builtins, "print", said.append)
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X), X + 1)
    assert torch.equal(compiled(X), X + 1)
    assert said == ["once", "once"]


SHELL = """
import builtins

def profile(x):
    return x + 1

builtins.profile, builtins.shell, builtins.LEVEL = profile, profile.__get__, 2
import torch, jitney

def fn(x):
    return profile(x) * LEVEL

compiled = jitney.compile(fn, backend="eager", fullgraph=True)
for level in (2, 3, 5):
    builtins.LEVEL = level
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0 * level))
assert jitney.explain(fn, backend="eager")(torch.ones(2)).graph_count == 1
"""


def test_names_that_a_shell_or_profiler_adds_to_the_builtins_are_globals_like_others() -> None:
    done = run_python("-c", SHELL)
    assert done.returncode == 0, done.stderr


def test_builtins_of_a_namespace_of_its_own(backend: Any) -> None:
    space: dict[str, Any] = {"__builtins__": {**vars(builtins), "len": lambda value: 40}}
    exec("def fn(x, items): return x + len(items)", space)
    compiled = jitney.compile(space["fn"], backend=backend)
    assert torch.equal(compiled(X, [1]), X + 40)
    inside = jitney.compile(lambda x: space["fn"](x, [1]) + len([1]), backend=backend)
    assert torch.equal(inside(X), X + 41)


def test_an_import_hook_is_called_at_every_import(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    original = builtins.__import__

    def hook(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "fractions":
            names.append(name)
        return original(name, *args, **kwargs)

    def fn(x: torch.Tensor) -> torch.Tensor:
        import fractions

        return x + float(fractions.Fraction(1, 2))

    compiled = jitney.compile(fn, backend=backend)
    monkeypatch.setattr(builtins, "__import__", hook)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 0.5)
    monkeypatch.setattr(builtins, "__import__", original)
    assert torch.equal(compiled(X), X + 0.5)
    assert names == ["fractions"] * 3


def test_a_class_hook_is_called_at_every_class(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = builtins.__build_class__

    def hook(body: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        made.append(name)
        return original(body, name, *args, **kwargs)

    def fn(x: torch.Tensor) -> torch.Tensor:
        class Local:
            by = 2

        return x + Local.by

    compiled = jitney.compile(fn, backend=backend)
    monkeypatch.setattr(builtins, "__build_class__", hook)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 2)
    assert made.count("Local") == 3
