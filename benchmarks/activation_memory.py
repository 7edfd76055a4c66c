"""Bytes kept between forward and backward: jitney's cut beside torch's min-cut partitioner, and beside eager.

Both partitioners get the same joint graph, traced by jitney on stand-ins: once with ATen operators as autograd calls
them (`traced`), once taken apart to core ATen (`core`). A tensor's bytes are those of its memory, once for all views
of it. Eager's are what torch.autograd.graph.saved_tensors_hooks sees; it looks at a compiled call too, as a check.
Nothing here is a time, but for the milliseconds that the cuts take. Ctrl-C stops and keeps what has been measured.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import models
import report
import torch
from torch import fx

LEVELS = ("traced", "core")
WHO = ("eager", "torch", "jitney")
LIMIT = 1.05
MIB = 2**20


def joints(program: models.Program, level: str) -> tuple[list[tuple[Any, set[int]]], float]:
    """The joint graph of each captured graph, with where parameters and buffers are, and the seconds of tracing."""
    from jitney.aot.trace.joint import trace_joint
    from jitney.backends import core_decompositions

    found: list[tuple[Any, set[int]]] = []
    seconds = 0.0
    decompositions = core_decompositions() if level == "core" else {}
    module = program.fn
    assert isinstance(module, torch.nn.Module)
    state = {id(t) for t in [*module.parameters(), *module.buffers()]}

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        nonlocal seconds
        start = perf_counter()
        joint = trace_joint(gm, inputs, decompositions)
        seconds += perf_counter() - start

        def run(*args: Any) -> Any:
            if joint.trains:
                found.append((joint, {i for i, a in enumerate(args) if id(a) in state}))
            return gm.forward(*args)

        return run

    compile_, reset = report.front_end("jitney")
    compile_(module, backend=backend)(*program.args, **program.kwargs)
    reset()
    return found, seconds


def copied(joint: Any) -> Any:
    """A joint graph of its own: cutting merges nodes."""
    graph = fx.Graph()
    made: dict[Any, Any] = {}
    for node in joint.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)

    def new(nodes: Iterable[Any]) -> list[Any]:
        return [made[n] if isinstance(n, fx.Node) else n for n in nodes]

    return dataclasses.replace(
        joint,
        graph=graph,
        inputs=new(joint.inputs),
        outputs=new(joint.outputs),
        gradients=new(joint.gradients),
        tangents=dict(zip(joint.tangents, new(joint.tangents.values()), strict=True)),
    )


def jitney_cut(joint: Any) -> tuple[list[fx.Node], float]:
    """What jitney saves, and the seconds that it took to find out."""
    from jitney.aot.partition.min_cut import partition

    joint = copied(joint)
    start = perf_counter()
    saved = partition(joint).saved
    return list(saved), perf_counter() - start


def torch_cut(joint: Any, state: Iterable[int], free: bool) -> tuple[list[fx.Node], float]:
    """What torch saves of a copy of the joint graph; ``free``: saving parameters costs nothing, as in torch.compile."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    graph = fx.Graph()
    names = {n: f"primals_{i + 1}" for i, n in enumerate(joint.inputs)}
    names |= {n: f"tangents_{i + 1}" for i, n in enumerate(joint.tangents.values())}
    made: dict[fx.Node, fx.Node] = {}
    for node in sorted(joint.graph.nodes, key=lambda n: n.op != "placeholder"):
        if node in names:
            made[node] = graph.placeholder(names[node])
            made[node].meta.update(node.meta)
        else:
            made[node] = graph.node_copy(node, made.__getitem__)
    for node in made.values():
        node.meta.pop("checkpoint", None)
    graph.output(tuple(made[n] if isinstance(n, fx.Node) else n for n in [*joint.outputs, *joint.gradients]))
    graph.output_node().meta["desc"] = [None] * (len(joint.outputs) + len(joint.gradients))
    root = torch.nn.Module()
    for name, value in joint.constants.items():
        root.register_buffer(name, value, persistent=False)
    module = fx.GraphModule(root, graph)
    start = perf_counter()
    with config.patch(treat_parameters_as_free_to_save=free):
        _, backward = min_cut_rematerialization_partition(
            module, [], num_fwd_outputs=len(joint.outputs), static_lifetime_input_indices=sorted(state)
        )
    seconds = perf_counter() - start
    return [n for n in backward.graph.nodes if n.op == "placeholder" and not n.name.startswith("tangents")], seconds


def bytes_kept(joint: Any, saved: Iterable[fx.Node]) -> dict[str, int]:
    """Bytes of memory, each once: ``all``, and ``made`` by the forward, that is, without the memory of its inputs."""
    given = {_memory(n) for n in joint.inputs if isinstance(n.meta["val"], torch.Tensor)}
    kept = {}
    for node in saved:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            kept[_memory(node)] = int(value.untyped_storage().nbytes())
    return {"all": sum(kept.values()), "made": sum(n for memory, n in kept.items() if memory not in given)}


