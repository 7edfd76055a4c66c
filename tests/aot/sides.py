"""Eager and compiled side by side: results, gradients, what was written, and what happens to it all afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from helpers import compile_fn, observe, seed_everything

from jitney_testing.pictures import Freezer, Node, Values, differences

Make = Callable[[], tuple[Any, ...]]


def same(
    fn: Any,
    make: Make,
    *,
    calls: int = 2,
    kept: Any = None,
    breaks: int | None = 0,
    close: bool = False,
    poke: bool = True,
    backend: Any = "aot_eager",
    **options: Any,
) -> None:
    """Assert that ``fn`` compiled does as in eager.

    Compared: results (values, dtype, strides, offset, requires_grad, is_leaf, which memory they share), arguments and
    module state after the call, the generator's state, gradients of each result alone and of all, None or not, by
    arguments and by results, and those that results retain. Then, in fresh calls, each tensor in sight is written to,
    with and without autograd looking, and everything is compared once more: so writes show where they show in eager.

    Args:
        fn: a function, or a module, which is copied for each side.
        make: makes the arguments; each side and each call gets its own.
        calls: how often it is called.
        kept: a part of the reason why the graph is not split; None if it must be, ``...`` if it does not matter.
        breaks: the graph breaks to expect of the first call; None if they do not matter.
        close: values may differ in their last bits.
        poke: write to results and arguments after the call.
        backend: see ``jitney.compile``.
        options: for ``jitney.compile``.
    """
    __tracebackhide__ = True
    sides = [copy.deepcopy(fn), copy.deepcopy(fn)]
    with observe() as seen:
        compiled = compile_fn(sides[1], backend=backend, **options)
        eager_story = list(_story(sides[0], sides[0], make, calls, poke))
        compiled_story = list(_story(compiled, sides[1], make, calls, poke))
        found: list[str] = []
        for (name, eager), (_, got) in zip(eager_story, compiled_story, strict=False):
            if close:
                _forgive(eager, got)
            _excuse(eager, got)
            found += [f"{name}: {line}" for line in list(differences(eager, got, ""))[:8]]
            if found:
                break
    assert found or len(eager_story) == len(compiled_story), [name for name, _ in compiled_story]
    assert not found, "compiled differs from eager\n  " + "\n  ".join(found)
    assert not seen.skips, seen.skips
    if breaks is not None:
        assert len(seen.breaks) == breaks, seen.breaks
    if kept is None:
        assert not seen.kept, f"the graph was not split: {seen.kept}"
        assert seen.graphs, "nothing was captured"
    elif kept is not ...:
        assert any(kept in reason for reason in seen.kept), f"kept for {seen.kept}, not for {kept!r}"


def _story(fn: Any, state: Any, make: Make, calls: int, poke: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """What happens, scene by scene."""
    seed_everything()
    result: Any = None
    for call in range(calls):
        args = make()
        sources = _sources(args, state)
        picture, result = _called(fn, args, state)
        yield f"call {call + 1}", picture
        outputs = [t for t in _tensors(result) if _differentiable(t)]
        for i, output in enumerate(outputs):
            yield f"call {call + 1}, gradients of result {i}", {"gradients": _gradients([output], sources)}
            others = [(o, o.grad_fn) for o in outputs]
            yield f"call {call + 1}, result {i} by other results", {"gradients": _gradients([output], others)}
        yield f"call {call + 1}, gradients of all", {"gradients": _gradients(outputs, sources)}
        error = _backward(outputs) if outputs else ""
        yield f"call {call + 1}, after backward", {"error": error, **_picture(args=args, state=state)}
    yield "retained gradients", {"gradients": _retained(fn, make(), state)}
    if not poke:
        return
    count = len(_tensors((make(), result)))
    for quiet in (True, False):
        for i in range(count):
            args = make()
            sources = _sources(args, state)
            _, result = _called(fn, args, state)
            seen = _tensors((args, result))
            if i >= len(seen):
                break
            name = f"{'no_grad ' if quiet else ''}write to tensor {i}"
            error = _written(seen[i], quiet)
            yield name, {"error": error, **_picture(args=args, result=result)}
            outputs = [t for t in seen if _differentiable(t)]
            yield f"{name}, gradients", {"gradients": _gradients(outputs, sources)}


def _retained(fn: Any, args: tuple[Any, ...], state: Any) -> Any:
    """What arrives at each result if the loss is made of the last one alone."""
    _, result = _called(fn, args, state)
    outputs = [t for t in _tensors(result) if _differentiable(t)]
    for output in outputs:
        output.retain_grad()
    error = _backward(outputs[-1:]) if outputs else ""
    return error or {str(i): None if o.grad is None else Values(o.grad) for i, o in enumerate(outputs)}


def _called(fn: Any, args: tuple[Any, ...], state: Any) -> tuple[dict[str, Any], Any]:
    result, error = None, "none"
    try:
        result = fn(*args)
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    picture = {"error": error, **_picture(result=result, args=args, state=state)}
    picture["random numbers"] = Values(torch.get_rng_state())
    picture["grad mode"] = repr(torch.is_grad_enabled())
    return picture, result


def _picture(**objects: Any) -> dict[str, Any]:
    freezer = Freezer()
    if not isinstance(objects.get("state"), torch.nn.Module):
        objects.pop("state", None)
    try:
        return {name: freezer.freeze(value, name) for name, value in objects.items()}
    except RuntimeError as error:  # a view whose base was written to
        return {"picture": _kind(error)}


def _tensors(value: Any) -> list[torch.Tensor]:
    """Tensors in plain containers, each once."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    found: dict[int, torch.Tensor] = {}
    for item in items:
        found |= {id(t): t for t in _tensors(item)}
    return list(found.values())


