"""NumPy on another device: with a default device, and ``wrap_numpy`` of tensors there.

The meta device stands for one: graphs are made for it, and computed on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import observe
from numpy_cases import CASES, TAME, arrays, tame
from numpy_checks import difference, outcome
from torch import fx

import jitney
from jitney.backends import Backend

CPU, META = torch.device("cpu"), torch.device("meta")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _carried_over(graph: fx.GraphModule, inputs: Any, request: Any) -> Callable[..., Any]:
    """What is copied there is copied, what is made there is made here."""
    devices: set[Any] = set()
    for node in graph.graph.nodes:
        if node.op == "call_method" and node.target == "to" and node.args[1] == META:
            node.target, node.args = "clone", node.args[:1]
        kwargs = {k: CPU if type(v) is torch.device and v == META else v for k, v in node.kwargs.items()}
        assert CPU not in [v for v in node.kwargs.values() if type(v) is torch.device]
        node.kwargs = kwargs
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor) and node.op != "placeholder" and value.dim():
            devices.add(value.device)
    SEEN.append(devices)
    graph.recompile()
    forward: Callable[..., Any] = graph.forward
    return forward


SEEN: list[set[Any]] = []
THERE = Backend(name="there", compile=_carried_over, level="torch", device_types=("cpu", "meta"))


def there(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled and called with another default device."""
    compiled = jitney.compile(fn, backend=THERE)

    def call(*args: Any) -> Any:
        with META:
            return compiled(*args)

    return call


def beside(fn: Callable[..., Any], *given: Any) -> None:
    """Results and arguments are those of NumPy."""
    ours, theirs = [np.copy(a) for a in given], [np.copy(a) for a in given]
    with np.errstate(all="ignore"):
        found, wanted = outcome(there(fn), *ours), outcome(fn, *theirs)
    assert difference(found, wanted, False) == ""
    assert difference(ours, theirs, False) == ""


@pytest.mark.parametrize("name", sorted(CASES)[::5])
def test_programs(name: str) -> None:
    for dtype in ("float32", "int64"):
        beside(CASES[name], *(tame if name in TAME else arrays)(dtype))


TABLE = np.array([3.0, 1.0, 2.0])


def writes(x: Any, y: Any) -> Any:
    z = np.sin(x) * y + np.arange(3.0) * TABLE
    z[0] = 7
    x += 1
    part = y[1:]
    part *= 2
    return z, z.sum(), x.mean()


def broken(x: Any, y: Any) -> Any:
    x[0] = 5
    z = np.cbrt(x) + y * np.float64(2)
    x[1:] += z[1:]
    return np.sort(z)[::2], np.where(x > 2, x, y)


def of_views(x: Any, y: Any) -> Any:
    z = x * 2
    return z, z[1:], x[:2], y.T


def of_torch(x: Any, y: Any) -> Any:
    made = torch.from_numpy(x * 2).numpy() + y
    return made, torch.ones(3, device="cpu").numpy() * 2


@pytest.mark.parametrize("fn", [writes, broken, of_views, of_torch], ids=lambda f: f.__name__)
def test_memory_is_numpys(fn: Callable[..., Any]) -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    with observe() as seen:
        beside(fn, x, y)
    assert fn is not writes or (seen.breaks, len(seen.graphs), META in SEEN[-1]) == ([], 1, True)
    results = there(of_views)(x, y)
    assert np.shares_memory(results[0], results[1]) and np.shares_memory(results[2], x)


def both_written(x: Any, y: Any) -> Any:
    x += 1
    y *= 2
    return x.sum() - y.sum()


@pytest.mark.parametrize("first", [4, 1])
def test_views_of_one_array_see_each_others_writes(first: int) -> None:
    run = there(both_written)
    for begin in (first, 1, 4, 2):
        sides = []
        for fn in (run, both_written):
            whole = np.arange(8.0)
            sides.append((fn(whole[:4], whole[begin : begin + 4]), whole))
        assert difference(*sides, False) == ""


def through_a_tensor(x: Any) -> Any:
    tensor = torch.from_numpy(x)
    tensor += 1
    return x * 1


def one_written(x: Any) -> Any:
    x += 1
    return x * 2


def test_writes_through_tensors_are_seen() -> None:
    beside(through_a_tensor, np.arange(3.0))


def test_writes_in_inference_mode_are_seen() -> None:
    with torch.inference_mode():
        beside(one_written, np.arange(3.0))


def test_tensors_of_arrays_are_on_the_default_device() -> None:
    fn = lambda x: (torch.tensor(x), torch.as_tensor(x), torch.tensor(x, dtype=torch.float32))
    with META:
        found = jitney.compile(fn, backend="eager")(np.ones(3))
        assert [(t.device, t.dtype) for t in found] == [(t.device, t.dtype) for t in fn(np.ones(3))]


# ------------------------------------------------------------------ wrap_numpy


@jitney.wrap_numpy
def _wrapped(x: Any, y: Any) -> Any:
    made = np.zeros(3)
    made += np.sin(x) * y * TABLE
    return made, {"ones": np.ones(2), "mean": x.mean()}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_wrapped_functions_compute_where_their_tensors_are(backend: str) -> None:
    x = torch.ones(3, dtype=torch.float64, device=META, requires_grad=True)
    fn = lambda x: (_wrapped(x, x * 2), torch.ones(2), np.ones(2))
    (made, more), ones, array = jitney.compile(fn, backend=backend, fullgraph=True)(x)
    assert {t.device for t in (made, more["ones"], more["mean"])} == {META} and ones.device == CPU
    assert array.tolist() == [1, 1]
    (made.sum() + more["mean"]).backward()
    assert x.grad is not None and x.grad.device == META


def test_wrapped_functions_that_break_raise_as_in_eager() -> None:
    fn = jitney.wrap_numpy(lambda x: np.cbrt(np.sin(x)))
    x = torch.ones(3, device=META)
    for called in (fn, jitney.compile(fn, backend="eager")):
        found = outcome(called, x)
        assert found[0] in (TypeError, NotImplementedError), found


def test_wrapped_functions_of_two_devices_are_not_guessed() -> None:
    fn = jitney.compile(_wrapped, backend="eager")
    assert outcome(fn, torch.ones(3, device=META), torch.ones(3))[0] in (TypeError, NotImplementedError)
    made, _ = fn(torch.ones(3), torch.ones(3))
    np.testing.assert_allclose(made.numpy(), np.sin(1.0) * TABLE)


def test_wrapped_functions_of_tensors_on_the_cpu_stay_there() -> None:
    fn = jitney.wrap_numpy(lambda x: np.zeros(x.shape))
    with META:
        assert jitney.compile(fn, backend="eager")(torch.ones(2, device="cpu")).device == CPU
