"""The function of one graph, from the text that the glue wrote and what that text names; also in a later process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from jitney._util import generated_code
from jitney.aot.runtime.handed_out import note_hooks
from jitney.cache.recipes import RECIPE, Recipe, Writer, call

_counter = itertools.count()
OWN = ("_apply", "_run")  # names that assembling binds


def assemble(source: str, name: str, space: dict[str, Any]) -> Callable[..., tuple[Any, ...]]:
    """The text's ``_run``, and an autograd function around its ``_forward_with`` and ``_backward_with`` if it has them.

    Args:
        source: Python text.
        name: the user's function.
        space: what the text names.
    """
    run = generated_code.build(source, f"<jitney aot {name} {next(_counter)}>", space, "_run")
    if "_forward_with" in space:
        methods = {"forward": staticmethod(space["_forward_with"]), "backward": staticmethod(space["_backward_with"])}
        made: Any = type(f"{name}_graph", (torch.autograd.Function,), methods)
        if "_HandedOut" in space:
            note_hooks(made)
        space["_apply"] = super(torch.autograd.Function, made).apply  # without functorch's look at each argument

    def recipe(writer: Writer) -> Recipe:
        named = {n: v for n, v in space.items() if getattr(v, "__globals__", None) is not space and n not in OWN}
        used = writer.space(source, named)
        return call("jitney.aot.runtime.assembly:assemble", writer.ref(source), writer.ref(name), writer.names(used))

    run.__dict__[RECIPE] = recipe
    return run
