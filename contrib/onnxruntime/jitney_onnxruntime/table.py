"""From ATen operators to the rules that write them as ONNX nodes; what no rule writes, eager runs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from torch import fx

from jitney_onnxruntime.writer import Refused, Value, Writer, number_of


@dataclass(frozen=True)
class Call:
    """A node of an ATen graph, as rules read it."""

    node: fx.Node

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name, defaults included."""
        target: Any = self.node.target
        found = {}
        for place, argument in enumerate(target._schema.arguments):
            if place < len(self.node.args) and not argument.kwarg_only:
                found[argument.name] = self.node.args[place]
            else:
                found[argument.name] = self.node.kwargs.get(argument.name, argument.default_value)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def out(self) -> Any:
        """The result's FakeTensor, or several."""
        return self.node.meta["val"]

    def fake(self, name: str) -> Any:
        """The FakeTensor of an argument."""
        return self[name].meta["val"]

    def given(self, name: str) -> Any:
        """An argument that is a tensor as its FakeTensor, one that is a number as that."""
        value = self[name]
        return number_of(value) if isinstance(value, fx.Node) else value

    def only(self, *used: int) -> None:
        """Refuse a node of which other results than these are used; a rule may return None for the others."""
        for user in self.node.users:  # in a piece of a graph it may be the output: what is used was asked before
            if user.target is operator.getitem and user.args[1] not in used:
                raise Refused(f"result {user.args[1]} is used")


Rule = Callable[[Writer, Call], Value | tuple[Value | None, ...]]
Written = TypeVar("Written", bound=Rule)
RULES: dict[Any, Rule] = {}


def rule(*operators: Any) -> Callable[[Written], Written]:
    """Register a function as the one that writes these ATen operators."""

    def register(function: Written) -> Written:
        for each in operators:
            RULES[each] = function
        return function

    return register
