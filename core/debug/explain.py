"""What became of a function: its graphs, its breaks with their lines, its guards. The answer to "why is it slow?"."""

from __future__ import annotations

import collections
import contextlib
import html
import textwrap
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule, Node
from typing_extensions import deprecated

from jitney import events
from jitney._util.old_spellings import named_in_errors
from jitney.backends.extension_calls import bisected
from jitney.backends.hookspecs import BisectReport
from jitney.config import config
from jitney.debug.compiled_as import compiled_as
from jitney.debug.hints import hints
from jitney.errors import describe_frame

if TYPE_CHECKING:
    from rich.console import RenderableType

FEW_ROWS = 12  # of a section that is open in a notebook


@dataclass
class ExplainOutput:
    """What ``explain`` found; ``str()`` is a report, ``rich.print`` a nicer one.

    Args:
        frames: every frame captured, in order; the rest of a frame after a break is a frame of its own.
        skipped: frames that run eagerly.
        recompiles: captures that happened because a guard failed within the one call.
        aten_graphs: the functional graphs that an ATen backend got, if ``explain`` was given one.
        kept: graphs that no functional graph can say, which run as captured.
        placed: which backend runs which part of each ATen graph.
        lowered: what kernel backends made of their parts.
        told: what extensions did to the graphs.
        bisection: which step of compiling is to blame, if ``explain`` was asked to find out.
        recompile_reasons: if what is explained was compiled already and no form fits the call: for each form the guard
            that fails, what it found and the user's line (both maybe empty).
    """

    frames: list[events.FrameCaptured] = field(default_factory=list)
    skipped: list[events.FrameSkipped] = field(default_factory=list)
    recompiles: list[events.Recompiled] = field(default_factory=list)
    aten_graphs: list[events.AtenGraph] = field(default_factory=list)
    kept: list[events.GraphKept] = field(default_factory=list)
    placed: list[events.Placed] = field(default_factory=list)
    lowered: list[events.Lowered] = field(default_factory=list)
    bisection: BisectReport | None = None
    recompile_reasons: list[tuple[str, str, str]] = field(default_factory=list)
    told: list[events.Told] = field(default_factory=list)

    @property
    @deprecated("use recompile_reasons")
    def misfits(self) -> list[tuple[str, str, str]]:
        """The name of ``recompile_reasons`` in release 0.1."""
        return self.recompile_reasons

    @property
    def hints(self) -> list[str]:
        """What keeps it from being fast, one sentence each."""
        found: list[events.Event] = [*self.frames, *self.skipped, *self.recompiles]
        found += [*self.kept, *self.placed, *self.lowered]
        return list(dict.fromkeys(hint for event in found for hint in hints(event)))

    @property
    def graphs(self) -> list[GraphModule]:
        """The captured graphs, in order."""
        return [frame.graph for frame in self.frames if frame.graph is not None]

    @property
    def graph_count(self) -> int:
        """How many graphs one call runs."""
        return len(self.graphs)

    @property
    def break_reasons(self) -> list[events.GraphBreak]:
        """Each graph break, with reason, hint and user stack."""
        return [frame.graph_break for frame in self.frames if frame.graph_break is not None]

    @property
    def graph_break_count(self) -> int:
        """Graph breaks, and frames left eager as a whole."""
        return len(self.break_reasons) + len(self.skipped)

    @property
    def op_count(self) -> int:
        """Operations captured in all graphs."""
        return sum(frame.op_count for frame in self.frames)

    @property
    def ops_per_graph(self) -> list[list[str]]:
        """The names of the operations of each graph."""
        return [_op_names(graph) for graph in self.graphs]

    @property
    def out_guards(self) -> list[str]:
        """Every guard, one readable line each."""
        return [guard for frame in self.frames for guard in frame.guards]

    def __str__(self) -> str:
        lines = [
            f"Graph count: {self.graph_count}",
            f"Graph break count: {self.graph_break_count}",
            f"Op count: {self.op_count}",
        ]
        for title, rows in self._sections():
            lines += [f"{title}:", *rows]
        return "\n".join(lines)

    def __rich__(self) -> RenderableType:
        from rich.console import Group  # only for who prints it so
        from rich.text import Text

        head = f"[bold]{self.graph_count}[/] graphs, [bold]{self.graph_break_count}[/] breaks, "
        parts: list[RenderableType] = [Text.from_markup(head + f"[bold]{self.op_count}[/] ops")]
        for title, rows in self._sections():
            # No tables, whose cells are cut: a place is worth nothing without its line number, which comes last.
            parts += [Text(title, style="bold"), *map(Text, rows)]
        return Group(*parts)

    def _repr_html_(self) -> str:
        """For notebooks: sections of many rows are closed."""
        head = f"<b>{self.graph_count}</b> graphs, <b>{self.graph_break_count}</b> breaks, <b>{self.op_count}</b> ops"
        parts = [f"<p>{head}</p>"]
        for title, rows in self._sections():
            state = " open" if len(rows) <= FEW_ROWS else ""
            text = html.escape(textwrap.dedent("\n".join(rows)))
            parts.append(
                f"<details{state}><summary>{html.escape(title)} ({len(rows)})</summary><pre>{text}</pre></details>"
            )
        return "".join(parts)

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        """Each section that has rows: its title and them."""
        ops = enumerate(self.ops_per_graph, 1)
        sections = {
            "Breaks": [_show_break(number, item) for number, item in enumerate(self.break_reasons, 1)],
            "Left eager": [f"  {_place(frame)}: {frame.reason}" for frame in self.skipped],
            "Recompiled": [f"  {_place(item)}: {item.guard}" for item in self.recompiles],
            "Would be compiled again, none of what is there fits": [
                _show_reason(*row) for row in self.recompile_reasons
            ],
            "Ops per graph": [f"  {number}. {', '.join(names) or '(none)'}" for number, names in ops],
            "ATen graphs": [f"  {_show_aten(graph)}" for graph in self.aten_graphs],
            "Who runs what": [f"  {_show_placed(event)}" for event in self.placed],
            "Kernels": [f"  {_show_lowered(event)}" for event in self.lowered],
            **self._told(),
            "Run as captured": [f"  {_place(graph)}: {graph.reason}" for graph in self.kept],
            "Bisected": [f"  {line}" for line in str(self.bisection or "").splitlines()],
            "Guards": [f"  {guard}" for guard in self.out_guards],
        }
        yield from ((title, rows) for title, rows in sections.items() if rows)

    def _told(self) -> dict[str, list[str]]:
        """What extensions said, by title."""
        found: dict[str, list[str]] = {}
        for event in self.told:
            found.setdefault(event.title, []).extend(f"  {row}" for row in (f"{event.frame}:", *event.rows))
        return found


