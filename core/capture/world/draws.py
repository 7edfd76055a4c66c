"""Numbers that the frame draws from Python's random generators: unknown while it is captured.

Emitted code draws them once its guards hold, in the order of the program, before it calls the graph. A graph that
fails puts the generators back: the frame then runs eagerly, and draws the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.tables import Args, FunctionTable, Handler, Kwargs
from jitney.guards import Source

if TYPE_CHECKING:
    from jitney.capture.codegen.rebuild import Rebuilder
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

# Methods of random.Random, and what they give.
KINDS: dict[str, type] = {
    **dict.fromkeys(("random", "uniform", "triangular", "gauss", "normalvariate", "lognormvariate"), float),
    **dict.fromkeys(("expovariate", "betavariate", "gammavariate", "paretovariate", "weibullvariate"), float),
    "vonmisesvariate": float,
    **dict.fromkeys(("randint", "randrange", "getrandbits"), int),
}
IN_PYTHON = {name: vars(random.Random)[name] for name in KINDS if name in vars(random.Random)}


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One number: the name that emitted code has for it, the method, and whose that is."""

    name: str
    method: str
    owner: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def text(self, rebuild: Rebuilder) -> str:
        """The line that draws it."""
        return f"{self.name} = {rebuild.expr(self.owner)}.{self.method}({rebuild.each(self.args)}**{self.kwargs!r})"


def draw(vm: Interpreter, owner: Any, method: str, args: Args, kwargs: Kwargs) -> Any:
    """The unknown number that ``owner.method(*args, **kwargs)`` will give; a break where that is not to be put off."""
    plain = all(type(value) in (int, float) for value in (*args, *kwargs.values()))
    if type(owner) is not random.Random or vm.world.is_fresh(owner) or not plain or not _gives(method, args, kwargs):
        raise Break(f"{type(owner).__qualname__}.{method} draws from a random number generator")
    vm.world.anchor(owner)
    vm.world.assumptions.keep_private("numbers drawn from Python's random number generator")
    name = f"_d{len(vm.draws)}"
    vm.draws.append(Draw(name, method, owner, tuple(args), kwargs))
    return vm.symbols.drawn(Source(None, "local", name), KINDS[method])


def _gives(method: str, args: Args, kwargs: Kwargs) -> bool:
    """Does it give a number of its kind for these arguments, rather than raise?"""
    try:
        return type(getattr(random.Random(0), method)(*args, **kwargs)) is KINDS.get(method)
    except Exception:
        return False


def lines(vm: Interpreter, rebuild: Rebuilder) -> list[str]:
    """What emitted code does before the graph."""
    return [one.text(rebuild) for one in vm.draws]


def keeping(vm: Interpreter, rebuild: Rebuilder) -> tuple[list[str], list[str]]:
    """Lines that note the generators' states before the draws, and lines that put them back."""
    owners = {id(one.owner): rebuild.expr(one.owner) for one in vm.draws}
    names = {f"_s{i}": text for i, text in enumerate(owners.values())}
    notes = [f"{name} = {text}.getstate()" for name, text in names.items()]
    return notes, [f"{text}.setstate({name})" for name, text in names.items()]


def _handler(name: str) -> Handler:
    return lambda vm, args, kwargs: draw(vm, args[0], name, args[1:], kwargs)


for _name, _function in IN_PYTHON.items():
    special(_function)(_handler(_name))
