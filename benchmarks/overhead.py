"""What a call of a compiled function costs when the compiled graph itself costs nothing.

Both front ends get the same null backend: its callable returns outputs that were computed once. What remains is
the front end's own work per call: guards, graph inputs, Python state. They take turns in one process, in many
short blocks, and the medians over the blocks are compared.

Training rows are a call and its backward (torch.autograd.grad of all parameters): both halves, as ATen graphs, return
outputs that were computed once, so that the front end, the glue around the halves and the autograd engine remain.

Step rows are a whole training step of 75 linear layers (150 parameters) with clipping and an optimizer: one graph of
jitney's; beside it torch.compile of the model and, on its own, of clipping and the optimizer's step. All graphs return
outputs that were computed once, so that guards, state, `.grad` and, for torch.compile, the engine remain.

A second table compares jitney with itself: compiled before any debugging tool was used in the process, and after each
was used and switched off.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import models
import report
import torch

import tools

BLOCK_SECONDS = 0.003
TRAINING = "train"
STEPS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {  # by case: the optimizer
    "step_150 sgd": lambda parameters: torch.optim.SGD(parameters, 1e-3, momentum=0.9),
    "step_150 adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
}
NOTE = "microseconds per call, median; the graph itself costs nothing"


class NullBackend:
    """A backend whose graphs run once, then return those outputs for ever."""

    def __init__(self, instead: str = "") -> None:
        self.graphs = 0
        self.instead = instead  # a backend of jitney's, by name, that compiles jitney's graphs in its place

    def inference(self, frontend: str) -> Any:
        """What that front end is to compile with."""
        return self.named() if self.instead and frontend == "jitney" else self

    def named(self) -> Any:
        """The backend of that name; its graphs are counted."""
        found = importlib.import_module("jitney.backends").registry.get(self.instead)

        def counted(*args: Any) -> Any:
            self.graphs += 1
            return found.compile(*args)

        return dataclasses.replace(found, compile=counted)

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        outputs: tuple[Any, ...] | None = None

        def compiled(*inputs: Any) -> tuple[Any, ...]:
            nonlocal outputs
            if outputs is None:
                outputs = tuple(gm(*inputs))
            return outputs

        return compiled

    def half(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """For TorchDynamo's AOT: takes its inputs as a list, which spares it a wrapper."""
        compiled = self(gm, example_inputs)

        outputs: tuple[Any, ...] | None = None

        def boxed(inputs: list[Any]) -> tuple[Any, ...]:
            nonlocal outputs
            if outputs is None:
                outputs = tuple(compiled(*inputs))
            return outputs

        setattr(boxed, "_boxed_call", True)  # noqa: B010 (functions have no such attribute, says mypy)
        return boxed

    def training(self, frontend: str) -> Any:
        """The same for ATen graphs, as a backend of that front end."""
        if frontend == "jitney" and self.instead:
            return self.named()
        if frontend == "jitney":
            backends: Any = importlib.import_module("jitney.backends")
            return backends.Backend("null", lambda graph, inputs, request: self(graph, inputs), level="aten")
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        return aot_autograd(
            fw_compiler=self.half, bw_compiler=self.half, partition_fn=min_cut_rematerialization_partition
        )


def block(call: Callable[[], Any], calls: int) -> float:
    """Microseconds per call over `calls` calls in a row."""
    turns = range(calls)
    start = perf_counter()
    for _ in turns:
        call()
    return (perf_counter() - start) / calls * 1e6


def dynamo_guards_only(program: models.Program) -> float | None:
    """Microseconds of one pass over TorchDynamo's guards alone, or None where this torch offers no way to ask."""
    from torch._dynamo import guards

    found: list[float] = []

    def hook(manager: Any, scope: dict[str, Any], builder: Any) -> None:
        for _ in range(20):
            manager.check(scope)
        found.append(median(block(partial(manager.check, scope), 200) for _ in range(15)))

    if not hasattr(guards, "guard_manager_testing_hook_fn"):
        return None
    before = guards.guard_manager_testing_hook_fn
    guards.guard_manager_testing_hook_fn = hook
    try:
        torch.compile(program.fn, backend=NullBackend())(*program.args, **program.kwargs)
    finally:
        guards.guard_manager_testing_hook_fn = before
        torch._dynamo.reset()
    return sum(found) if found else None


def step(fn: Callable[..., Any], program: models.Program) -> Callable[[], Any]:
    """A call and its backward, as a function of no arguments: the gradients of what requires grad."""
    module = program.fn
    with torch.enable_grad():
        first = program.fn(*program.args, **program.kwargs)
    outputs = differentiable(first)
    weights = [torch.ones_like(t) for t in outputs]
    sources = list(module.parameters()) if isinstance(module, torch.nn.Module) else list(program.args)
    args, kwargs = program.args, program.kwargs

    def run() -> Any:
        with torch.enable_grad():
            found = differentiable(fn(*args, **kwargs))
        return torch.autograd.grad(found, sources, weights, allow_unused=True)

    return run


