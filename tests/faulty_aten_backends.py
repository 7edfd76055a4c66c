"""The same of ATen graphs, each installed under a name: importing this registers them, as a package's import might."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faulty_backends
from torch import fx

from jitney.backends import Backend, CompileRequest, register_backend


def _crashes_on_relu(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> faulty_backends.Run:
    return faulty_backends.crashes_on_relu(graph, inputs)


def _leaks(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> faulty_backends.Run:
    return faulty_backends.leaks(graph, inputs)


def _returns_its_input(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> faulty_backends.Run:
    return faulty_backends.returns_its_input(graph, inputs)


def _writes_to_its_input(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> faulty_backends.Run:
    return faulty_backends.writes_to_its_input(graph, inputs)


def _wrong_for_strides(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> faulty_backends.Run:
    return faulty_backends.wrong_for_strides(graph, inputs)


NAMES = {
    "aten_crashes_on_relu": _crashes_on_relu,
    "aten_leaks": _leaks,
    "aten_returns_its_input": _returns_its_input,
    "aten_writes_to_its_input": _writes_to_its_input,
    "aten_wrong_for_strides": _wrong_for_strides,
}
for _name, _compile in NAMES.items():
    register_backend(Backend(_name, _compile, level="aten"))
