"""One node on its way through its rule, and the table that rules are entered in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax
from torch import fx

from jitney_xla.exchange import DTYPES
from jitney_xla.sizes import NotHere

HALVES = (torch.float16, torch.bfloat16)


@dataclass
class Call:
    """A node while its graph is traced.

    Args:
        node: with FakeTensors in ``meta["val"]``, its own and those of its arguments.
        conditions: arrays of truth values; where one is False, the numbers are not eager's, or eager raises.
    """

    node: fx.Node
    conditions: list[Any] = field(default_factory=list)

    @property
    def val(self) -> Any:
        """What the node gives: a FakeTensor, or several."""
        return self.node.meta["val"]

    @property
    def dtype(self) -> torch.dtype:
        """Of the result, or of the first."""
        return first(self.val).dtype

    @property
    def computes(self) -> Any:
        """The dtype to compute the result in: float32 instead of halves."""
        return computing(self.dtype)

    def shape(self, position: int) -> tuple[Any, ...]:
        """The shape of an argument as it was traced, symbols included."""
        return tuple(fake(self.node.args[position]).shape)

    def made(self, array: Any) -> Any:
        """The result in its dtype."""
        return converted(array, self.dtype)


def converted(array: Any, dtype: torch.dtype) -> Any:
    """The numbers in another dtype; halves by way of float32, as in eager, which then may round twice."""
    if dtype in HALVES and array.dtype != DTYPES[dtype]:
        array = lax.convert_element_type(array, jnp.float32)
    return lax.convert_element_type(array, DTYPES[dtype])


def leaves(value: Any) -> Iterator[Any]:
    """What is in lists of values."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def first(value: Any) -> Any:
    """A tensor, or the first of several."""
    return next(v for v in value if v is not None) if isinstance(value, (tuple, list)) else value


def fake(argument: Any) -> Any:
    """The FakeTensor of an argument; numbers are themselves."""
    return argument.meta["val"] if isinstance(argument, fx.Node) else argument


def computing(dtype: torch.dtype) -> Any:
    """What is computed in for results of this dtype."""
    return jnp.float32 if dtype in HALVES else DTYPES[dtype]


def number(value: Any, dtype: Any) -> Any:
    """A Python number as an array that XLA takes for unknown: it would drop ``+ 0.0``, which makes -0.0 be 0.0.

    Raises:
        NotHere: the dtype does not hold it; eager wraps it around, or raises. Of sizes this is known so late.
    """
    floating = jnp.issubdtype(dtype, jnp.floating)
    if dtype != jnp.bool_ and (floating or isinstance(value, int)):
        limits = jnp.finfo(dtype) if floating else jnp.iinfo(dtype)
        if math.isfinite(value) and not limits.min <= value <= limits.max:
            raise NotHere(f"{jnp.dtype(dtype)} does not hold {value}")
    made = jnp.asarray(value, dtype)
    return lax.optimization_barrier(made) if floating else made


def cast(value: Any, dtype: Any) -> Any:
    """An array of that dtype; numbers become one without dimensions."""
    return lax.convert_element_type(value, dtype) if hasattr(value, "dtype") else number(value, dtype)


def operand(value: Any, dtype: torch.dtype) -> Any:
    """A number or an array as eager's kernels read it: brought to ``dtype`` first, then in what is computed in."""
    if not hasattr(value, "dtype"):
        return number(float(torch.tensor(value, dtype=dtype)) if dtype in HALVES else value, computing(dtype))
    return lax.convert_element_type(converted(value, dtype), computing(dtype))


Only = Callable[[fx.Node], bool]


@dataclass(frozen=True)
class Rule:
    """How an operator is computed.

    Args:
        make: ``make(call, *args, **kwargs)``, arguments as in the operator's schema, tensors as JAX arrays.
        only: may this node be taken? None: each with dtypes that XLA has.
    """

    make: Callable[..., Any]
    only: Only | None = None


RULES: dict[Any, Rule] = {}


def rule(*targets: Any, only: Only | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters the function for these operators."""

    def enter(make: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(targets, Rule(make, only)))
        return make

    return enter
