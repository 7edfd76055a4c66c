import sys
from pathlib import Path

import pytest
import torch

import jitney
from jitney import events
from jitney.debug.hints import MANY_GUARDS, hints

sys.path.insert(0, str(Path(__file__).parent))
from samples import BREAK, LIMIT, RECOMPILED, SKIPPED, captured  # noqa: E402


def hint_of(event: events.Event) -> str:
    return "\n".join(hints(event))


def test_a_break_is_told_with_its_line_and_what_to_do() -> None:
    assert hints(captured(BREAK))[0] == (
        'model.py:5, in step: print("woo"): a graph ends here, nothing fuses across: print() writes to a file; '
        "try: remove the call"
    )


def test_tiny_graphs_between_breaks_are_told_and_whole_ones_are_not() -> None:
    assert "a graph of 3 operations, between breaks" in hint_of(captured(BREAK))
    assert "between breaks" in hint_of(captured(None, resumed=True))
    assert not hints(captured(None))


def test_many_guards_are_told() -> None:
    event = captured(None)
    many = events.FrameCaptured(**{**vars(event), "guards": ("x is None",) * (MANY_GUARDS + 1)})
    assert f"{MANY_GUARDS + 1} guards at each call" in hint_of(many)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (SKIPPED, "util.py:9, in helper: runs eagerly: it is an async generator"),
        (RECOMPILED, "x * n: step is compiled again, this guard failed: L['n'] == 3, found 4"),
        (LIMIT, "model.py:4, in step: 8 forms are compiled, all other calls run eagerly"),
        (events.GraphKept("f", "a.py", 1, "llvm_cpu", "it resizes"), "runs operator by operator, without llvm_cpu"),
        (events.Placed("f", "forward", (("llvm_cpu", 3), ("eagerly", 2))), "2 operators run eagerly, which cuts it"),
    ],
)
def test_each_event_that_costs_speed_has_a_hint(event: events.Event, text: str) -> None:
    assert text in hint_of(event)


@pytest.mark.parametrize("event", [events.Placed("f", "forward", (("llvm_cpu", 3),)), events.Phase("emit", "f", 1.0)])
def test_what_costs_nothing_has_none(event: events.Event) -> None:
    assert not hints(event)


def test_operators_that_libraries_do_best_are_no_loss() -> None:
    whole = (("aten.mm.default", "no rule"), ("aten.sort.default", "no rule"), ("aten.sort.default", "no rule"))
    (hint,) = hints(events.Lowered("f", "inference", "llvm_cpu", 1, whole))
    assert hint.endswith("llvm_cpu makes no kernel of aten.sort.default (2 times): no rule")


def test_a_recompile_says_what_was_expected_and_what_was_found() -> None:
    told: list[events.Recompiled] = []

    def collect(event: events.Event) -> None:
        if isinstance(event, events.Recompiled):
            told.append(event)

    compiled = jitney.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    with events.listen(collect), jitney.config.patch(automatic_dynamic_shapes=False):
        compiled(torch.ones(2), 3)
        compiled(torch.ones(2), 4)
        compiled(torch.ones(3), 4)
    numbers, shapes = told
    assert (numbers.expected, numbers.found) == ("n == 3", "4")
    assert "(2,)" in shapes.expected and "(3,)" in shapes.found and shapes.guard.endswith(f"(found {shapes.found})")


def test_explain_has_the_hints_of_all_that_it_saw() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sort().values
        print(end="")
        return y + 1

    with jitney.config.patch(cache=False):
        found = jitney.explain(program, backend="llvm_cpu")(torch.ones(80)).hints
    assert any("a graph ends here" in hint for hint in found)
    assert any("llvm_cpu makes no kernel of aten.sort.default" in hint for hint in found)
