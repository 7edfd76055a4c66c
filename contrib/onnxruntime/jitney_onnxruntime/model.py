"""What a ``Writer`` has collected as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from onnx import ModelProto, helper

from jitney_onnxruntime.dtypes import ELEMENT
from jitney_onnxruntime.writer import Size, Step, Value, Writer, raw

OPSET, IR = 21, 10  # later ones have nothing that is needed


def used_steps(steps: Sequence[Step], results: Sequence[str]) -> list[Step]:
    """The steps that results need; outputs that nobody reads have no names."""
    needed, kept = set(results), []
    for step in reversed(steps):
        if needed.isdisjoint(step.outputs):
            continue
        outputs = tuple(name if name in needed else "" for name in step.outputs)
        needed |= set(step.inputs)
        while not outputs[-1]:
            outputs = outputs[:-1]
        kept.append(replace(step, outputs=outputs))
    return kept[::-1]


def model_of(
    writer: Writer, inputs: Sequence[tuple[Value, Sequence[Size]]], results: Sequence[Value]
) -> tuple[ModelProto, list[str]]:
    """The model, and the names of the inputs that it has: those of the given ones that it reads.

    Args:
        writer: nodes, constants and sizes.
        inputs: tensors with their shapes.
        results: tensors, in order.
    """
    steps = used_steps(writer.steps, [value.name for value in results])
    read = {name for step in steps for name in step.inputs}
    given = [(value, shape) for value, shape in inputs if value.name in read]
    for name, sizes in writer.sizes_given.items():
        if name in read:
            given.append((Value(name, torch.int64), [len(sizes)]))
    infos = [
        helper.make_tensor_value_info(v.name, ELEMENT[v.dtype], [n if isinstance(n, int) else str(n) for n in shape])
        for v, shape in given
    ]
    graph = helper.make_graph(
        [helper.make_node(step.kind, step.inputs, step.outputs, **step.attributes) for step in steps],
        "jitney",
        infos,
        [helper.make_tensor_value_info(v.name, ELEMENT[v.dtype], None) for v in results],
        [
            helper.make_tensor(name, ELEMENT[tensor.dtype], list(tensor.shape), raw(tensor), raw=True)
            for name, tensor in writer.constants.items()
            if name in read
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return model, [value.name for value, _ in given]