def differentiable(result: Any) -> list[torch.Tensor]:
    """The tensors of a result that a backward can begin at."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for t in result.values() if t.requires_grad]


def measure(
    name: str, frontends: Sequence[str], blocks: int, trains: bool = False, instead: str = ""
) -> dict[str, Any]:
    program = models.build(name)
    if trains:
        for tensor in program.args:
            tensor.requires_grad_(not isinstance(program.fn, torch.nn.Module))
    eager = step(program.fn, program) if trains else partial(program.fn, *program.args, **program.kwargs)
    expected = eager()
    guards = dynamo_guards_only(program) if "dynamo" in frontends and not trains else None
    calls: dict[str, Callable[[], Any]] = {}
    backends: dict[str, NullBackend] = {}
    result: dict[str, Any] = {}
    for frontend in frontends:
        backends[frontend] = backend = NullBackend(instead)
        compile_, _ = report.front_end(frontend)
        try:
            if trains:
                call = step(compile_(program.fn, backend=backend.training(frontend)), program)
            else:
                call = partial(
                    compile_(program.fn, backend=backend.inference(frontend)), *program.args, **program.kwargs
                )
            equal = [report.same(expected, call()) for _ in range(3)]
        except Exception as error:
            result[frontend] = {"error": f"{type(error).__name__}: {error}"}
            continue
        calls[frontend] = call
        result[frontend] = {"equal_to_eager": all(equal), "graphs": backend.graphs}
    count = take_turns(calls, backends, result, blocks)
    if guards is not None and "us" in result["dynamo"]:
        result["dynamo"]["guards_only_us"] = guards
    return summary(result, eager, count, blocks)


def take_turns(
    calls: dict[str, Callable[[], Any]], backends: dict[str, NullBackend], result: dict[str, Any], blocks: int
) -> int:
    """Time what each front end has made, in turns, into ``result``; how many calls a block had."""
    times: dict[str, list[float]] = {frontend: [] for frontend in calls}
    slowest = max((block(call, 50) for call in calls.values()), default=1.0)
    count = max(5, int(BLOCK_SECONDS * 1e6 / slowest))
    gc.collect()
    gc.disable()
    try:
        for turn in range(blocks):
            order = list(calls)[:: 1 if turn % 2 else -1]
            for frontend in order:
                times[frontend].append(block(calls[frontend], count))
    finally:
        gc.enable()
    for frontend, samples in times.items():
        low, middle, high = quantiles(samples, n=4)
        backend = backends[frontend]
        stable = backend.graphs == result[frontend]["graphs"]
        result[frontend] |= {"us": middle, "us_quartiles": [low, high], "us_best": min(samples), "no_recompile": stable}
    return count


def summary(result: dict[str, Any], eager: Callable[[], Any], count: int, blocks: int) -> dict[str, Any]:
    """What a case's row and the file say."""
    return {
        "frontends": result,
        "eager_us": median(block(eager, 3) for _ in range(5)),
        "calls_per_block": count,
        "blocks": blocks,
        "ratio": report.ratio({f: r.get("us") for f, r in result.items()}),
    }


def whole_step(name: str, frontend: str, backend: NullBackend | None) -> Callable[[], Any]:
    """A training step as a function of no arguments, compiled by a front end or, without a backend, eager."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(75)))
    optimizer = STEPS[name](model.parameters())
    parameters = list(model.parameters())
    x = torch.randn(4, 8)

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    compile_ = report.front_end(frontend)[0] if backend is not None else None
    if compile_ is not None and frontend == "dynamo":
        model = compile_(model, backend=backend.training(frontend))  # type: ignore[union-attr]
        update = compile_(update, backend=backend)

    def run() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update()
        return loss.detach()

    made: Any = run
    if compile_ is not None and frontend == "jitney":
        made = compile_(run, backend=backend.inference(frontend))  # type: ignore[union-attr]

    def call() -> Any:
        with torch.enable_grad():
            return made()

    return call


def measure_step(name: str, frontends: Sequence[str], blocks: int) -> dict[str, Any]:
    """A step by each front end. Its first call makes the optimizer's state; from the third on nothing is compiled."""
    eager = whole_step(name, "", None)
    expected = eager()
    calls, backends, result = {}, {}, {}
    for frontend in frontends:
        backends[frontend] = NullBackend()
        call = whole_step(name, frontend, backends[frontend])
        try:
            equal = report.same(expected, call())
            for _ in range(4):
                call()
        except Exception as error:
            result[frontend] = {"error": f"{type(error).__name__}: {error}"}
            continue
        calls[frontend] = call
        result[frontend] = {"equal_to_eager": equal}
    for frontend, call in calls.items():  # TorchDynamo has replaced methods of optimizers, which jitney guards
        call()
        result[frontend]["graphs"] = backends[frontend].graphs
    count = take_turns(calls, backends, result, blocks)
    return summary(result, eager, count, blocks)


