"""Options of jitney's own: every backend takes them in ``options={...}``, and none of them reaches it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

from jitney._util.type_check import has_type, show
from jitney.errors import InvalidOption


@dataclasses.dataclass(frozen=True)
class OwnOptions:
    """What jitney itself does with the graphs of a backend.

    Args:
        crosscheck: run each compiled graph beside eager, and raise ``errors.WrongNumbers`` at the first whose results,
            gradients or writes differ: at every call (True), or at the first of every so many.
        freeze: in inference, take parameters and buffers for constants: what depends on them alone is computed while
            the graph is compiled, and a batch norm goes into the weights before it. It is compiled again when one of
            them is replaced or written to. For backends that take ATen graphs.
        drop_grads: where a function begins with ``zero_grad()``, let the gradients go that it ends with: ``.grad`` is
            None between calls, and their memory is free.
    """

    crosscheck: bool | int = False
    freeze: bool = False
    drop_grads: bool = False

    def __post_init__(self) -> None:
        if type(self.crosscheck) is int and self.crosscheck < 1:
            raise InvalidOption(
                f"option 'crosscheck' is a bool, or a number of calls from 1 on, got {self.crosscheck}",
                hint="options={'crosscheck': True}",
            )


def own_options(options: Mapping[str, Any] | None) -> tuple[OwnOptions, dict[str, Any] | None]:
    """Jitney's own among what the user wrote in ``options=``, and the rest.

    Raises:
        InvalidOption: a value of the wrong type, or out of range.
    """
    types = get_type_hints(OwnOptions)
    own = {name: value for name, value in (options or {}).items() if name in types}
    for name, value in own.items():
        if not has_type(value, types[name]):
            raise InvalidOption(
                f"option {name!r} of jitney's own is {show(types[name])}, got {value!r}",
                hint=f"options={{{name!r}: {getattr(OwnOptions(), name)!r}}}, as by default",
            )
    rest = None if options is None else {name: value for name, value in options.items() if name not in own}
    return OwnOptions(**own), rest
