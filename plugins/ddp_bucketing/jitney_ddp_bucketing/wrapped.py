"""DDP modules that are compiled, and what the hooks of jitney and of the modules do with them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney.backends import CompileRequest
from jitney_ddp_bucketing import private
from jitney_ddp_bucketing.buckets import table
from jitney_ddp_bucketing.options import DDPOptions
from jitney_ddp_bucketing.runs import Run
from jitney_ddp_bucketing.split import cuts
from jitney_ddp_bucketing.state import State
from jitney_ddp_bucketing.steps import reducer_waits

TITLE = "DDP buckets"


class WrappedCall:
    """What a compiled DDP module runs: DDP's forward, with the compiled module in the place of the one it wraps.

    Args:
        ddp: the DDP module.
        compile_module: compiles the wrapped module.
        options: what the user asked for.

    Raises:
        JitneyError: what DDP was asked for cannot be compiled.
    """

    def __init__(self, ddp: Any, compile_module: Callable[[torch.nn.Module], torch.nn.Module], options: DDPOptions):
        self.ddp = ddp
        self.state = _new_state(ddp, options)
        self.inner = compile_module(ddp.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A call of the DDP module."""
        _states[self.ddp] = self.state  # a DDP module may be compiled several times, as by ``explain``
        modules = self.ddp._modules
        before = modules["module"]
        modules["module"] = self.inner
        try:
            return self.ddp(*args, **kwargs)
        finally:
            modules["module"] = before


_states: weakref.WeakKeyDictionary[Any, State] = weakref.WeakKeyDictionary()


def state_of(ddp: Any, options: DDPOptions) -> State:
    """What is known of a DDP module, for ``DDP(jitney.compile(module))``: the first graph says with which options."""
    found = _states.get(ddp)
    if found is None:
        found = _states[ddp] = _new_state(ddp, options)
    return found


def _new_state(ddp: Any, options: DDPOptions) -> State:
    state = State(ddp, options)
    if options.ddp == "in_graph" and _begin not in ddp._forward_pre_hooks.values():  # a copy has them already
        ddp.register_forward_pre_hook(_begin)
        ddp.register_forward_hook(_end, always_call=True)
    return state


def _begin(ddp: Any, args: Any) -> None:
    state = _states.get(ddp)
    if state is not None and state.options.ddp == "in_graph":  # a copy of a DDP module has its hooks, and no state yet
        state.begin(ddp)


def _end(ddp: Any, args: Any, output: Any) -> None:
    state = _states.get(ddp)
    if state is not None and state.step is not None:
        state.end(ddp, output)
    elif torch.is_grad_enabled() and ddp.require_backward_grad_sync:
        reducer_waits.add(ddp)


def split_graph(
    ddp: Any, graph: fx.GraphModule, request: CompileRequest, places: Sequence[fx.Node]
) -> Sequence[fx.Node] | None:
    """Where a captured graph of a DDP module is cut."""
    if request.kind != "forward":
        return None
    state = state_of(ddp, request.extensions.of(DDPOptions))
    if state.options.ddp == "off":
        return None
    state.ranks.compare(graph.graph, request.frame)
    if state.options.ddp == "in_graph":
        if state.agree(ddp, graph.graph, request):
            rows = [([state.items[i] for i in bucket], None) for bucket in state.buckets]
            request.tell(TITLE, ["in_graph: the collectives are in the backward graph", *table(rows)])
            return None
        request.tell(TITLE, [f"split, since in_graph does not apply: {state.why_not}"])
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    found = {n: state.parameter_at(a) for n, a in zip(placeholders, request.arguments, strict=True)}
    made = cuts(graph.graph, {n: state.items[i] for n, i in found.items() if i is not None}, places, state.limits)
    request.tell(TITLE, table(made.rows))
    return made.before


def watch_training(ddp: Any, request: CompileRequest) -> Callable[[], Run | None] | None:
    """What is asked at each run of a training graph of a DDP module."""
    state = _states.get(ddp)
    if state is None:
        return None
    reduces = state.variant(request) if state.agreed and request.whole else None

    def started() -> Run | None:
        active = private.active_module()
        if active is None or _states.get(active) is not state:
            return None
        if state.step is not None:
            state.step.runs += 1
            return Run(state, state.step, reduces)
        if not active.require_backward_grad_sync:
            return Run(state, state.opened(synced=False), None) if state.agreed else None
        reducer_waits.add(active)
        return Run(state, None, None)

    return started
