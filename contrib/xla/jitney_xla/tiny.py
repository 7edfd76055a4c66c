"""Numbers below the smallest normal one: XLA's threads take them for zero, so such an argument is not for XLA."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

# The integers of a dtype's bits: their type, all bits but the sign, and those of the smallest normal number. What is
# float16 is computed in float32, where its numbers are all normal.
BITS = {
    jnp.dtype(jnp.bfloat16): (jnp.uint16, 0x7FFF, 0x0080),
    jnp.dtype(jnp.float32): (jnp.uint32, 0x7FFFFFFF, 0x00800000),
    jnp.dtype(jnp.float64): (jnp.uint64, 0x7FFFFFFFFFFFFFFF, 0x0010000000000000),
}


def has_none(x: Any) -> Any:
    """Is every number zero, normal, infinite or NaN? None for a dtype that needs no question."""
    if jnp.dtype(x.dtype) not in BITS:
        return None
    kind, mask, least = BITS[jnp.dtype(x.dtype)]
    size = lax.bitcast_convert_type(x, kind) & jnp.asarray(mask, kind)
    return jnp.all((size == 0) | (size >= jnp.asarray(least, kind)))