def _sources(args: Any, state: Any) -> list[tuple[torch.Tensor, Any]]:
    """What gradients are asked for, with its ``grad_fn``: arguments, and leaves behind them."""
    found: dict[int, torch.Tensor] = {}
    todo: list[Any] = []
    for tensor in _tensors(args):
        if tensor.requires_grad:
            found[id(tensor)] = tensor
            todo.append(tensor.grad_fn)
    while todo:
        node = todo.pop()
        if node is not None:
            leaf = getattr(node, "variable", None)
            if leaf is not None:
                found[id(leaf)] = leaf
            todo += [n for n, _ in node.next_functions]
    if isinstance(state, torch.nn.Module):
        found |= {id(p): p for p in state.parameters() if p.requires_grad}
    return [(tensor, tensor.grad_fn) for tensor in found.values()]


def _weights(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(value.numel())
    numbers = torch.randint(1, 9, value.shape, generator=generator)
    return numbers.to(value.dtype) / 4


def _gradients(outputs: list[torch.Tensor], given: list[tuple[torch.Tensor, Any]]) -> Any:
    sources = [s for s, history in given if s.grad_fn is history]
    if not outputs or not sources:
        return "none asked for"
    try:
        found = iter(
            torch.autograd.grad(outputs, sources, [_weights(o) for o in outputs], retain_graph=True, allow_unused=True)
        )
    except RuntimeError as error:
        return _kind(error)
    gradients: dict[str, Any] = {}
    for i, (source, history) in enumerate(given):
        gradient = next(found) if source.grad_fn is history else WRITTEN
        if isinstance(gradient, torch.Tensor):
            gradient = {"dtype": str(gradient.dtype), "values": Values(gradient.detach().clone())}
        gradients[f"[{i}]"] = gradient
    return gradients


# A tensor that the program wrote to: the gradient of its new value is not asked for.
WRITTEN = "written to"


def _differentiable(value: torch.Tensor) -> bool:
    """Could a gradient begin here? A view whose base was written to may be of no use: torch says so when asked."""
    try:
        return value.requires_grad and value.grad_fn is not None
    except RuntimeError:
        return False


def _backward(outputs: list[torch.Tensor]) -> str:
    try:
        torch.autograd.backward(outputs, [_weights(o) for o in outputs])
    except RuntimeError as error:
        return _kind(error)
    return ""


def _kind(error: RuntimeError) -> str:
    return f"raises {'version' if 'modified by an inplace' in str(error) else type(error).__name__}"


def _written(tensor: torch.Tensor, quiet: bool) -> str:
    try:
        with torch.set_grad_enabled(not quiet):
            if tensor.dtype is torch.bool:
                tensor.logical_not_()
            elif quiet or not tensor.is_floating_point():
                tensor.add_(1)
            else:
                tensor.mul_(2)
    except RuntimeError as error:
        return type(error).__name__
    return ""


def _excuse(eager: Any, compiled: Any) -> None:
    """What is saved for the backward differs, so may whether an overwritten tensor was: an error is no wrong number."""
    if eager.get("picture") == "raises RuntimeError":  # a view of no use any more
        eager.clear()
        compiled.clear()
    if "gradients" in eager:
        mine, other = eager["gradients"], compiled["gradients"]
        if "raises version" in (mine, other) or "none asked for" in (mine, other):
            eager["gradients"] = other
        elif isinstance(mine, dict) and isinstance(other, dict):
            for name in mine:
                if WRITTEN in (mine[name], other[name]):
                    mine[name] = other[name]
    if "error" in eager and "raises version" in (eager["error"], compiled["error"]):
        eager.clear()
        compiled.clear()


def _forgive(eager: Any, compiled: Any) -> None:
    """Let values that differ in their last bits pass."""
    if isinstance(eager, Values) and isinstance(compiled, Values):
        a, b = eager.tensor, compiled.tensor
        if a.dtype == b.dtype and a.shape == b.shape and a.is_floating_point() | a.is_complex():
            if torch.allclose(a, b, *_tolerance(a.dtype), equal_nan=True):
                compiled.tensor = a
    elif isinstance(eager, Node) and isinstance(compiled, Node):
        _forgive(eager.parts, compiled.parts)
    elif isinstance(eager, dict) and isinstance(compiled, dict):
        for name in eager.keys() & compiled.keys():
            _forgive(eager[name], compiled[name])


def _tolerance(dtype: torch.dtype) -> tuple[float, float]:
    return {torch.float64: (1e-12, 1e-13), torch.complex128: (1e-12, 1e-13), torch.float16: (2e-3, 1e-3),
            torch.bfloat16: (2e-2, 1e-2)}.get(dtype, (2e-6, 1e-6))  # fmt: skip
