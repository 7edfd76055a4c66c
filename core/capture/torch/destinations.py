"""What an operation is given as ``out=``: torch's rules for stand-ins take dtypes that kernels refuse, and convert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from jitney.capture import metadata
from jitney.capture.interpreter.signals import Break
from jitney.capture.torch.function_names import function_name
from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins.tensor_iterator import hint


class Destinations:
    """The ``out=`` of one operation, before it has run.

    Args:
        func: the operation.
        args, kwargs: what it is called with.

    Raises:
        Break: ``out=`` has another dtype than the result, or sizes that depend on data decide whether it fits.
    """

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.func = func
        given = kwargs.get("out")
        self.out = [given] if isinstance(given, torch.Tensor) else list(given or ())
        self.versions = [metadata.version_of(tensor) for tensor in self.out]
        if self.out:
            if any(map(_of_data, _flat(args))) and not all(map(_fits_all, self.out)):  # torch would warn and resize it
                raise Break(f"{function_name(func)}(out=...) where sizes depend on the values of a tensor")
            self._check_dtypes(args, kwargs)

    def check(self, result: Any) -> None:
        """Look at them when it has run; raises ``Break`` where nothing was written."""
        pairs = zip(self.out, self.versions, strict=True)
        if result is not None and any(metadata.version_of(tensor) == version >= 0 for tensor, version in pairs):
            # lists given as out= are written to without counting
            raise Break(f"{function_name(self.func)} leaves out= alone when it is traced", "use its result instead")

    def _check_dtypes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        others = {key: _on_meta(value) for key, value in kwargs.items() if key != "out"}
        given = _on_meta(args)
        if not any(isinstance(leaf, torch.Tensor) for leaf in (*_flat(given), *_flat(others))):
            return  # a factory, which fills any
        with torch_private.without_modes(), torch_private.DisableTorchFunction(), torch.no_grad():
            try:
                result = self.func(*given, **others)
            except Exception:  # the operation itself says why
                return
        results = result if isinstance(result, (tuple, list)) else (result,)
        for tensor, natural in zip(self.out, results, strict=False):
            if isinstance(natural, torch.Tensor) and natural.dtype is not tensor.dtype:
                raise Break(
                    f"{function_name(self.func)}(out=...) of {tensor.dtype} for a result of {natural.dtype}",
                    "let out= have the result's dtype",
                )


def _on_meta(value: Any) -> Any:
    """The same with tensors on the device that has no data, as large as the stand-ins were when captured."""
    if isinstance(value, torch.Tensor):
        with torch_private.DisableTorchFunction(), torch_private.without_modes():
            size, stride = ([*map(hint, ns)] for ns in (value.shape, value.stride()))
            return torch.empty_strided(size, stride, dtype=value.dtype, device="meta")
    if isinstance(value, (tuple, list)):
        return type(value)(map(_on_meta, value)) if type(value) in (tuple, list) else value
    return hint(value) if isinstance(value, torch.SymInt) else value


def _of_data(value: Any) -> bool:
    """Has this tensor a size that depends on data?"""
    if not isinstance(value, torch.Tensor):
        return False
    with torch_private.DisableTorchFunction(), torch_private.without_modes():
        sizes: tuple[Any, ...] = tuple(value.shape)
    return any(torch_private.data_symbols(n) for n in sizes if isinstance(n, torch.SymInt))


def _fits_all(out: torch.Tensor) -> bool:
    """Is it empty, or is it not known itself how large it is?"""
    return _of_data(out) or out.numel() == 0


def _flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return [value]
    return [leaf for item in value for leaf in _flat(item)]
