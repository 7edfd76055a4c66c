"""Backends that keep, share or change what is not theirs, on purpose, registered in ``WRONG``."""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch
from testing.wrong_backends import WRONG, Run, _each, _is, _operators, _percent, wrong
from torch import fx

from jitney.backends import Backend, CompileRequest, SerializedGraph

aten = torch.ops.aten

# ---------------------------------------------------------------------- memory that is used again


@wrong("contract.reuses_results")
def has_a_ring_of_four(run, graph, request):
    rings: dict[int, list[torch.Tensor]] = {}

    def kept(at, result):
        ring = rings.setdefault(at, [])
        ring.append(ring.pop(0) if len(ring) == 4 else torch.empty_like(result))
        return ring[-1].copy_(result).view(result.shape)

    return lambda *inputs: [kept(at, r) for at, r in enumerate(run(*inputs))]


_POOL: dict[Any, tuple[Any, torch.Tensor]] = {}


@wrong("contract.reuses_results")
def shares_results_among_graphs(run, graph, request):
    def kept(result):
        owner, place = _POOL.get(result.shape, (None, result))
        place = torch.empty_like(result) if owner in (None, run) else place
        _POOL[result.shape] = run, place
        return place.copy_(result).view(result.shape)

    return lambda *inputs: _each(run(*inputs), kept)


@wrong("contract.writes_to_inputs")
def writes_to_views(run, graph, request):
    def change(node, args, r):
        if _is(node, "sin", "relu", "exp", "tanh") and args[0].storage_offset():
            args[0].copy_(r)
        return r

    return _operators(graph, change)


@wrong("contract.remembers_results")
def folds_what_has_no_inputs(run, graph, request):
    if any(node.op == "placeholder" for node in graph.graph.nodes):
        return run
    known: list[Any] = []

    def compiled():
        known[:] = known or list(run())
        return list(known)

    return compiled


@wrong("contract.not_thread_safe")
def remembers_in_threads(run, graph, request):
    local = threading.local()

    def compiled(*inputs):
        if threading.current_thread() is threading.main_thread():
            return run(*inputs)
        local.results = getattr(local, "results", None) or run(*inputs)
        return _each(local.results, torch.clone)

    return compiled


@wrong("views.alias_for_what_is_kept")
def forgets_clones_of_residuals(run, graph, request):
    def change(node, args, r):
        inner = _is(node, "clone") and node.args[0].op != "placeholder"
        return args[0] if inner and request.kind == "forward" else r

    return _operators(graph, change)


@wrong("training.writes_to_tangents")
def writes_to_tangents(run, graph, request):
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]

    def compiled(*inputs):
        results = _each(run(*inputs), torch.clone)
        for name, value in zip(names, inputs, strict=True):
            if "tangent" in name and 0 not in value.stride():
                value.detach().zero_()
        return results

    return compiled


@wrong("training.old_weights")
def packs_weights(run, graph, request):
    packed: dict[int, torch.Tensor] = {}

    def change(node, args, r):
        if request.kind != "inference" or not _is(node, "addmm"):
            return r
        bias, x, weight = args
        return aten.addmm(bias, x, packed.setdefault(weight.data_ptr(), weight.clone()))

    return _operators(graph, change)


@wrong("memory.results_hold_more")
def returns_parts_of_an_arena(run, graph, request):
    def moved(result):
        room = torch.empty(result.numel() + 4096, dtype=result.dtype)
        return room[: result.numel()].view(result.shape).copy_(result)

    return (lambda *inputs: _each(run(*inputs), moved)) if request.kind == "inference" else run


@wrong("memory.results_hold_more")
def returns_what_cannot_grow(run, graph, request):
    def foreign(result):
        return torch.from_numpy(result.numpy()) if result.is_contiguous() and request.kind == "inference" else result

    return lambda *inputs: _each(run(*inputs), foreign)


