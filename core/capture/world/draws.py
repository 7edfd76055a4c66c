"""Numbers that the frame draws from random generators of Python or NumPy: unknown while it is captured.

Emitted code draws them, and seeds the generators, once its guards hold, in the order of the program, before it calls
the graph. A graph that fails puts the generators back: the frame then runs eagerly, and draws the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.python.c_boundary import expose, specialise
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


@dataclass(frozen=True, slots=True)
class Generator:
    """A class of generators.

    Args:
        kinds: its methods, and of which class what they give is.
        sample: makes one.
        state: an expression for its state, of ``{}``.
        restore: a statement that gives it (the first ``{}``) a state again (the second).
    """

    kinds: Mapping[str, type]
    sample: Callable[[], Any]
    state: str
    restore: str


SEEDS = (int, float, str, bytes, type(None))
MOST = 64  # numbers that one call draws from

PYTHON = Generator(KINDS, lambda: random.Random(0), "{}.getstate()", "{}.setstate({})")
IN_PYTHON = {name: vars(random.Random)[name] for name in KINDS if name in vars(random.Random)}


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Numbers, or a seed: the names that emitted code has for them, the method, and whose that is.

    ``function`` is called in the place of the method, with the owner first.
    """

    name: str
    method: str
    owner: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    of: Generator
    function: Callable[..., Any] | None = None

    def text(self, rebuild: Rebuilder) -> str:
        """The line that draws it."""
        owner = rebuild.expr(self.owner)
        called = f"{rebuild.constant(self.function)}({owner}, " if self.function else f"{owner}.{self.method}("
        texts = [f"({rebuild.each(a)}), " if type(a) is tuple else rebuild.each((a,)) for a in self.args]
        return f"{self.name} = {called}{''.join(texts)}**{self.kwargs!r})"


def draw(vm: Interpreter, owner: Any, method: str, args: Args, kwargs: Kwargs, of: Generator = PYTHON) -> Any:
    """The unknown number that ``owner.method(*args, **kwargs)`` will give; a break where that is not to be put off."""
    plain = all(type(value) in (int, float) for value in (*args, *kwargs.values()))
    known = plain and type(owner) is type(of.sample()) and not vm.world.is_fresh(owner)
    if not known or not _gives(of, method, args, kwargs):
        raise Break(f"{type(owner).__qualname__}.{method} draws from a random number generator")
    vm.world.anchor(owner)
    vm.world.assumptions.keep_private("numbers drawn from a random number generator")
    name = f"_d{len(vm.draws)}"
    vm.draws.append(Draw(name, method, owner, tuple(args), kwargs, of))
    return vm.symbols.drawn(Source(None, "local", name), of.kinds[method])


def shuffled(owner: random.Random, values: tuple[Any, ...]) -> list[Any]:
    """These values in an order that the generator draws."""
    made = list(values)
    owner.shuffle(made)
    return made


def _drawn_among(vm: Interpreter, method: str, args: Args, kwargs: Kwargs) -> Any:
    """``choice``, ``sample`` or ``shuffle`` of numbers of one kind, which are unknown then."""
    owner, given, *rest = args
    values = tuple(expose(vm, given)) if isinstance(given, (list, tuple, range)) else ()
    kinds = {int if type(v) is torch.SymInt else type(v) for v in values}
    count = specialise(rest[0]) if rest else 1 if method == "choice" else len(values)
    known = type(owner) is random.Random and not vm.world.is_fresh(owner) and kinds in ({int}, {float})
    plain = not kwargs and len(rest) == (method == "sample") and (method != "shuffle" or type(given) is list)
    if not known or not plain or type(count) is not int or not 0 < count <= len(values) <= MOST:
        raise Break(f"{type(owner).__qualname__}.{method} draws from a random number generator")
    vm.world.anchor(owner)
    vm.world.assumptions.keep_private("numbers drawn from a random number generator")
    names = [f"_d{len(vm.draws)}_{i}" for i in range(count)]
    target = names[0] if method == "choice" else f"({', '.join(names)},)"
    function = shuffled if method == "shuffle" else None
    vm.draws.append(Draw(target, method, owner, (values, *([count] if rest else [])), {}, PYTHON, function))
    found = [vm.symbols.drawn(Source(None, "local", name), *kinds) for name in names]
    if method == "shuffle":
        _replace(vm, given, found)
        return None
    return found[0] if method == "choice" else vm.world.mark_fresh(found)


def _replace(vm: Interpreter, given: list[Any], items: list[Any]) -> None:
    record = vm.world.record_of(given)
    held = given if record is None else vm.world.content(record)
    held[:] = items
    if record is not None:
        record.dirty = True


def _among(method: str) -> Handler:
    return lambda vm, args, kwargs: _drawn_among(vm, method, args, kwargs)


def _gives(of: Generator, method: str, args: Args, kwargs: Kwargs) -> bool:
    """Does it give a number of its kind for these arguments, rather than raise?"""
    try:
        return type(getattr(of.sample(), method)(*args, **kwargs)) is of.kinds.get(method)
    except Exception:
        return False


def seed(vm: Interpreter, owner: Any, args: Args, kwargs: Kwargs, of: Generator = PYTHON, function: Any = None) -> None:
    """``owner.seed(*args)``, which emitted code does in its place among the draws."""
    known = type(owner) is type(of.sample()) and not vm.world.is_fresh(owner)
    if not known or kwargs or not _seeds(of, args):
        raise Break(f"{type(owner).__qualname__}.seed changes a random number generator")
    vm.world.anchor(owner)
    vm.world.assumptions.keep_private("numbers drawn from a random number generator")
    vm.draws.append(Draw(f"_d{len(vm.draws)}", "seed", owner, tuple(args), {}, of, function))


def _seeds(of: Generator, args: Args) -> bool:
    """Are these a seed that no generator of the class refuses? Every number that a symbolic one may be is such."""
    if len(args) == 1 and type(args[0]) is torch.SymInt:
        return bool(args[0] >= 0) and bool(args[0] < 2**32)
    if any(type(value) not in SEEDS for value in args):
        return False
    try:
        of.sample().seed(*args)
    except Exception:
        return False
    return True


def lines(vm: Interpreter, rebuild: Rebuilder) -> list[str]:
    """What emitted code does before the graph."""
    return [one.text(rebuild) for one in vm.draws]


def keeping(vm: Interpreter, rebuild: Rebuilder) -> tuple[list[str], list[str]]:
    """Lines that note the generators' states before the draws, and lines that put them back."""
    owners = {id(one.owner): (rebuild.expr(one.owner), one.of) for one in vm.draws}
    names = {f"_s{i}": known for i, known in enumerate(owners.values())}
    notes = [f"{name} = {of.state.format(text)}" for name, (text, of) in names.items()]
    return notes, [of.restore.format(text, name) for name, (text, of) in names.items()]


def handler(name: str, of: Generator) -> Handler:
    """What is called in the place of a method of generators, which gets its owner first."""
    return lambda vm, args, kwargs: draw(vm, args[0], name, args[1:], kwargs, of)


for _name, _function in IN_PYTHON.items():
    special(_function)(handler(_name, PYTHON))
special(vars(random.Random)["seed"])(lambda vm, args, kwargs: seed(vm, args[0], args[1:], kwargs))
for _name in ("choice", "sample", "shuffle"):
    special(vars(random.Random)[_name])(_among(_name))
