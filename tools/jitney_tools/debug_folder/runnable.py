"""A captured graph as a program of its own, with inputs of the same shapes, dtypes and strides."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

HEAD = '''\
"""{title}

`python THIS_FILE` runs it eagerly on random inputs; `--backend NAME` through that backend of jitney.
"""

import argparse

import torch
{imports}

'''
MAKE = '''
def make(size, stride, dtype, device="cpu", requires_grad=False):
    """Random numbers in this layout; integers are 0 or 1, which is an index that mostly fits."""
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride)) if all(size) else 0
    memory = torch.empty(extent, dtype=dtype, device=device)
    memory = memory.normal_() if dtype.is_floating_point or dtype.is_complex else memory.random_(0, 2)
    return memory.as_strided(size, stride).requires_grad_(requires_grad)

'''
FOOT = """

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="")
    name = parser.parse_args().backend
    function = Graph().forward
    if name:
        import jitney

        function = jitney.compile(function, backend=name)
    for number, result in enumerate(function(*inputs())):
        print(number, tuple(result.shape) if isinstance(result, torch.Tensor) else result)
"""


def program(graph: fx.GraphModule, inputs: Sequence[Any], title: str) -> str:
    """Python text; what it cannot import is a comment that says so.

    Args:
        graph: operations as the user called them.
        inputs: FakeTensors and symbols, one for each placeholder.
        title: one line about it.
    """
    code = graph.graph.python_code("self")
    imports = list(_imports(code.globals))
    lines = [HEAD.format(title=title, imports="\n".join(imports)), MAKE]
    lines.append("\nclass Graph(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n")
    held = {node.target for node in graph.graph.nodes if node.op == "get_attr"}
    for name in sorted(map(str, held)):
        lines.append(f"        self.{name} = {_made(getattr(graph, name, None))}\n")
    lines.append("".join(f"    {line}\n" if line else "\n" for line in code.src.strip().splitlines()))
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    given = "".join(f"        {_made(value)},  # {name}\n" for name, value in zip(names, inputs, strict=False))
    lines.append(f"\n\ndef inputs():\n    return [\n{given}    ]\n{FOOT}")
    return "".join(lines)


def _made(value: Any) -> str:
    """Python text that makes something like this value."""
    if isinstance(value, torch.Tensor):
        size, stride = (tuple(map(_number, of)) for of in (value.shape, value.stride()))
        device = "" if value.device.type == "cpu" else f", device={value.device.type!r}"
        grad = ", requires_grad=True" if value.requires_grad and value.is_leaf else ""
        return f"make({size}, {stride}, {value.dtype}{device}{grad})"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return repr(_number(value))
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else f"None  # {type(value).__name__}"


def _number(value: Any) -> Any:
    """A number, or what a symbol was while compiling."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        known = value.node.hint
        return 2 if known is None else known
    return value


def _imports(names: Mapping[str, Any]) -> Iterator[str]:
    """One line for each name that the graph's code reads."""
    for name, value in names.items():
        if name == "torch":
            continue
        if isinstance(value, types.ModuleType):
            yield f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
        elif isinstance(value, float):
            yield f'{name} = float("{value}")'
        elif value is type(None):
            yield f"{name} = type(None)"
        elif (own := getattr(value, "__name__", "")) and getattr(inspect.getmodule(value), own, None) is value:
            yield f"from {value.__module__} import {own} as {name}"
        else:
            yield f"# {name} is {value!r:.80}: define it here"