def _memory(node: fx.Node) -> int:
    return int(node.meta["val"].untyped_storage()._cdata)


def seen_by_hooks(program: models.Program, call: Callable[..., Any]) -> dict[str, int]:
    """The same counts for a call with real tensors."""
    module: Any = program.fn
    arguments = [a for a in [*program.args, *program.kwargs.values()] if isinstance(a, torch.Tensor)]
    given = {t.untyped_storage().data_ptr() for t in [*module.parameters(), *module.buffers(), *arguments]}
    kept: dict[int, tuple[torch.Tensor, int]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage()
        kept[memory.data_ptr()] = (tensor.detach(), memory.nbytes())  # kept alive: no address is used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = call(*program.args, **program.kwargs)
    counts = {"all": sum(n for _, n in kept.values()), "made": sum(n for a, (_, n) in kept.items() if a not in given)}
    del result
    return counts


def measure(name: str, levels: Sequence[str], repeats: int) -> dict[str, Any]:
    """Counts and seconds for one model, by level."""
    program = models.build(name, trains=True)
    found: dict[str, Any] = {}
    eager = seen_by_hooks(program, program.fn)
    for level in levels:
        graphs, traced = joints(program, level)
        case: dict[str, Any] = {"graphs": len(graphs), "trace_s": traced, "eager": dict(eager)}
        case["nodes"] = sum(len(joint.graph.nodes) for joint, _ in graphs)
        for who, cut in (
            ("torch", lambda joint, state: torch_cut(joint, state, True)),
            ("torch_paid", lambda joint, state: torch_cut(joint, state, False)),
            ("jitney", lambda joint, state: jitney_cut(joint)),
        ):
            counts, seconds = {"all": 0, "made": 0}, 0.0
            for joint, state in graphs:
                tries = [cut(joint, state) for _ in range(repeats)]
                kept = bytes_kept(joint, tries[0][0])
                counts = {key: counts[key] + kept[key] for key in counts}
                seconds += median(s for _, s in tries)
            case[who] = counts | {"cut_s": seconds}
        case["ratio"] = {key: case["jitney"][key] / case["torch"][key] for key in ("all", "made")}
        found[level] = case
    compile_, reset = report.front_end("jitney")
    found["hooks_see"] = seen_by_hooks(program, compile_(program.fn, backend="aot_eager"))
    reset()
    return found


def present(cases: Mapping[str, Any], levels: Sequence[str], complete: bool, out: Path) -> None:
    for key, title in (("made", "made by the forward"), ("all", "with inputs and parameters")):
        rows: list[list[object]] = []
        for name, case in cases.items():
            for level in levels:
                counts = case[level]
                kib = [f"{counts[who][key] / 1024:,.1f}" for who in WHO]
                rows.append([name, level, *kib, f"{counts['ratio'][key]:.3f}"])
        report.print_table(
            f"Kept for the backward, KiB, {title}", ["case", "level", *WHO, "ratio"], rows, "ratio: jitney/torch"
        )
    times: list[list[object]] = []
    for name, case in cases.items():
        for level in levels:
            counts = case[level]
            seconds = [1000 * counts[who]["cut_s"] for who in WHO[1:]]
            times.append([name, level, counts["nodes"], *seconds, seconds[1] / seconds[0]])
    report.print_table("The cut itself, ms", ["case", "level", "nodes", *WHO[1:], "ratio"], times)
    for name, case in cases.items():
        if "traced" in levels and case["hooks_see"]["made"] != case["traced"]["jitney"]["made"]:
            report.console.print(f"{name}: hooks see {case['hooks_see']} in a compiled call")
        for level in levels:
            if max(case[level]["ratio"].values()) > LIMIT:
                report.console.print(f"{name} {level}: more than {LIMIT} times torch's: {case[level]['ratio']}")
    chart = {f"{n} {lv}": {w: case[lv][w]["made"] / MIB for w in WHO} for n, case in cases.items() for lv in levels}
    data = {"about": report.about(), "unit": "bytes", "complete": complete, "cases": cases}
    report.save(out, "activation_memory", data, report.bar_chart("Kept for the backward", "MiB", chart))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(models.TRAINED), help="default: %(default)s")
    parser.add_argument("--levels", default=",".join(LEVELS), help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="timed cuts per graph (%(default)s)")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for the .json and the .svg")
    args = parser.parse_args()
    try:
        names = report.choice(args.cases, list(models.TRAINED))
        levels = report.choice(args.levels, LEVELS)
    except ValueError as error:
        parser.error(str(error))
    if args.repeats < 1 or not names or not levels:
        parser.error("give at least one case, one level and one repeat")
    torch.set_num_threads(1)
    cases: dict[str, Any] = {}
    try:
        for name in names:
            with report.console.status(f"measuring {name}"):
                cases[name] = measure(name, levels, args.repeats)
    except KeyboardInterrupt:
        report.console.print("stopped")
    if cases:
        present(cases, levels, len(cases) == len(names), args.out)


if __name__ == "__main__":
    main()
