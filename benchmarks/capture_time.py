"""How long it takes to capture a model: the first call less a second call, with backend="eager".

Each measure is a fresh process. Not counted: imports, building the model, one eager call of it, and a warm-up
compile of torch.sin, which loads what the front end loads once. Front ends take turns; the medians are compared.
Cases named `aot NAME` are the first call and its backward less a second call and backward, with backend="aot_eager";
they have files of their own, capture_time_aot. Ctrl-C stops and keeps what has been measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import models
import report
import torch
from rich.progress import Progress

NOTE = "seconds, first call less second call, fresh processes, medians"
MARK = "RESULT "
AOT = "aot "


def child(frontend: str, name: str, count: bool) -> dict[str, Any]:
    """One measure, in this process."""
    torch.set_num_threads(1)
    if name.startswith(AOT):
        return child_aot(frontend, name.removeprefix(AOT), count)
    compile_, reset = report.front_end(frontend)
    program = models.build(name)
    with torch.no_grad():
        compile_(lambda x: torch.sin(x), backend="eager")(torch.randn(2))
        expected = program.fn(*program.args, **program.kwargs)
        compiled = compile_(program.fn, backend="eager")
        seconds = [elapsed(compiled, program) for _ in range(2)]
        equal = report.same(expected, compiled(*program.args, **program.kwargs))
        result = {"capture_s": seconds[0] - seconds[1], "second_call_s": seconds[1], "equal_to_eager": equal}
        if count:
            reset()
            graphs: list[int] = []
            compile_(program.fn, backend=counting(graphs))(*program.args, **program.kwargs)
            result |= {"graphs": len(graphs), "ops": sum(graphs)}
    return result


def child_aot(frontend: str, name: str, count: bool) -> dict[str, Any]:
    """One measure of a forward and its backward, in this process."""
    compile_, reset = report.front_end(frontend)
    program = models.build(name)
    module = program.fn
    assert isinstance(module, torch.nn.Module)
    parameters = list(module.parameters())

    def step(fn: Callable[..., Any]) -> list[torch.Tensor]:
        """The gradients of the sum of the results, and those results."""
        results = report.tensors(fn(*program.args, **program.kwargs))
        total = sum(t.sum() for t in results if t.requires_grad)
        assert isinstance(total, torch.Tensor)
        found = torch.autograd.grad(total, parameters, allow_unused=True)
        return [*(t.detach() for t in results), *(g for g in found if g is not None)]

    x = torch.randn(2, requires_grad=True)
    compile_(lambda x: torch.sin(x), backend="aot_eager")(x).sum().backward()
    expected = step(module)
    compiled = compile_(module, backend="aot_eager")
    seconds = []
    for _ in range(2):
        start = perf_counter()
        got = step(compiled)
        seconds.append(perf_counter() - start)
    equal = report.same(expected, got)
    result = {"capture_s": seconds[0] - seconds[1], "second_call_s": seconds[1], "equal_to_eager": equal}
    if count:
        reset()
        graphs: list[int] = []
        compile_(module, backend=counting(graphs))(*program.args, **program.kwargs)
        result |= {"graphs": len(graphs), "ops": sum(graphs)}
    return result


def elapsed(fn: Callable[..., Any], program: models.Program) -> float:
    start = perf_counter()
    fn(*program.args, **program.kwargs)
    return perf_counter() - start


def counting(graphs: list[int]) -> Callable[..., Any]:
    """A backend that runs graphs as they are and notes the number of operations of each."""

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(sum(node.op.startswith("call_") for node in gm.graph.nodes))
        return gm.forward

    return backend


def run(frontend: str, name: str, count: bool, timeout: float) -> dict[str, Any]:
    """One measure, in a fresh process; what went wrong comes back as {"error": ...}."""
    command = [sys.executable, __file__, "--child", frontend, name] + (["--count"] if count else [])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {timeout:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return dict(json.loads(line.removeprefix(MARK)))
    return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}


def measure(
    names: Sequence[str],
    frontends: Sequence[str],
    repeats: int,
    timeout: float,
    into: dict[str, dict[str, dict[str, Any]]],
) -> bool:
    """Fill `into` name by name and front end by front end, in turn; False when Ctrl-C cut it short."""
    try:
        with Progress(console=report.console) as progress:
            task = progress.add_task("", total=repeats * len(names) * len(frontends))
            for repeat in range(repeats):
                for name in names:
                    for frontend in list(frontends)[:: 1 if repeat % 2 else -1]:
                        progress.update(task, description=f"{repeat + 1}/{repeats} {name} {frontend}")
                        result = run(frontend, name, repeat == 0, timeout)
                        record = into.setdefault(name, {}).setdefault(frontend, {"samples": []})
                        if "error" not in result:
                            record["samples"].append(result.pop("capture_s"))
                        record |= result
                        progress.advance(task)
    except KeyboardInterrupt:
        return False
    return True


def figures(cases: dict[str, dict[str, dict[str, Any]]], frontends: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The median seconds per case and front end; None where there is no sample."""
    return {
        name: {f: median(s) if (s := case.get(f, {}).get("samples")) else None for f in frontends}
        for name, case in cases.items()
    }