@contextlib.contextmanager
def observe() -> Iterator[ExplainOutput]:
    """Collect what this thread captures until the block ends."""
    output = ExplainOutput()
    lists: dict[type, list[Any]] = {
        events.FrameCaptured: output.frames,
        events.FrameSkipped: output.skipped,
        events.Recompiled: output.recompiles,
        events.AtenGraph: output.aten_graphs,
        events.GraphKept: output.kept,
        events.Placed: output.placed,
        events.Lowered: output.lowered,
        events.Told: output.told,
    }
    thread = threading.get_ident()

    def collect(event: events.Event) -> None:
        if threading.get_ident() == thread and type(event) in lists:
            lists[type(event)].append(event)

    with events.listen(collect):
        yield output


@named_in_errors("the arguments of the function come after: explain(fn)(*args, **kwargs)")
def explain(
    fn: Callable[..., Any], *, backend: Any = None, options: Mapping[str, Any] | None = None, bisect: bool = False
) -> Callable[..., ExplainOutput]:
    """``explain(fn)(*args, **kwargs)`` compiles ``fn`` afresh, runs it once and tells what was captured.

    The call is a real one: what ``fn`` changes is changed, what it raises is raised. The graphs run as captured; with
    ``backend`` and ``options``, as in ``compile``, through that backend: then the report has the functional graphs that
    it got, too. If ``fn`` is compiled already, its own backend, options and ``dynamic`` hold where nothing else is said
    here; and if none of its forms fits the call, the report says why. A backward is compiled at the first backward,
    after the call. With ``bisect`` the function runs some times more, on copies, with one step of compiling more each
    time: the report says which step is to blame for an error of jitney's or for wrong numbers; an extension does that,
    such as the package jitney-tools' (``jitney_bisect``).

    Raises:
        TypeError: ``fn`` is not callable.
        PluginError: there is no extension that bisects.
    """
    from jitney.api import compile as compile_function  # the face imports debug; only here does debug need the face

    if not callable(fn):
        raise TypeError(f"jitney.explain: a {type(fn).__name__} is not callable; write explain(fn)(*args)")
    how = compiled_as(fn, backend, options)

    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        report = bisected(fn, args, kwargs, backend, options) if bisect else None
        wanted = how.arguments() | {"fullgraph": False, "backend": how.backend or _run_as_it_is}
        compiled = compile_function(how.function, **wanted)
        with config.patch(cache=False, error_on_recompile=False), observe() as output:
            output.bisection = report
            output.recompile_reasons = _recompile_reasons(fn, args, kwargs)
            if report is None or not (report.phase or report.stopped):
                compiled(*args, **kwargs)
        return output

    return explained


def _recompile_reasons(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, str, str]]:
    find = getattr(fn, "_jitney_recompile_reasons", None)
    if find is None:
        return []
    given = (fn.__self__, *args) if isinstance(fn, types.MethodType) else args
    return find(given, kwargs) or []


def _run_as_it_is(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return graph.forward


def _op_names(graph: GraphModule) -> list[str]:
    return [_op_name(node) for node in graph.graph.nodes if node.op.startswith("call_")]


def _op_name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _show_aten(event: events.AtenGraph) -> str:
    count = sum(node.op == "call_function" for node in event.graph.nodes)
    return f"{event.kind} of {event.frame}: {count} ops"


def _show_placed(event: events.Placed) -> str:
    pieces = ", ".join(f"{name} {count} ops" for name, count in event.pieces) or "nothing to run"
    return f"{event.kind} of {event.frame}: {pieces}"


def _show_lowered(event: events.Lowered) -> str:
    counts = collections.Counter(event.whole)
    whole = ", ".join(f"{name} {count} times ({why})" for (name, why), count in counts.most_common())
    return f"{event.backend}, {event.kind} of {event.frame}: {event.kernels} kernels; as a whole: {whole or 'nothing'}"


def _show_reason(guard: str, found: str, line: str) -> str:
    return f"  {guard}" + (f" (found {found})" if found else "") + (f", read at {line}" if line else "")


def _show_break(number: int, item: events.GraphBreak) -> str:
    lines = [f"  {number}. {item.reason}"]
    if item.hint:
        lines.append(f"     try: {item.hint}")
    lines.append("     user stack:")
    lines += [f"       {describe_frame(frame)}" for frame in item.user_stack]
    return "\n".join(lines)


def _place(event: events.FrameSkipped | events.Recompiled | events.GraphKept) -> str:
    return f"{event.filename}:{event.line}, in {event.name}"
