"""The lines that make what the program gets of a graph's outputs: writes to inputs, views, links between results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from jitney.aot.runtime.handed_out import Link
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import Argument, Output, Step, Update, View


class Text(Protocol):
    """The text that the lines become part of; see ``Glue``."""

    joint: Joint
    inputs: Sequence[Any]
    namespace: dict[str, Any]
    filled: frozenset[int]

    @property
    def numbered(self) -> frozenset[int]:
        """Inputs that have got their version."""

    def scoped(self, line: str, *conditions: Any) -> list[str]:
        """The line inside context managers."""

    def step(self, base: str, step: Step) -> str:
        """One view operator's call."""

    def increment(self, names: Sequence[str]) -> str:
        """The call that counts writes."""


class ResultLines:
    """Writes these lines, each after those that make what it is made of.

    Args:
        glue: the text. It has the graph's outputs in ``r``, its inputs in ``a0``, ``a1``...
        links: of results that were computed from others.
    """

    def __init__(self, glue: Text, links: Sequence[tuple[list[int], Link]]) -> None:
        self.glue = glue
        self.joint = glue.joint
        self.links = links
        self.lines: list[str] = []
        self.done: set[Any] = set()
        self.several: dict[Any, str] = {}  # calls that make several views at once: their names
        self.taken: set[str] = set()
        updates = [u for u in self.joint.updates if u.at is not None]
        self.tracked = [u for u in updates if u.tracked]
        self.hidden = [u for u in updates if not u.tracked]

    def write(self) -> list[str]:
        """The lines."""
        for update in self.tracked:
            self._update(update)
        self._hidden_updates()
        self._count((u for u in self.joint.updates if u.at is None), 0)
        for outputs, _ in self.links:
            self._output(outputs[0])
        for i, result in enumerate(self.joint.results):
            if isinstance(result, View):
                self._view(i)
        for i in range(len(self.joint.intermediates) if self.links else 0):
            self._intermediate(i)
        return self.lines

    def _first(self, *what: Any) -> bool:
        """Is it to be done now?"""
        if what in self.done:
            return False
        self.done.add(what)
        return True

    def _scoped(self, line: str, *conditions: Any) -> None:
        self.lines += self.glue.scoped(line, *conditions)

    # ------------------------------------------------------------------ inputs that are written to

    def _update(self, update: Update) -> None:
        if self._first("update", update.input):
            assert update.at is not None
            self._output(update.at)
            self._scoped(f"a{update.input}.copy_(r[{update.at}])", False, False, not self.joint.ambient_grad)
            self._count([update], 1)

    def _hidden_updates(self) -> None:
        if not self._first("hidden"):
            return
        copied = [u for u in self.hidden if u.at not in self.glue.filled]
        guarded = self.joint.ambient_grad and any(self._sees_grad(u) for u in copied)
        if len(copied) == 1:
            self._scoped(f"{_written(copied[0])}.copy_(r[{copied[0].at}])", False, guarded)
        elif copied:
            targets = ", ".join(map(_written, copied))
            values = ", ".join(f"r[{u.at}]" for u in copied)
            self._scoped(f"_foreach_copy_([{targets}], [{values}])", False, guarded)
        self._count((u for u in self.hidden if u.at in self.glue.filled), 0)
        self._count(copied, 1)

    def _count(self, updates: Iterable[Update], counted: int) -> None:
        """Have version counters see as many writes as in eager; the lines so far have made so many of each."""
        names = [
            f"a{u.input}"
            for u in updates
            if u.input not in self.glue.numbered
            for _ in range(u.writes - counted - (u.geometry is not None))
        ]
        if names:
            self.lines.append(self.glue.increment(names))

    def _sees_grad(self, update: Update) -> bool:
        value = self.glue.inputs[update.input]
        return bool(value.requires_grad) or self.joint.trains

    def _input(self, at: int) -> str:
        for update in self.tracked:
            if update.input == at:
                self._update(update)
        if any(update.input == at for update in self.hidden):
            self._hidden_updates()
        return f"a{at}"

    # ------------------------------------------------------------------ results

    def _output(self, at: int) -> str:
        """The graph's output, after it has been linked with those that it was computed from."""
        for number, (outputs, link) in enumerate(self.links):
            if at in outputs and self._first("link", number):
                self.glue.namespace[f"_link{number}"] = link
                count = len(self.joint.gradients)
                sources = "".join(f"{self._intermediate(i - count)}, " for i in link.intermediates)
                results = "".join(f"r[{i}], " for i in outputs)
                line = f"({results}) = _link{number}(handed, ({results}), ({sources}))"
                self._scoped(line, False, False, not self.joint.ambient_grad)
        return f"r[{at}]"

    def _intermediate(self, i: int) -> str:
        """A result that others are computed from, as the program gets it; the run takes note of it."""
        found = self.joint.intermediates[i]
        if found.input is not None:
            text = self._input(found.input)
        elif found.at is not None:
            text = self._output(found.at)
        else:
            assert found.result is not None
            text = self._view(found.result)
        if self._first("handed", i):
            self.lines.append(f"handed.add({i}, {text})")
        return text

    def _view(self, i: int) -> str:
        if not self._first("view", i):
            return f"v{i}"
        result = self.joint.results[i]
        assert isinstance(result, View)
        match result.base:
            case Argument(at):
                text = self._input(at)
            case Output(at):
                text = self._output(at)
            case base:
                text = self._view(base.at)
        for step in result.steps:
            text = self.glue.step(text, step)
            if step.item is None:
                continue
            key = (text, result.detached, result.attached)
            if key not in self.several or f"{self.several[key]}[{step.item}]" in self.taken:
                self.several[key] = f"s{len(self.lines)}"
                self._scoped(f"{self.several[key]} = {text}", False, result.detached, result.attached)
            text = f"{self.several[key]}[{step.item}]"
        self.taken.add(text)  # a second result is another tensor
        self._scoped(f"v{i} = {text}", False, result.detached, result.attached)
        if result.writes > 0:
            self.lines.append(self.glue.increment([f"v{i}"] * result.writes))
        return f"v{i}"


def _written(update: Update) -> str:
    return f"a{update.input}.data" if update.silent else f"a{update.input}"
