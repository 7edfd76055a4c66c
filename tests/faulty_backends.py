"""Backends that are wrong on purpose, each in one way: what bisecting and minifying must find."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney.backends import Backend, CompileRequest

Run = Callable[..., Any]
kept: list[Any] = []


def _name(node: fx.Node) -> str:
    return str(node.target) if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))


def _does(graph: fx.GraphModule, name: str) -> bool:
    return any(_name(node).startswith(name) for node in graph.graph.nodes)


def _changing(graph: fx.GraphModule, name: str, change: Callable[[Any, tuple[Any, ...]], Any]) -> Run:
    """The graph, with the result of one operation changed: ``change(result, arguments)``."""

    class Changed(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            result = super().run_node(node)
            if node.op.startswith("call_") and _name(node).startswith(name):
                args, _ = self.fetch_args_kwargs_from_env(node)
                return change(result, args)
            return result

    interpreter = Changed(graph)
    return lambda *inputs: interpreter.run(*inputs)


def crashes_on_relu(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    if _does(graph, "relu"):
        raise NotImplementedError("there is no kernel for relu")
    return graph.forward


def crashes_when_it_runs(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def refuse(result: Any, args: tuple[Any, ...]) -> Any:
        raise ArithmeticError(f"a kernel for {tuple(result.shape)} failed")

    return _changing(graph, "relu", refuse)


def _off_by_a_percent(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Run:
    return _changing(graph, "exp", lambda result, args: result * 1.01)


def _wrong_backward(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Run:
    if request.kind != "backward":
        return graph.forward
    return _changing(graph, "tanh_backward", lambda result, args: result * 1.01)


def _crashes_in_backward(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Run:
    if request.kind == "backward" and _does(graph, "tanh_backward"):
        raise KeyError("tanh_backward")
    return graph.forward


def wrong_for_bfloat16(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    return _changing(graph, "exp", lambda result, args: result * 1.25 if result.dtype is torch.bfloat16 else result)


def wrong_for_strides(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    """``sin`` reads its argument as if it were contiguous."""

    def as_it_lies(result: torch.Tensor, args: tuple[Any, ...]) -> Any:
        (given,) = args[:1]
        if given.is_contiguous():
            return result
        return torch.sin(torch.as_strided(given, given.shape, torch.empty(given.shape).stride()))

    return _changing(graph, "sin", as_it_lies)


def hangs(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def wait(result: Any, args: tuple[Any, ...]) -> Any:
        while True:
            time.sleep(0.01)

    return _changing(graph, "relu", wait)


def leaks(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def keep(result: Any, args: tuple[Any, ...]) -> Any:
        kept.append(result.detach().clone())
        return result

    return _changing(graph, "tanh", keep)


def returns_its_input(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    return _changing(graph, "clone", lambda result, args: args[0])


def writes_to_its_input(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def in_place(result: torch.Tensor, args: tuple[Any, ...]) -> Any:
        with torch.no_grad():
            args[0].copy_(result)
        return result

    return _changing(graph, "relu", in_place)


def returns_doubles(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    return _changing(graph, "tanh", lambda result, args: result.double())


def takes_the_process_down(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def die(result: Any, args: tuple[Any, ...]) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    return _changing(graph, "relu", die)


off_by_a_percent = Backend("off_by_a_percent", _off_by_a_percent, level="aten")
wrong_backward = Backend("wrong_backward", _wrong_backward, level="aten")
crashes_in_backward = Backend("crashes_in_backward", _crashes_in_backward, level="aten")
