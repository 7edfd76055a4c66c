"""From an ATen graph to the function that runs it: lower, schedule, emit, wrap, compile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from jitney.backends import CompileRequest
from jitney_c_loops import library
from jitney_c_loops.emit import emit
from jitney_c_loops.options import CLoopsOptions
from jitney_lowering import NotLowered, Policy, Wrapper, decompositions, describe, lower, schedule, sizes_in
from jitney_lowering.ir import Extern, Kernel, canonical

# One thread, and no reason to put parts of a row aside.
POLICY = Policy(few_rows=1, scans=frozenset({"cumsum"}))


def aten_decompositions(options: CLoopsOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that are taken apart."""
    return decompositions(fallback_random=options.fallback_random)


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``."""
    options: CLoopsOptions = request.options
    try:
        program = lower(graph, inputs, relaxed_math=options.relaxed_math, policy=POLICY)
    except NotLowered as refusal:  # values that are no tensors or sizes: the graph runs operator by operator
        request.lowered(0, [("the whole graph", str(refusal))])
        return graph.forward
    scheduled = schedule(program, request.updates, policy=POLICY)
    kernels = Kernels()
    wrapper = Wrapper(scheduled, kernels, request.frame, kind=request.kind)
    run = wrapper.build()
    whole = [(str(item.target), item.reason) for item in scheduled.items if isinstance(item, Extern)]
    request.lowered(len(scheduled.items) - len(whole), whole)
    if request.detailed:
        request.save("output_code", f"{program}\n\n{scheduled}\n\n{wrapper.source}\n\n{kernels.text}\n")
        description = describe(scheduled, inputs)
        request.scheduled(description.launches, description.arena, description.before, description.after)
    wrapper.namespace.update(kernels.functions(options.optimize))
    return run


class Kernels:
    """Launches each kernel by a call of its C function (a ``Launch``); the functions are compiled at the end."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.known: list[tuple[Kernel, str]] = []

    def __call__(self, items: Sequence[Kernel | Extern], wrapper: Wrapper) -> list[str]:
        """A Python line for each kernel."""
        return [self._call(item, wrapper) for item in items if isinstance(item, Kernel)]

    def _call(self, kernel: Kernel, wrapper: Wrapper) -> str:
        plain, buffers = canonical(kernel)  # kernels that differ in names only are one function
        sizes = sizes_in([plain])
        name = next((name for known, name in self.known if known == plain), None)
        if name is None:
            name = f"kernel{len(self.known)}"
            self.known.append((plain, name))
            self.texts.append(emit(plain, name, sizes))
        pointers = _packed([wrapper.pointer(buffer) for buffer in buffers], wrapper)
        return f"{name}({pointers}, {_packed([wrapper.size(size) for size in sizes], wrapper)})"

    @property
    def text(self) -> str:
        """The C program."""
        return "\n".join(self.texts)

    def functions(self, optimize: int) -> dict[str, Callable[[bytes, bytes], None]]:
        """The kernels, by the names under which the wrapper calls them."""
        if not self.known:
            return {}
        compiled = library.load(self.text, optimize)
        return {name: library.function(compiled, name) for _, name in self.known}


def _packed(numbers: Sequence[str], wrapper: Wrapper) -> str:
    """Python text of an array of 64-bit integers."""
    return f"{wrapper.constant(struct.Struct(f'{len(numbers)}q').pack)}({', '.join(numbers)})"