def slopes(seconds: dict[str, dict[str, Any]], frontend: str) -> list[float] | None:
    """Seconds per further layer, from each depth of BERT to the next."""
    known = {name: s for name in models.DEPTHS if (s := seconds.get(name, {}).get(frontend)) is not None}
    if len(known) < len(models.DEPTHS):
        return None
    points = [(models.DEPTHS[name], s) for name, s in known.items()]
    return [(t1 - t0) / (n1 - n0) for (n0, t0), (n1, t1) in pairwise(points)]


def summarise(cases: dict[str, dict[str, dict[str, Any]]], frontends: Sequence[str], complete: bool) -> dict[str, Any]:
    seconds = figures(cases, frontends)
    ratios = {name: report.ratio(values) for name, values in seconds.items()}
    known = [r for name, r in ratios.items() if r is not None and name.removeprefix(AOT) in models.MODELS]
    per_layer = {f: s for f in frontends if (s := slopes(seconds, f))}
    return {
        "about": report.about(),
        "unit": "seconds",
        "complete": complete,
        "cases": {name: {"median_s": seconds[name], "ratio": ratios[name], "frontends": cases[name]} for name in cases},
        "median_ratio_of_models": median(known) if known else None,
        "bert_seconds_per_layer": per_layer,
    }


def present(summary: dict[str, Any], frontends: Sequence[str], out: Path, name: str) -> None:
    rows: list[list[object]] = []
    for label, case in summary["cases"].items():
        notes = [case["frontends"].get(f, {}) for f in frontends]
        both = ["/".join(str(n.get(key, "-")) for n in notes) for key in ("graphs", "ops")]
        rows.append([label, *(case["median_s"][f] for f in frontends), case["ratio"], *both])
    if summary["median_ratio_of_models"] is not None:
        rows.append(["median of the models", *[None] * len(frontends), summary["median_ratio_of_models"], None, None])
    report.print_table(
        "Capture time, seconds", ["case", *frontends, "ratio", "graphs", "ops"], rows, NOTE + "; ratio: jitney/dynamo"
    )
    for frontend, (first, second) in summary["bert_seconds_per_layer"].items():
        report.console.print(f"{frontend}: BERT, s per layer: {first:.3f} (6 to 12), {second:.3f} (12 to 24)")
    for label, case in summary["cases"].items():
        for frontend, record in case["frontends"].items():
            if "error" in record:
                report.console.print(f"{label}: {frontend} failed: {record['error']}", markup=False)
            elif not record["equal_to_eager"]:
                report.console.print(f"{label}: {frontend}: not to be trusted: results differ from eager's")
    chart = {label: case["median_s"] for label, case in summary["cases"].items()}
    report.save(out, name, summary, report.bar_chart("Capture time", NOTE, chart))


def main() -> None:
    every = [*models.MODELS, *models.DEPTHS, *(AOT + name for name in models.MODELS)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frontends", default=",".join(report.FRONTENDS), help="default: %(default)s")
    parser.add_argument("--cases", default=",".join(every), help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="processes per case and front end (%(default)s)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one process (%(default)s)")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for the .json and the .svg")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        frontend, name = args.child
        print(MARK + json.dumps(child(frontend, name, args.count)), flush=True)
        return
    try:
        frontends = report.choice(args.frontends, report.FRONTENDS)
        names = report.choice(args.cases, every)
        for frontend in frontends:
            report.front_end(frontend)
    except (ValueError, ImportError, AttributeError) as error:
        parser.error(str(error))
    if args.repeats < 1 or not frontends or not names:
        parser.error("give at least one front end, one case and one repeat")
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    complete = measure(names, frontends, args.repeats, args.timeout, cases)
    for name, aot in (("capture_time", False), ("capture_time_aot", True)):
        chosen = {label: case for label, case in cases.items() if label.startswith(AOT) == aot}
        if chosen:
            present(summarise(chosen, frontends, complete), frontends, args.out, name)


if __name__ == "__main__":
    main()
