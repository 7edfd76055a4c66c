"""Backends that are wrong on purpose, each in one way, and the check that must find it: ``WRONG``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney.backends import Backend, CompileRequest

aten = torch.ops.aten
Run = Callable[..., Sequence[Any]]
Around = Callable[[Run, fx.GraphModule, CompileRequest], Run]
# name -> (the backend, the check that finds it)
WRONG: dict[str, tuple[Backend, str]] = {}


def wrong(check: str, level: Any = "aten") -> Callable[[Around], Backend]:
    """Make a backend of what is put around a graph's own ``forward``."""

    def register(around: Around) -> Backend:
        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Run:
            return around(graph.forward, graph, request)

        compile_graph.__module__ = around.__module__
        backend = Backend(around.__name__, compile_graph, level=level)
        WRONG[around.__name__] = (backend, check)
        return backend

    return register


def _each(results: Any, change: Callable[[Any], Any]) -> list[Any]:
    return [change(r) if isinstance(r, torch.Tensor) else r for r in results]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _percent(value: Any) -> Any:
    return value * 1.01 if _is_float(value) else value


def _operators(graph: fx.GraphModule, change: Callable[[fx.Node, tuple[Any, ...], Any], Any]) -> Run:
    """The graph, each operator's result changed: ``change(node, arguments, result)``."""

    class Changed(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            result = super().run_node(node)
            if node.op != "call_function":
                return result
            args, _ = self.fetch_args_kwargs_from_env(node)
            return change(node, args, result)

    return lambda *inputs: Changed(graph).run(*inputs)


def _is(node: fx.Node, *names: str) -> bool:
    return str(node.target).removeprefix("aten.").partition(".")[0] in names


# ---------------------------------------------------------------------- numbers


@wrong("contract.wrong_results")
def off_by_a_percent(run, graph, request):
    return lambda *inputs: _each(run(*inputs), _percent)


@wrong("contract.wrong_results")
def raises_for_softmax(run, graph, request):
    def refuse(node, args, result):
        if _is(node, "_softmax"):
            raise NotImplementedError("there is no kernel for it")
        return result

    return _operators(graph, refuse)


@wrong("numbers.bfloat16")
def wrong_in_bfloat16(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r * 1.25 if r.dtype is torch.bfloat16 else r)


@wrong("numbers.int64")
def wrong_in_int64(run, graph, request):
    return _operators(graph, lambda node, args, r: r + 1 if _is(node, "mul") and r.dtype is torch.int64 else r)


@wrong("numbers.nan")
def skips_nan_in_extremes(run, graph, request):
    def change(node, args, result):
        if _is(node, "maximum"):
            return torch.fmax(*args)
        return aten.amax(args[0].nan_to_num(-1e30), *args[1:]) if _is(node, "amax") else result

    return _operators(graph, change)


@wrong("numbers.signed_zero")
def forgets_the_sign_of_zero(run, graph, request):
    return lambda *inputs: _each(run(*(i + 0.0 if _is_float(i) else i for i in inputs)), lambda r: r)


@wrong("numbers.integer_division")
def divides_towards_zero(run, graph, request):
    def change(node, args, result):
        whole = _is(node, "floor_divide", "div") and "floor" in str((node.target, node.kwargs))
        return torch.div(*args[:2], rounding_mode="trunc") if whole else result

    return _operators(graph, change)


@wrong("numbers.integer_overflow")
def saturates_integers(run, graph, request):
    def change(node, args, result):
        if _is(node, "add") and result.dtype is torch.int8:
            return (args[0].to(torch.int64) + args[1]).clamp(-128, 127).to(torch.int8)
        return result

    return _operators(graph, change)


@wrong("numbers.infinities")
def softmax_overflows(run, graph, request):
    def change(node, args, result):
        return args[0].exp() / args[0].exp().sum(args[1], keepdim=True) if _is(node, "_softmax") else result

    return _operators(graph, change)


@wrong("numbers.rounding")
def rounds_halves_up(run, graph, request):
    return _operators(graph, lambda node, args, r: (args[0] + 0.5).floor() if _is(node, "round") else r)


@wrong("numbers.sums")
def sums_halves_in_halves(run, graph, request):
    def change(node, args, result):
        if _is(node, "sum") and args[0].dtype is torch.bfloat16 and args[0].numel() > 1000:
            total = torch.zeros((), dtype=torch.bfloat16)
            for part in args[0].flatten():
                total = total + part
            return total.reshape(result.shape)
        return result

    return _operators(graph, change)


@wrong("operators.float32")
def wrong_for_one_operator(run, graph, request):
    return _operators(graph, lambda node, args, r: _percent(r) if _is(node, "index_select") else r)


# ---------------------------------------------------------------------- shapes and layouts


@wrong("shapes.not_contiguous")
def reads_as_if_contiguous(run, graph, request):
    def lying(value):
        if not isinstance(value, torch.Tensor) or value.is_contiguous() or 0 in value.stride():
            return value
        return torch.as_strided(value, value.shape, torch.empty(value.shape).stride())

    return lambda *inputs: run(*map(lying, inputs))


@wrong("shapes.empty")
def wrong_when_empty(run, graph, request):
    def compiled(*inputs):
        empty = any(isinstance(i, torch.Tensor) and not i.numel() for i in inputs)
        return _each(run(*inputs), lambda r: r + 1 if empty and _is_float(r) else r)

    return compiled


@wrong("shapes.zero_dimensions")
def wrong_for_zero_dimensions(run, graph, request):
    def compiled(*inputs):
        single = any(_is_float(i) and not i.dim() for i in inputs)
        return _each(run(*inputs), lambda r: r * 2 if single and _is_float(r) else r)

    return compiled


@wrong("shapes.broadcasting")
def broadcasts_wrongly(run, graph, request):
    def change(node, args, result):
        shapes = {a.shape for a in args if isinstance(a, torch.Tensor) and a.dim()}
        return result + 1 if _is(node, "add", "mul") and len(shapes) > 1 else result

    return _operators(graph, change)


@wrong("shapes.many_sizes")
def forgets_the_last_elements(run, graph, request):
    def change(result):
        rest = result.shape[-1] % 8 if result.dim() and result.shape[-1] > 16 else 0
        if rest and _is_float(result):
            result = result.clone()
            result[..., -rest:] = 0
        return result

    return lambda *inputs: _each(run(*inputs), change)


@wrong("shapes.wrong_strides")
def makes_everything_contiguous(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r.contiguous())


@wrong("contract.wrong_dtype_or_device")
def returns_doubles(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r.double() if r.dtype is torch.bfloat16 else r)


# ---------------------------------------------------------------------- sizes that change


def _symbolic(graph: fx.GraphModule) -> bool:
    return any(isinstance(n.meta.get("val"), torch.SymInt) for n in graph.graph.nodes if n.op == "placeholder")


@wrong("dynamic.symbolic_sizes")
def wrong_for_symbolic_sizes(run, graph, request):
    symbolic = _symbolic(graph)
    return lambda *inputs: _each(run(*inputs), lambda r: _percent(r) if symbolic else r)


@wrong("dynamic.first_size_kept")
def keeps_the_first_sizes(run, graph, request):
    first: list[Any] = []

    def compiled(*inputs):
        first[:] = first or [i if isinstance(i, int) else None for i in inputs]
        return run(*(i if f is None else f for i, f in zip(inputs, first, strict=True)))

    return compiled


# ---------------------------------------------------------------------- memory: whose is it?


@wrong("contract.writes_to_inputs")
def relu_in_place(run, graph, request):
    def change(node, args, result):
        if _is(node, "relu"):
            with torch.no_grad():
                args[0].copy_(result)
        return result

    return _operators(graph, change)


@wrong("views.alias_for_a_copy")
def clone_is_its_argument(run, graph, request):
    return _operators(
        graph, lambda node, args, r: args[0] if _is(node, "clone") and r.stride() == args[0].stride() else r
    )


@wrong("views.copy_for_a_view", level="torch")
def copies_views(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r.clone())


@wrong("views.dropped_write", level="torch")
def works_on_copies(run, graph, request):
    return lambda *inputs: run(*(i.clone() if isinstance(i, torch.Tensor) else i for i in inputs))


@wrong("views.state_of_modules", level="torch")
def drops_updates_of_buffers(run, graph, request):
    return lambda *inputs: run(*(i.clone() if isinstance(i, torch.Tensor) and i.dim() == 1 else i for i in inputs))


@wrong("views.dropped_result")
def drops_the_second_result(run, graph, request):
    def compiled(*inputs):
        results = list(run(*inputs))
        if len(results) > 4 and isinstance(results[1], torch.Tensor):
            results[1] = torch.zeros_like(results[1])
        return results

    return compiled


@wrong("contract.reuses_results")
def fills_the_same_memory(run, graph, request):
    places: dict[int, torch.Tensor] = {}

    def kept(at, result):
        if not isinstance(result, torch.Tensor):
            return result
        place = places.setdefault(at, torch.empty_like(result))
        return place.copy_(result) if place.shape == result.shape else result

    return lambda *inputs: [kept(at, r) for at, r in enumerate(run(*inputs))]


@wrong("contract.remembers_results")
def remembers_by_address(run, graph, request):
    known: dict[Any, Any] = {}

    def compiled(*inputs):
        key = tuple(i.data_ptr() if isinstance(i, torch.Tensor) else i for i in inputs)
        if key not in known:
            known[key] = run(*inputs)
        return list(known[key])

    return compiled


@wrong("contract.retains_inputs")
def holds_its_inputs(run, graph, request):
    held: list[Any] = []

    def compiled(*inputs):
        held[:] = inputs
        return run(*inputs)

    return compiled


@wrong("contract.retains_results")
def holds_its_results(run, graph, request):
    held: list[Any] = []

    def compiled(*inputs):
        results = list(run(*inputs))
        held.append(results)
        return results

    return compiled


@wrong("memory.leaks")
def leaks(run, graph, request):
    held: list[Any] = []

    def compiled(*inputs):
        held.append(torch.ones(10))
        return run(*inputs)

    return compiled


@wrong("memory.leaks_in_training")
def leaks_in_backward(run, graph, request):
    return leaks_of(run) if request.kind == "backward" else run


def leaks_of(run: Run) -> Run:
    held: list[Any] = []
    return lambda *inputs: (held.append(torch.ones(10)), run(*inputs))[1]


# ---------------------------------------------------------------------- calls that overlap


@wrong("contract.not_reentrant")
def keeps_residuals_in_one_place(run, graph, request):
    places: dict[int, torch.Tensor] = {}

    def compiled(*inputs):
        results = list(run(*inputs))
        if request.kind == "forward":
            for at in range(1, len(results)):
                if isinstance(results[at], torch.Tensor):
                    with torch.no_grad():
                        results[at] = places.setdefault(at, torch.empty_like(results[at])).copy_(results[at])
        return results

    return compiled


@wrong("contract.not_thread_safe")
def uses_one_scratch_memory(run, graph, request):
    scratch: list[Any] = [None]

    def compiled(*inputs):
        scratch[0] = inputs
        time.sleep(0.002)
        return run(*scratch[0])

    return compiled


@wrong("contract.dies_after_fork")
def knows_only_its_process(run, graph, request):
    home = os.getpid()
    return lambda *inputs: _each(run(*inputs), lambda r: r if os.getpid() == home else r + 1)


@wrong("contract.changes_the_graph")
def edits_the_graph(run, graph, request):
    end = next(node for node in graph.graph.nodes if node.op == "output")
    with graph.graph.inserting_before(end):
        graph.graph.call_function(torch.ops.aten.ones.default, ([2],))
    graph.recompile()
    return graph.forward


@wrong("contract.wrong_exceptions")
def swallows_exceptions(run, graph, request):
    def compiled(*inputs):
        try:
            return run(*inputs)
        except (IndexError, RuntimeError):
            return [torch.zeros(2, 3)]

    return compiled


# ---------------------------------------------------------------------- training


@wrong("training.wrong_gradients")
def wrong_in_backward(run, graph, request):
    return (lambda *inputs: _each(run(*inputs), _percent)) if request.kind == "backward" else run


@wrong("training.wrong_only_in_training")
def wrong_in_training(run, graph, request):
    return (
        (lambda *inputs: [_percent(r) if at == 0 else r for at, r in enumerate(run(*inputs))])
        if (request.kind == "forward")
        else run
    )


@wrong("training.gradients_accumulate")
def returns_the_same_gradients(run, graph, request):
    if request.kind != "backward":
        return run
    known: list[Any] = []

    def compiled(*inputs):
        known[:] = known or list(run(*inputs))
        return _each(known, lambda r: r.clone())

    return compiled


# ---------------------------------------------------------------------- random numbers


@wrong("randomness.other_numbers")
def draws_other_numbers(run, graph, request):
    def change(node, args, result):
        return 1 - result if _is(node, "rand_like", "rand") else result

    return _operators(graph, change)


@wrong("randomness.generator_moved")
def draws_once_more(run, graph, request):
    return lambda *inputs: (torch.rand(1), run(*inputs))[1]


@wrong("randomness.same_numbers_again")
def seeds_each_call(run, graph, request):
    def compiled(*inputs):
        torch.manual_seed(1)
        return run(*inputs)

    return compiled


@wrong("randomness.other_mask_in_backward")
def another_mask_in_backward(run, graph, request):
    if request.kind != "backward":
        return run

    def other(value):
        mask = isinstance(value, torch.Tensor) and set(value.unique().tolist()) == {0, 2}
        return 2 - value if mask else value

    return lambda *inputs: run(*map(other, inputs))


# ---------------------------------------------------------------------- the process


@wrong("contract.changes_global_state")
def sets_the_default_dtype(run, graph, request):
    def compiled(*inputs):
        results = run(*inputs)
        torch.set_default_dtype(torch.float64)
        return results

    return compiled


@wrong("contract.changes_global_state")
def turns_gradients_off(run, graph, request):
    torch.set_grad_enabled(False)
    return run


@wrong("contract.changes_global_state")
def asks_for_determinism(run, graph, request):
    torch.use_deterministic_algorithms(True)
    return run
