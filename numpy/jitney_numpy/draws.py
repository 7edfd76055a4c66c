"""Numbers of NumPy's random generators, one at a time: drawn before the graph is called, as Python's are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jitney.capture.interpreter.signals import Break
from jitney.capture.tables import Args, Handler, Kwargs
from jitney.capture.world.draws import Generator, handler, seed
from jitney.config import config
from jitney_numpy.calls import ArrayTable

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

table = ArrayTable()

# Methods that give a number of Python's where no size is asked for.
FLOATS = (
    "random uniform normal standard_normal beta exponential standard_exponential gamma standard_gamma chisquare "
    "triangular laplace lognormal weibull power pareto rayleigh gumbel logistic vonmises standard_t f"
).split()
LEGACY = Generator(
    {
        **dict.fromkeys([*FLOATS, "rand", "randn", "random_sample"], float),
        "randint": int,
        "binomial": int,
        "poisson": int,
    },
    lambda: np.random.RandomState(0),
    "{}.get_state()",
    "{}.set_state({})",
)
MODERN = Generator(
    dict.fromkeys(FLOATS, float),
    lambda: np.random.default_rng(0),
    "{}.bit_generator.state",
    "{}.bit_generator.state = {}",
)


def _seeded(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return seed(vm, args[0], args[1:], kwargs, LEGACY)


def _all_seeded(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """``np.random.seed``: of the generator whose methods the module's other functions are."""
    return seed(vm, np.random.rand.__self__, args, kwargs, LEGACY, seed_all)  # type: ignore[attr-defined]


def seed_all(_: np.random.RandomState, *args: Any) -> None:
    """What emitted code calls: it minds another bit generator, where there is one."""
    np.random.seed(*args)


def _traced(name: str, draw: Handler) -> Handler:
    def guarded(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if not config.trace_numpy:
            raise Break(f"np.random.{name} with config.trace_numpy off", "it runs in NumPy")
        return draw(vm, args, kwargs)

    return guarded


for _cls, _of in ((np.random.RandomState, LEGACY), (np.random.Generator, MODERN)):
    for _name in _of.kinds:
        table.add(vars(_cls)[_name], _traced(_name, handler(_name, _of)))
table.add(vars(np.random.RandomState)["seed"], _traced("seed", _seeded))
table.add(np.random.seed, _traced("seed", _all_seeded))
