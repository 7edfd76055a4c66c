"""Compiles Triton functions for sm_90, without a GPU: ``machine_code.py FILE.json`` prints what came of each as JSON.

A process of its own, since Triton compiles nothing in one whose kernels run in its interpreter.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from triton.backends.compiler import GPUTarget

from jitney_lowering.index import Size, index
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.launch import compiled
from jitney_triton_gpu.launcher import HEADER

TARGET = GPUTarget("cuda", 90, 32)


def described(functions: list[Function]) -> str:
    """As JSON, all that matters for machine code."""
    return json.dumps([
        {
            "name": f.name,
            "parameters": [(p.name, p.kind, str(p.dtype).removeprefix("torch.")) for p in f.parameters],
            "body": f.body,
            "blocks": dict(f.blocks),
            "warps": f.warps,
            "wide": f.wide,
            "asserts": f.asserts,
        }
        for f in functions
    ])  # fmt: skip


def function_of(row: dict[str, Any]) -> Function:
    parameters = [
        Parameter(name, kind, Size(name) if kind == "size" else name, getattr(torch, dtype))
        for name, kind, dtype in row.pop("parameters")
    ]
    return Function(parameters=tuple(parameters), programs=index(1), **row)


def outcome(function: Function, kernel: Any) -> dict[str, Any]:
    """PTX, bytes of shared memory and of machine code, or the error."""
    try:
        made = compiled(function, kernel, TARGET, aligned=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "text": function.text}
    return {
        "shared": made.shared,
        "bytes": len(made.code),
        "ptx": made.ptx,
        "text": function.text,
    }


def main(path: str) -> None:
    with open(path) as file:
        functions = [function_of(row) for row in json.load(file)]
    spaces: list[dict[str, Any]] = []
    for number, function in enumerate(functions):
        source, name = f"{HEADER}\n{function.text}", f"{path}.{number}.py"
        with open(name, "w") as file:  # Triton reads a function's source
            file.write(source)
        space: dict[str, Any] = {"__name__": f"machine_code_{number}"}
        exec(compile(source, name, "exec"), space)
        spaces.append(space)
    with ThreadPoolExecutor(4) as pool:
        print(json.dumps(list(pool.map(lambda f, s: outcome(f, s[f.name]), functions, spaces))))


if __name__ == "__main__":
    main(sys.argv[1])
