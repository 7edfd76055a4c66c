"""From an ATen graph to Inductor's kernels."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._inductor
from torch import fx
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._subclasses.fake_tensor import FakeTensor

from jitney.backends import CompileRequest
from jitney_inductor.options import InductorOptions
from jitney_inductor.sizes import Assumptions, unknown_symbols


def aten_decompositions(options: InductorOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that Inductor wants taken apart."""
    with config.patch(patches(options)):
        return dict(select_decomp_table())


def patches(options: InductorOptions) -> dict[str, Any]:
    """The options as settings of Inductor's."""
    found: dict[str, Any] = dict(torch._inductor.list_mode_options(options.mode))
    found["fallback_random"] = options.fallback_random
    found["emulate_precision_casts"] = options.emulate_precision_casts
    return {**found, **options.settings}


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The graph's kernels; see ``Backend``. A graph with numbers that Inductor cannot bind runs as it is."""
    reason = unknown_symbols(graph, inputs)
    if reason:
        request.lowered(0, [("the whole graph", reason)])
        return graph.forward
    assumptions = Assumptions(inputs)
    with config.patch(patches(request.options)), _without_autocast(), _with_constants(graph):
        compiled = compile_fx_inner(
            _prepared(graph, request),
            list(inputs),
            is_inference=request.kind == "inference",
            is_backward=request.kind == "backward",
        )
    holds = assumptions.check()

    def run(*values: Any) -> Sequence[Any]:
        return boxed(list(values))

    def boxed(values: list[Any]) -> Sequence[Any]:
        if holds is not None and not holds(values):
            return graph.forward(*values)
        return compiled(values)

    setattr(run, "boxed", boxed)  # noqa: B010 (functions have no such attribute, says mypy)
    return run


def _prepared(graph: fx.GraphModule, request: CompileRequest) -> fx.GraphModule:
    """A copy, which Inductor may change, whose outputs keep the strides that were promised."""
    module = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    if request.kind == "inference":  # patterns over a whole graph; training's have been cut already
        joint_graph_passes(module)
    output = module.graph.output_node()
    returned: Any = output.args[0]
    output.meta["user_visible_output_idxs"] = [i for i, v in enumerate(returned) if isinstance(v, fx.Node)]
    return module


@contextlib.contextmanager
def _with_constants(graph: fx.GraphModule) -> Iterator[None]:
    """Inductor runs the graph on stand-ins once more; tensors that the graph holds are none, and may be among them."""
    values = [node.meta.get("val") for node in graph.graph.nodes]
    modes = {id(v.fake_mode): v.fake_mode for v in values if isinstance(v, FakeTensor)}.values()
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.callback(setattr, mode, "allow_non_fake_inputs", mode.allow_non_fake_inputs)
            mode.allow_non_fake_inputs = True
        yield


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    """The graph has its casts; Inductor traces patterns, which must not get others."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
