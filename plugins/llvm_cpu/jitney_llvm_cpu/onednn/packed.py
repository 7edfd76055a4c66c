"""A convolution of a compiled graph whose weights are kept in oneDNN's own order, for as long as they are the same.

oneDNN puts weights in an order of its own before it multiplies: at each call, unless it is given such weights, which
takes longer than the product where images are small. A copy in that order is kept for each convolution, as large as its
weights, until the compiled function dies. A digest of the weights' memory at each call says whether it still holds,
however they were written to (see ``digest.py``). Where plain weights give the same numbers in less time, these are used
(see ``trial.py``).

What is decided here native code does by itself from then on (see ``native.py``), and asks again where it knows nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jitney.cache.recipes import Recipe, Writer, call
from jitney_llvm_cpu import failures
from jitney_llvm_cpu.onednn import native
from jitney_llvm_cpu.onednn.digest import digest_function
from jitney_llvm_cpu.onednn.native import LAYOUTS, Row, State, Table
from jitney_llvm_cpu.onednn.question import Question
from jitney_llvm_cpu.onednn.trial import Trial

# ``LAYOUTS``: shapes of inputs for which a copy may be kept, the first ones; those of equal order share one.
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

    Threads may call it at once: what is kept is replaced as a whole. Native code calls ``jitney_packed`` with its
    ``address``.
    """

    def __init__(self) -> None:
        self.table = Table()
        self.published = {self.table.address: self.table}
        self.retired: list[Table] = []  # which a thread in native code may still look at
        self.bytes = 0
        me = weakref.ref(self)
        self.callback = native.Callback(lambda *given: _asked(me, *given))
        self.state = State(self.table.address, 0, 0, ctypes.cast(self.callback, ctypes.c_void_p))
        self.address = ctypes.addressof(self.state)
        self.kept: Kept | None = None
        self.changes = 0  # calls in a row with other weights than those of the call before
        self.trials: dict[tuple[torch.Size, int], Trial] = {}  # by the input's shape and the number of threads
        self.digest = digest_function()
        self.operator = _mkldnn._convolution_pointwise.default

    def __call__(self, x: Tensor, *given: Any) -> Tensor:
        """The operator's result; ``given`` are its other arguments."""
        result = self._result(x, *given)
        assert result is not None
        return result

    def answer(self, asked: Question) -> None:
        """Make the result that native code asks for, and say what it may do next time."""
        functions = native.functions()
        assert functions is not None
        if functions.hits(self.address):
            self.changes = 0
        self.bytes = asked.bytes
        x, *given = asked.arguments
        result = self._result(x, *given, timed=lambda packs: self._timed(asked, x, packs))
        if result is not None:
            asked.adopt(result)
        self._publish(functions)

    def _timed(self, asked: Question, x: Tensor, packs: bool) -> bool:
        """Have native code do it one way; False if it would ask again."""
        threads = torch.get_num_threads()
        kept = self.kept
        packed = kept.copies.get(x.shape) if kept is not None else None
        if packs and (kept is None or packed is None):
            return False
        row = Row(tuple(x.shape), threads, native.PACKED if packs else native.PLAIN, packed if packs else None)
        table = Table([row], native.ASK, kept.digest if kept is not None else 0, self.bytes)
        return asked.run(State(table.address), threads)

    def _publish(self, functions: native.Functions) -> None:
        """What is known now, as a table for native code."""
        kept = self.kept
        rows = []
        for (shape, threads), trial in [*self.trials.items()]:
            packed = kept.copies.get(shape) if kept is not None and trial.packs else None
            if trial.packs is False or packed is not None:
                mode = native.PLAIN if packed is None else native.PACKED
                rows.append(Row(tuple(shape), threads, mode, packed))
        new = Table(rows, native.ASK, kept.digest if kept is not None else 0, self.bytes)
        if self.changes >= PATIENCE:
            new = Table((), native.PLAIN)
        elif len(self.trials) >= LAYOUTS and len(rows) == len(self.trials):
            new = Table(rows, native.PLAIN, new.native.digest, self.bytes)
        if new.contents == self.table.contents:
            return
        self.table = self.published[new.address] = new
        old = functions.publish(self.address, new.address)
        assert old is not None
        self.retired.append(self.published.pop(old))
        # What is in the list now was taken from native code before it is asked who is there.
        gone = [*self.retired]
        if not functions.users(self.address):
            for table in gone:
                with contextlib.suppress(ValueError):  # another thread did it
                    self.retired.remove(table)

    def _result(self, x: Tensor, *given: Any, timed: Callable[[bool], bool] | None = None) -> Tensor | None:
        """The result; None if ``timed``, which runs one way, has made it."""
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
            return self._tried(trial, timed, x, *given)
        return self._packed(x, *given) if trial.packs else _plain(x, *given)

    def _tried(self, trial: Trial, timed: Callable[[bool], bool] | None, x: Tensor, *given: Any) -> Tensor | None:
        """The result of a call that is timed."""
        if trial.plain is None and not x.any():  # of zeros all results are the same
            return self._packed(x, *given)
        if trial.plain is None:
            result, other = self._packed(x, *given), _plain(x, *given)
            trial.compare(result.stride() == other.stride() and torch.equal(result, other))
            return result
        packs, made = trial.packs_next, None
        begin = perf_counter()
        if timed is None or not timed(packs):
            begin = perf_counter()
            made = self._packed(x, *given) if packs else _plain(x, *given)
        trial.add(packs, perf_counter() - begin)
        if self.kept is not None and not any(trial.packs is not False for trial in [*self.trials.values()]):
            self.kept = None
        return made

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
        kept = self.kept
        packed = kept.copies.get(x.shape) if kept is not None and kept.digest == self._digest_of(weight) else None
        if packed is None:
            # Another thread may write to the weights, and write the old ones back: what was read is put in order.
            weight = weight.clone()
            kept = self._kept_for(self._digest_of(weight))
            packed = kept.copies.get(x.shape) if kept is not None else None
        else:
            self.changes = 0
        if packed is None:
            packed = _mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, x.shape)
            if kept is not None:
                packed = _add(packed, x.shape, kept.copies)
        result: Tensor = self.operator(x, packed, bias, padding, stride, dilation, groups, *activation)
        return result

    def _digest_of(self, weight: Tensor) -> int:
        return self.digest(weight.data_ptr(), weight.nbytes, torch.get_num_threads())

    def _kept_for(self, digest: int) -> Kept | None:
        """What is kept of these weights; None if they change so often that nothing is."""
        kept = self.kept
        if kept is not None and kept.digest == digest:
            self.changes = 0
            return kept
        self.changes = self.changes + 1 if kept is not None else 0
        kept = self.kept = Kept(digest, {}) if self.changes < PATIENCE else None
        return kept

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        return call("jitney_llvm_cpu.onednn.packed:PackedConvolution")


def _asked(me: weakref.ref[PackedConvolution], data: int, desc: int, made: int, threads: int) -> int:
    """Native code's question; exceptions wait until the native call has ended."""
    try:
        packed = me()
        assert packed is not None
        packed.answer(Question(data, desc, made))
    except BaseException as error:
        failures.note(error)
        return native.REFUSED
    return 0


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
