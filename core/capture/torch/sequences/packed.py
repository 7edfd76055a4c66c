"""Packed sequences: how long they are is data, so torch's own rules say nothing of their sizes.

Packing B sequences gives two sizes that only the running graph knows, whatever the settings say: the rows of all
sequences together, and the longest one. B itself is known: it is the first of ``batch_sizes``, which modules read as a
number. So a recurrent module on a packed sequence is part of the graph, as an operator that runs as it is.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.python.c_boundary import expose
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.sequences.opaque import like, recorded
from jitney.torch_compat import torch_private

special = FunctionTable()

HINT = "pack sequences in the function that goes through them"
RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


@special(torch_private.pack_padded)
def _pack(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    given = tuple(expose(vm, a) for a in args)
    if kwargs or len(given) != 3 or not all(map(is_stand_in, given[:2])) or given[0].dim() < 2 or given[1].dim() != 1:
        return vm.native(torch_private.pack_padded, *given, **kwargs)
    padded, _, batch_first = given
    rows, longest = vm.symbols.unknown_size(), vm.symbols.unknown_size()

    def packed() -> Any:
        sizes = torch.empty((longest,), dtype=torch.int64, device="cpu")
        return like(padded, (rows, *padded.shape[2:])), sizes

    data, sizes = recorded(vm, torch_private.pack_padded, given, {}, packed)
    vm.symbols.batches[vm.tracer.nodes[id(sizes)]] = padded.shape[0 if batch_first else 1]
    return data, sizes


@special(torch_private.pad_packed)
def _pad(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    given = tuple(expose(vm, a) for a in args)
    batch = _sequences(vm, given[1]) if len(given) == 5 and not kwargs and is_stand_in(given[0]) else None
    if batch is None:
        raise Break("a packed sequence from outside is padded", HINT)
    data, _, batch_first, _, length = given
    if vm.has_regions and not vm.symbols.whole and vm.symbols.scalars.is_unknown(length):
        raise Break("a packed sequence is padded to the longest, a size that no ATen graph holds", "give total_length")

    def padded() -> Any:
        rows = like(data, (length, batch, *data.shape[1:]))
        return rows.transpose(0, 1) if batch_first else rows, torch.empty((batch,), dtype=torch.int64, device="cpu")

    return recorded(vm, torch_private.pad_packed, given, {}, padded)


def _through(function: Any, vm: Any, args: Args, kwargs: Kwargs) -> Any:
    """A recurrent function; on a packed sequence it has ``batch_sizes`` before the state."""
    given = tuple(expose(vm, a) for a in args)
    if kwargs or len(given) != 9 or not isinstance(given[3], (list, tuple)):
        return vm.native(function, *given, **kwargs)
    data, sizes, state, weights = given[:4]
    states = tuple(state) if isinstance(state, (list, tuple)) else (state,)
    of = (data, *states, *weights)
    if _sequences(vm, sizes) is None or not all(map(is_stand_in, of)):
        raise Break("a packed sequence from outside goes through a recurrent module", HINT)
    if torch.is_autocast_enabled(data.device.type):
        raise Break("a packed sequence goes through a recurrent module under autocast")

    def gone_through() -> Any:
        width = states[0].shape[2] * (2 if given[8] else 1)
        return like(data, (data.shape[0], width), of), *(like(s, s.shape, of) for s in states)

    return recorded(vm, function, given, {}, gone_through)


for _function in RECURRENT:
    special.add(_function, functools.partial(_through, _function))


def _sequences(vm: Any, sizes: Any) -> Any:
    """How many sequences these ``batch_sizes`` are of; None where nobody knows."""
    return vm.symbols.sequences(vm.tracer.nodes.get(id(sizes))) if is_stand_in(sizes) else None
