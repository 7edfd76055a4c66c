"""Numbers that change as keys: hooks registered, run and removed within a call, by torch's handles or others."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_scenario, compile_fn, t
from torch import nn

import jitney

HOOKS: dict[Any, Any] = {}


class Handle:
    """As torch's: a number of its own under which something is registered."""

    count = 0

    def __init__(self, hooks: Any, hook: Any) -> None:
        self.hooks = hooks
        self.id = Handle.count
        Handle.count += 1
        hooks[self.id] = hook

    def remove(self) -> None:
        """Once."""
        if self.id in self.hooks:
            del self.hooks[self.id]


def check_calls(fn: Callable[[torch.Tensor, Any], Any], make: Callable[[], Any], *, captures: int | None) -> None:
    """Six calls, of which the last two count from the beginning again; ``captures``: how often it is compiled."""

    def scenario(compile: Callable[[Any], Any]) -> Any:
        HOOKS.clear()
        called, told, found = compile(fn), [], []
        given = make()
        for i in range(6):
            Handle.count = Handle.count if i % 4 else 2
            with jitney.CompileProfiler() as profile:
                told.append((called(t(2), given), Handle.count, {**HOOKS}))
            found.append(profile.captures)
        if compile is compile_fn and captures is not None:
            assert sum(found) == captures, found
        return told

    check_scenario(scenario)


def run(x: torch.Tensor, hooks: Any) -> torch.Tensor:
    for number, hook in [*hooks.items()]:
        if number in hooks:
            x = hook(x)
    return x


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def in_order(x: torch.Tensor, hooks: Any) -> Any:
    handles = [Handle(hooks, double), Handle(hooks, torch.sin)]
    y = run(x, hooks)
    told = len(hooks), bool(hooks), hooks[handles[1].id] is torch.sin, hooks.get(handles[0].id) is double
    for handle in [*handles, *handles]:
        handle.remove()
    return y, told, len(hooks)


def ids_given_out(x: torch.Tensor, hooks: Any) -> Any:
    handle = Handle(hooks, double)
    ids = [*hooks.keys()]
    hooks[handle.id] = torch.sin
    y = run(x, hooks)
    handle.remove()
    return y, ids, handle.id, [hook for hook in (*hooks.values(),)]


@pytest.mark.parametrize("fn", [in_order, ids_given_out])
def test_what_is_removed_again_compiles_twice(fn: Any) -> None:
    check_calls(fn, lambda: HOOKS, captures=2)


@pytest.mark.parametrize("fn", [in_order, ids_given_out])
def test_a_key_that_is_there_already_is_another_case(fn: Any) -> None:
    def make() -> Any:
        return HOOKS | {2: torch.cos, "name": torch.tanh}

    check_calls(fn, make, captures=None)


READERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda hooks: list(hooks),
    "display": lambda hooks: [*hooks],
    "for": lambda hooks: [number + 1 for number in hooks],
    "merge": lambda hooks: {**hooks},
    "copy": lambda hooks: hooks.copy(),
    "equality": lambda hooks: hooks == {5: double},
    "constant": lambda hooks: (3 in hooks, 5 in hooks, hooks.get(4)),
    "view": lambda hooks: 4 in hooks.keys(),
    "largest": lambda hooks: max(hooks, default=0),
    "text": lambda hooks: str([*hooks.keys()]),
    "class": lambda hooks: [(type(number), isinstance(number, int)) for number, _ in [*hooks.items()]],
    "classes of views": lambda hooks: [type(view).__name__ for view in (*map(dict.items, [hooks]),)],
    "last": lambda hooks: hooks.popitem()[0],
    "popped": lambda hooks: hooks.pop(Handle.count - 1) is double,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_who_looks_at_keys_finds_them(read: Any) -> None:
    def fn(x: torch.Tensor, hooks: Any) -> Any:
        before = hooks.keys()
        handle = Handle(hooks, double)
        y, found = run(x, hooks), read(hooks)
        counted = len(before)
        handle.remove()
        return y, found, counted

    check_calls(fn, dict, captures=None)
    check_calls(lambda x, hooks: fn(x, hooks)[:2], lambda: {1: torch.sin}, captures=None)


def test_what_stays_registered() -> None:
    def fn(x: torch.Tensor, hooks: Any) -> Any:
        Handle(hooks, double)
        return run(x, hooks)

    check_calls(fn, lambda: HOOKS, captures=None)


def test_a_break_between() -> None:
    def fn(x: torch.Tensor, hooks: Any) -> Any:
        handle = Handle(hooks, double)
        y = run(x, hooks)
        jitney.graph_break()
        y = run(y, hooks)
        handle.remove()
        return y, handle.id

    check_calls(fn, lambda: collections.OrderedDict({0: torch.sin}), captures=None)


def with_arguments(x: torch.Tensor, net: nn.Module) -> torch.Tensor:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return (args[0] * 3,), kwargs

    handle = net[0].register_forward_pre_hook(hook, with_kwargs=True)  # type: ignore[index]
    y: torch.Tensor = net(x)
    handle.remove()
    return y


def of_each_module(x: torch.Tensor, net: nn.Module) -> Any:
    seen: list[Any] = []
    with contextlib.ExitStack() as stack:
        for module in net.modules():
            stack.enter_context(module.register_forward_hook(lambda _, __, output: seen.append(output)))
        return net(x), seen


def within_try(x: torch.Tensor, net: nn.Module) -> torch.Tensor:
    handles = []
    try:
        handles.append(net.register_forward_hook(lambda module, args, output: output + 1))
        y: torch.Tensor = net(x)
        return y
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("fn", [with_arguments, of_each_module, within_try])
def test_hooks_of_modules_for_one_call(fn: Any, hooked: bool) -> None:
    def make() -> nn.Module:
        net = nn.Sequential(nn.Identity(), nn.Tanh())
        if hooked:
            net[0].register_forward_pre_hook(lambda module, args: (args[0] - 1,))
            net.register_forward_hook(lambda module, args, kwargs, output: output * 2, with_kwargs=True)
        return net

    def scenario(compile: Callable[[Any], Any]) -> Any:
        called, told, net = compile(fn), [], make()
        with jitney.CompileProfiler() as profile:
            for _ in range(5):
                told.append((called(t(2), net), [len(m._forward_hooks) for m in net.modules()]))
        if compile is compile_fn:
            assert profile.captures == 2, profile.report()
        return told

    check_scenario(scenario)


def test_what_compiling_counts_is_not_seen() -> None:
    def fn(x: torch.Tensor, net: nn.Module) -> Any:
        seen: dict[str, Any] = {}
        handles = [
            child.register_forward_hook(lambda _, __, output, name=name: seen.__setitem__(name, output))
            for name, child in net.named_children()
        ]
        y = net(x)
        for handle in handles:
            handle.remove()
        return y * 2, seen, [handle.id for handle in handles]

    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    before = torch.utils.hooks.RemovableHandle.next_id
    _, seen, ids = jitney.compile(fn, backend="aot_eager")(torch.ones(1, 2), net)
    assert ids == [before, before + 1, before + 2]
    torch.testing.assert_close(seen["2"], net(torch.ones(1, 2)))
