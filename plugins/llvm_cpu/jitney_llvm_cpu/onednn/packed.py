"""A convolution of a compiled graph whose weights are kept in oneDNN's own order, for as long as they are the same.

oneDNN puts weights in an order of its own before it multiplies: at each call, unless it is given such weights, which
takes longer than the product where images are small. A copy in that order is kept for each convolution, as large as its
weights, until the compiled function dies. A digest of the weights' memory at each call says whether it still holds,
however they were written to (see ``digest.py``). Where plain weights give the same numbers in less time, these are used
(see ``trial.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jitney.cache.recipes import Recipe, Writer, call
from jitney_llvm_cpu.onednn.digest import digest_function
from jitney_llvm_cpu.onednn.trial import Trial

LAYOUTS = 4  # shapes of inputs for which a copy may be kept, the first ones; those of equal order share one
PATIENCE = 3  # calls in a row, each with other weights than the call before; then none are kept any more

_aten = torch.ops.aten
_mkldnn: Any = torch.ops.mkldnn


class Kept(NamedTuple):
    """Weights in oneDNN's order.

    Args:
        digest: of the weights as they were.
        copies: by the shape of the input that they were put in order for.
    """

    digest: int
    copies: dict[torch.Size, Tensor]


class PackedConvolution:
    """Called in the place of ``mkldnn._convolution_pointwise``, with weights in dense memory.

    Threads may call it at once: what is kept is replaced as a whole.
    """

    def __init__(self) -> None:
        self.kept: Kept | None = None
        self.changes = 0  # calls in a row with other weights than those of the call before
        self.trials: dict[tuple[torch.Size, int], Trial] = {}  # by the input's shape and the number of threads
        self.digest = digest_function()
        self.operator = _mkldnn._convolution_pointwise.default

    def __call__(self, x: Tensor, *given: Any) -> Tensor:
        """The operator's result; ``given`` are its other arguments."""
        if not x.numel() or self.changes >= PATIENCE:
            return _plain(x, *given)
        where = (x.shape, torch.get_num_threads())
        trial = self.trials.get(where)
        if trial is None:
            if len(self.trials) >= LAYOUTS:
                return _plain(x, *given)
            self.trials[where] = Trial()
            return self._packed(x, *given)
        if trial.packs is None:
            return self._tried(trial, x, *given)
        return self._packed(x, *given) if trial.packs else _plain(x, *given)

    def _tried(self, trial: Trial, x: Tensor, *given: Any) -> Tensor:
        """The result of a call that is timed."""
        if trial.plain is None and not x.any():  # of zeros all results are the same
            return self._packed(x, *given)
        if trial.plain is None:
            result, other = self._packed(x, *given), _plain(x, *given)
            trial.compare(result.stride() == other.stride() and torch.equal(result, other))
            return result
        packs = trial.packs_next
        begin = perf_counter()
        result = self._packed(x, *given) if packs else _plain(x, *given)
        trial.add(packs, perf_counter() - begin)
        if self.kept is not None and not any(trial.packs is not False for trial in [*self.trials.values()]):
            self.kept = None
        return result

    def _packed(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        padding: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        *activation: Any,
    ) -> Tensor:
        """The result with weights in order, if these are worth keeping."""
        digest = self.digest(weight.data_ptr(), weight.nbytes, torch.get_num_threads())
        kept = self.kept
        if kept is None or kept.digest != digest:
            self.changes = self.changes + 1 if kept is not None else 0
            kept = self.kept = Kept(digest, {}) if self.changes < PATIENCE else None
        else:
            self.changes = 0
        packed = kept.copies.get(x.shape) if kept is not None else None
        if packed is None:
            packed = _mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, x.shape)
            # Another thread may have written to the weights since.
            if kept is not None and self.digest(weight.data_ptr(), weight.nbytes, torch.get_num_threads()) == digest:
                packed = _add(packed, x.shape, kept.copies)
        result: Tensor = self.operator(x, packed, bias, padding, stride, dilation, groups, *activation)
        return result

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        return call("jitney_llvm_cpu.onednn.packed:PackedConvolution")


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    *activation: Any,
) -> Any:
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def _add(packed: Tensor, shape: torch.Size, copies: dict[torch.Size, Tensor]) -> Tensor:
    """Keep a copy, or another that is in the same order: then the new one may go."""
    order = _order(packed)
    packed = next((copy for copy in [*copies.values()] if torch.equal(_order(copy), order)), packed)
    copies[shape] = packed
    return packed


def _order(packed: Tensor) -> Tensor:
    made: Tensor = _mkldnn._get_mkldnn_serialized_md(packed)
    return made
