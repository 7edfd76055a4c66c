"""DistributedDataParallel compiled by jitney: gradients are reduced while the backward still runs.

An extension: installed, it acts on modules in ``torch.nn.parallel.DistributedDataParallel`` and on nothing else. This
module is imported at the first compile of any program, so it imports the rest only once a DDP module is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney.backends import CompileRequest, ExtensionOptions, TrainingRun, hookimpl
from jitney_ddp_bucketing.options import DDPOptions
from jitney_ddp_bucketing.private import active_module, is_ddp

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


@hookimpl
def jitney_options() -> type:
    """``ddp``, ``bucket_cap_mb`` and ``first_bucket_cap_mb``."""
    return DDPOptions


@hookimpl
def jitney_acts() -> bool:
    """Does the forward of a DDP module run?"""
    return active_module() is not None


@hookimpl
def jitney_wrap_module(
    module: torch.nn.Module, compile: Callable[[torch.nn.Module], torch.nn.Module], options: ExtensionOptions
) -> Callable[..., Any] | None:
    """DDP's own forward runs as it is, around the compiled module."""
    if not is_ddp(module):
        return None
    from jitney_ddp_bucketing.wrapped import WrappedCall

    return WrappedCall(module, compile, options.of(DDPOptions))


@hookimpl
def jitney_split_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, places: Sequence[fx.Node]
) -> Sequence[fx.Node] | None:
    """Where bucket ends: in mode ``split``, and where ``in_graph`` does not apply."""
    from jitney_ddp_bucketing.wrapped import split_graph

    return split_graph(active_module(), graph, request, places)


@hookimpl
def jitney_watch_training(request: CompileRequest) -> Callable[[], TrainingRun | None] | None:
    """In mode ``in_graph``: which form of the backward each run gets."""
    from jitney_ddp_bucketing.wrapped import watch_training

    return watch_training(active_module(), request)


@hookimpl
def jitney_transform_aten(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
    """In mode ``in_graph``: the collectives go into the backward graph."""
    if request.kind != "backward" or request.variant is None:
        return None
    from jitney_ddp_bucketing.in_graph import Variant, with_collectives

    return with_collectives(graph, request, request.variant) if isinstance(request.variant, Variant) else None
