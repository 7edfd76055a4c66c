"""What guards say of themselves, to people: in the recompile log, in ``explain``, in the cache warning."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from helpers import t

import jitney
from jitney.guards import Guard, Source
from jitney.guards.checks import CHECKS, brief


def source() -> Source:
    return Source(None, "local", "self").attr("state")


PARAMETER = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (PARAMETER, "Parameter(2, 3) of float32"),
        (torch.tensor(3), "Tensor() of int64"),
        ([PARAMETER, {"w": PARAMETER}], "[Parameter(2, 3) of float32, {'w': Parameter(2, 3) of float32}]"),
        ({PARAMETER: 1}, "{Parameter(2, 3) of float32: 1}"),
        (torch.nn.Linear(2, 3), "<Linear>"),
        (["a", 1], "['a', 1]"),
        (vars(torch), "the namespace of torch"),
        (torch.nn, "the module torch.nn"),
    ],
)
def test_values_are_shown_by_what_they_are(value: Any, text: str) -> None:
    assert brief(value) == text


def test_an_object_with_a_text_of_many_lines_is_shown_on_one() -> None:
    class Wordy:
        def __repr__(self) -> str:
            return "one\n    two\n" * 100

    assert "\n" not in brief(Wordy()) and len(brief(Wordy())) <= 200


@pytest.mark.parametrize(
    ("kind", "expected", "text"),
    [
        ("empty", None, "self.state is empty"),
        ("nonempty", None, "self.state is not empty"),
        ("keys", [PARAMETER], "[*self.state] == [Parameter(2, 3) of float32]"),
        ("set", (1, 2), "self.state == (1, 2)"),
        ("is", None, "self.state is None"),
        ("equals", 3, "self.state == 3"),
    ],
)
def test_texts(kind: str, expected: Any, text: str) -> None:
    assert kind in CHECKS
    assert Guard(source(), kind, expected).text == text


def test_what_was_found_instead_shows_no_numbers_of_tensors() -> None:
    found = {PARAMETER: {"step": torch.ones(1)}}
    assert Guard(source(), "keys", []).found(found) == "keys [Parameter(2, 3) of float32]"
    assert Guard(source(), "empty", None).found(found).startswith("{Parameter(2, 3) of float32: {'step': Tensor(1)")
    assert Guard(source(), "is", None).found(PARAMETER) == "Parameter(2, 3) of float32"


def test_what_was_found_may_have_a_text_that_raises() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "Rude" in Guard(source(), "is", None).found(Rude())


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, n: int = 0) -> torch.Tensor:
        print("woo")
        return self.linear(x) + n


def observed(call: Any) -> dict[type, list[Any]]:
    found: dict[type, list[Any]] = collections.defaultdict(list)
    with jitney.events.listen(lambda event: found[type(event)].append(event)):
        call()
    return found


def test_guards_of_a_module_say_what_is_guarded() -> None:
    (frame,) = jitney.explain(torch.nn.Linear(3, 3))(t(2, 3)).frames
    assert "torch.nn.modules.module._global_forward_hooks is empty" in frame.guards
    assert "module._forward_hooks is empty" in frame.guards
    assert not any("<OrderedDict>" in guard or "[*" not in guard and guard.startswith("not ") for guard in frame.guards)


def test_messages_about_a_module_name_its_forward_and_no_line_of_jitneys() -> None:
    def call() -> None:
        module = jitney.compile(Layer(), backend="eager", dynamic=False)
        module(t(2, 3))
        module(t(2, 3), 5)

    found = observed(call)
    first = Layer.forward.__code__.co_firstlineno
    stacks = [stop.user_stack for stop in found[jitney.events.GraphBreak]]
    assert stacks and all([f.name for f in stack] == ["forward"] for stack in stacks)
    assert all(frame.filename == __file__ for stack in stacks for frame in stack)
    frames = found[jitney.events.FrameCaptured] + found[jitney.events.Recompiled]
    assert {(e.filename, e.line) for e in frames} == {(__file__, first)}
    assert {e.user_line for e in found[jitney.events.Recompiled]} == {f"{__file__}:{first}"}


def test_the_stack_of_a_failure_in_a_module_is_the_users() -> None:
    with pytest.raises(jitney.errors.Unsupported) as raised:
        jitney.compile(Layer(), backend="eager", fullgraph=True)(t(2, 3))
    assert [f.filename for f in raised.value.user_stack] == [__file__]


def test_an_object_that_is_called_is_named_by_its_own_call() -> None:
    class Scaled:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    found = observed(lambda: jitney.compile(Scaled(), backend="eager")(t()))
    (frame,) = found[jitney.events.FrameCaptured]
    assert (frame.filename, frame.line) == (__file__, Scaled.__call__.__code__.co_firstlineno)
