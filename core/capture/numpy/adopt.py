"""Arrays and scalars of NumPy that are older than the frame: which are captured, and what is guarded of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.numpy.dtypes import KNOWN, SCALARS, is_known
from jitney.capture.numpy.memory import from_readonly, from_scalar
from jitney.capture.numpy.stand_in import Array
from jitney.capture.tables import UNCAPTURED
from jitney.config import config
from jitney.guards import Source
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter


def adopt(vm: Interpreter, real: Any, source: Source) -> Array | None:
    """The stand-in for an array or a scalar from outside, the same one each time; None for one that is not captured."""
    if not config.trace_numpy or vm.handlers.arrays is UNCAPTURED:
        return None
    known = vm.arrays.get(id(real))
    if known is not None:
        vm.world.relate(known.source, source, True)
        return known
    made = _scalar(vm, real, source) if type(real) in SCALARS else _array(vm, real, source)
    if made is not None:
        vm.arrays[id(real)] = made
        vm.adopted_arrays.append(real)
    return made


def _scalar(vm: Interpreter, real: Any, source: Source) -> Array:
    vm.world.guard(source, "type", type(real))
    with torch_private.without_modes():
        tensor = from_scalar(real)
    fake = vm.tracer.adopt_checked(tensor, source.step("from_scalar"))
    made = Array(vm, vm.elsewhere.brought(fake, fixed=True), scalar=True, source=source)
    made.known = real
    return made


def _array(vm: Interpreter, real: np.ndarray[Any, Any], source: Source) -> Array | None:
    if not is_known(real.dtype):
        return None
    readonly = not real.flags.writeable
    step = "from_readonly" if readonly else "from_numpy"
    with torch_private.without_modes():
        try:
            tensor = from_readonly(real) if readonly else torch.from_numpy(real)
        except (TypeError, ValueError):  # strides that torch does not have
            return None
    vm.world.guard(source, "type", np.ndarray)
    vm.world.guard(source.attr("dtype"), "dtype", KNOWN[real.dtype.char])
    if not readonly:
        vm.world.guard(source, "true", "{v}.flags.writeable")
    vm.world.apart.setdefault(Array, {})[id(real)] = source
    fake = vm.tracer.adopt_checked(tensor, source.step(step))
    return Array(vm, vm.elsewhere.brought(fake, fixed=readonly), readonly=readonly, source=source)