@wrong("views.unseen_write", level="torch")
def writes_unseen(run, graph, request):
    return lambda *inputs: run(*(i if i.requires_grad else i.data for i in inputs))


@wrong("views.written_before_it_fails")
def writes_before_it_fails(run, graph, request):
    if not request.updates:
        return run
    outputs = graph.graph.output_node().args[0]

    def change(node, args, r):
        for at, place in request.updates.items():
            if node is outputs[at]:
                given[place].copy_(r)
        return r

    given: list[Any] = []
    inner = _operators(graph, change)

    def compiled(*inputs):
        given[:] = inputs
        return inner(*inputs)

    compiled.filled = frozenset()
    return compiled


# ---------------------------------------------------------------------- random numbers


@wrong("randomness.same_numbers_again")
def folds_random_numbers(run, graph, request):
    if any(node.op == "placeholder" for node in graph.graph.nodes):
        return run
    known: list[Any] = []

    def compiled():
        known[:] = known or list(run())
        return _each(known, torch.clone)

    return compiled


@wrong("randomness.same_numbers_again")
def has_each_mask_twice(run, graph, request):
    waiting: list[Any] = []

    def change(node, args, r):
        if not _is(node, "bernoulli"):
            return r
        if waiting:
            return waiting.pop()
        waiting.append(r)
        return r

    return _operators(graph, change)


# ---------------------------------------------------------------------- threads and modes


@wrong("training.other_threads")
def compiles_in_the_main_thread(run, graph, request):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("there is no context in this thread")
    return run


@wrong("training.other_threads")
def goes_back_in_the_main_thread(run, graph, request):
    def compiled(*inputs):
        other = request.kind == "backward" and threading.current_thread() is not threading.main_thread()
        return _each(run(*inputs), lambda r: r * 2 if other else r)

    return compiled


# ---------------------------------------------------------------------- the process


@wrong("contract.changes_global_state")
def flushes_denormals_everywhere(run, graph, request):
    torch.set_flush_denormal(True)
    return run


@wrong("contract.changes_global_state")
def multiplies_less_precisely(run, graph, request):
    torch.set_float32_matmul_precision("medium")
    return run


@wrong("contract.changes_global_state")
def collects_no_garbage(run, graph, request):
    def calls(*inputs):
        gc.disable()
        return run(*inputs)

    return calls


@wrong("contract.changes_global_state")
def recurses_deeper(run, graph, request):
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    return run


# ---------------------------------------------------------------------- what it is handed

_GRAPHS: list[fx.GraphModule] = []


@wrong("contract.keeps_graphs")
def keeps_all_graphs(run, graph, request):
    _GRAPHS.append(graph)
    return run


@wrong("contract.changes_the_graph")
def forgets_what_is_known(run, graph, request):
    for node in graph.graph.nodes:
        node.meta.clear()
    return run


def compile_for_disk(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Run:
    """Keeps how many results there are."""
    count = len(graph.graph.output_node().args[0])

    def compiled(*given):
        return graph.forward(*given)

    compiled.serialize = lambda: SerializedGraph([count])  # type: ignore[attr-defined]
    return compiled


def load_wrongly(serialized: SerializedGraph, request: CompileRequest) -> Run:
    """Makes zeros."""
    return lambda *given: [torch.zeros(4, 3)] * serialized.data[0]


loads_zeros = Backend("loads_zeros", compile_for_disk, level="aten", load=load_wrongly)
WRONG["loads_zeros"] = (loads_zeros, "contract.wrong_when_loaded")


@dataclasses.dataclass(frozen=True)
class Speed:
    """Args: fast: be wrong."""

    fast: bool = False


def compile_fast(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Run:
    """A percent off, if so asked."""
    return lambda *given: _each(graph.forward(*given), _percent if request.options.fast else lambda r: r)


wrong_if_fast = Backend("wrong_if_fast", compile_fast, level="aten", options=Speed)
WRONG["wrong_if_fast"] = (wrong_if_fast, "contract.wrong_with_an_option")