def measure_tools(name: str, blocks: int) -> dict[str, Any]:
    """The same program compiled twice: before any debugging tool was used, and after each was, and switched off."""
    import jitney

    program = models.build(name)
    found: dict[str, list[float]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    for state in ("bare", "tools off"):
        calls[state] = partial(jitney.compile(program.fn, backend=NullBackend()), *program.args, **program.kwargs)
        calls[state]()
        if state == "bare":
            tools.use_each_once()
        found[state] = []
    count = max(5, int(BLOCK_SECONDS * 1e6 / max(block(call, 50) for call in calls.values())))
    gc.collect()
    gc.disable()
    try:
        for turn in range(blocks):
            for state in list(calls)[:: 1 if turn % 2 else -1]:
                found[state].append(block(calls[state], count))
    finally:
        gc.enable()
    pairs = zip(found["tools off"], found["bare"], strict=True)  # of one turn each: a busy machine hits both
    return {
        "us": {state: median(samples) for state, samples in found.items()},
        "ratio": median(off / bare for off, bare in pairs),
    }


def row(name: str, case: dict[str, Any], frontends: Sequence[str]) -> list[object]:
    results = case["frontends"]
    figures = [results[f].get("us", "failed") for f in frontends]
    graphs = "/".join(str(results[f].get("graphs", "-")) for f in frontends)
    guards = [results["dynamo"].get("guards_only_us")] if "dynamo" in frontends else []
    return [name, *figures, case["ratio"], graphs, *guards, case["eager_us"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frontends", default=",".join(report.FRONTENDS), help="default: %(default)s")
    every = [*models.OVERHEAD, *(f"{name} {TRAINING}" for name in models.OVERHEAD), *STEPS]
    parser.add_argument("--cases", default=",".join(every), help="default: %(default)s")
    parser.add_argument(
        "--backend",
        default="",
        help="what jitney compiles with instead, such as null of contrib/, which takes ATen graphs",
    )
    parser.add_argument("--blocks", type=int, default=300, help="timed blocks per front end and case (%(default)s)")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for overhead.json and overhead.svg")
    args = parser.parse_args()
    try:
        frontends = report.choice(args.frontends, report.FRONTENDS)
        names = report.choice(args.cases, every)
        for frontend in frontends:
            report.front_end(frontend)
    except (ValueError, ImportError, AttributeError) as error:
        parser.error(str(error))
    if args.blocks < 2 or not frontends or not names:
        parser.error("give at least one front end, one case and 2 blocks")

    torch.set_num_threads(1)
    cases: dict[str, dict[str, Any]] = {}
    with torch.no_grad():
        for name in names:
            with report.console.status(f"measuring {name}"):
                model, _, training = name.partition(" ")
                if name in STEPS:
                    cases[name] = measure_step(name, frontends, args.blocks)
                else:
                    cases[name] = measure(model, frontends, args.blocks, bool(training), args.backend)
            for frontend in frontends:
                report.front_end(frontend)[1]()
        off = {}
        for name in [n for n in names if n in models.OVERHEAD] if "jitney" in frontends else []:
            with report.console.status(f"measuring {name}, tools off"):
                off[name] = measure_tools(name, args.blocks)
            report.front_end("jitney")[1]()
    guards = ["dynamo guards"] if "dynamo" in frontends else []
    caption = f"medians of {args.blocks} blocks, in turn, one process; ratio: jitney/dynamo; eager computes"
    report.print_table(
        "Call overhead with a null backend, us per call",
        ["case", *frontends, "ratio", "graphs", *guards, "eager"],
        [row(name, case, frontends) for name, case in cases.items()],
        caption,
    )
    if off:
        report.print_table(
            "Debugging tools that are off: the same program, compiled before and after each was used",
            ["case", "bare", "tools off", "ratio"],
            [[name, *found["us"].values(), found["ratio"]] for name, found in off.items()],
            "microseconds per call, medians; ratio: tools off/bare, median over turns",
        )
    for name, case in cases.items():
        for frontend, result in case["frontends"].items():
            if "error" in result:
                report.console.print(f"{name}: {frontend} failed: {result['error']}", markup=False)
            elif not (result["equal_to_eager"] and result["no_recompile"]):
                report.console.print(f"{name}: {frontend}: not to be trusted: {result}", markup=False)
    chart = {name: {f: case["frontends"][f].get("us") for f in frontends} for name, case in cases.items()}
    svg = report.bar_chart("Call overhead", NOTE, chart)
    report.save(
        args.out, "overhead", {"about": report.about(), "unit": "us per call", "cases": cases, "tools_off": off}, svg
    )


if __name__ == "__main__":
    main()
