"""Packed sequences, and recurrent modules that go through them: one graph, whatever the lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import compile_fn, observe, t
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

LENGTHS = ([4, 2, 3], [3, 3, 3], [1, 4, 2], [2, 2, 1])
BACKENDS = ["eager", "aot_eager", "llvm_cpu"]


class Encoder(nn.Module):
    def __init__(self, kind: Any, total: int | None = None, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 4)
        self.recurrent = kind(4, 5, batch_first=True, **options)
        self.outer = nn.Linear(5 * (2 if options.get("bidirectional") else 1), 2)
        self.total = total

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, state: Any = None) -> Any:
        packed = pack_padded_sequence(self.inner(x).relu(), lengths, batch_first=True, enforce_sorted=False)
        made, state = self.recurrent(packed, state)
        padded, lengths = pad_packed_sequence(made, batch_first=True, total_length=self.total)
        return self.outer(padded), state, lengths


def flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, tuple) else [value]


def same(compiled: Any, plain: Any) -> None:
    for one, other in zip(flat(compiled), flat(plain), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride() and one.requires_grad == other.requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: Encoder(nn.LSTM),
        lambda: Encoder(nn.LSTM, bidirectional=True, num_layers=2, proj_size=0),
        lambda: Encoder(nn.GRU, 6, bidirectional=True),
        lambda: Encoder(nn.RNN, nonlinearity="relu"),
    ],
    ids=["lstm", "two_ways", "gru", "rnn"],
)
def test_one_graph_for_all_lengths(make: Callable[[], Encoder], backend: str) -> None:
    module, plain = make(), make()
    compiled = compile_fn(module, backend=backend)
    with observe() as seen:
        for count, lengths in enumerate(LENGTHS):
            x = t(3, 4, 3) + count
            got, wanted = compiled(x, torch.tensor(lengths)), plain(x, torch.tensor(lengths))
            same(got, wanted)
            for made in (got, wanted):
                (made[0].square().sum() + flat(made[1])[0].sum()).backward()
    if backend == "eager" or module.total is not None:
        assert len(seen.graphs) == 1 and not seen.breaks
    else:  # what comes after is compiled for the sizes that are known then
        assert "padded to the longest" in seen.breaks[0]
    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_state_and_other_numbers_of_sequences() -> None:
    module, plain = Encoder(nn.GRU), Encoder(nn.GRU)
    compiled = compile_fn(module, fullgraph=True)
    for batch in (3, 2, 4, 5):
        lengths = torch.tensor([1 + i % 4 for i in range(batch)])
        same(compiled(t(batch, 4, 3), lengths, t(1, batch, 5)), plain(t(batch, 4, 3), lengths, t(1, batch, 5)))


def test_sizes_are_what_they_are() -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths)
        count = int(packed.batch_sizes[0])
        return packed.data * 2, packed.batch_sizes, packed.data.new_ones(count), packed.batch_sizes[0].item() + 1

    compiled = compile_fn(fn)
    for lengths in ([4, 2], [3, 3], [2, 1]):
        with observe() as seen:
            same(compiled(t(4, 2, 3), torch.tensor(lengths))[:3], fn(t(4, 2, 3), torch.tensor(lengths))[:3])
        assert compiled(t(4, 2, 3), torch.tensor(lengths))[3] == 3
        assert not seen.breaks


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_strides(kind: Any, batch_first: bool) -> None:
    torch.manual_seed(0)
    module = kind(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)

    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=batch_first)
        made, state = module(packed)
        padded, counts = pad_packed_sequence(made, batch_first=batch_first)
        values = [packed.data, packed.batch_sizes, made.data, padded, counts, *flat(state)]
        return tuple(values), tuple(value.stride() for value in values)

    x, lengths = t(*((3, 4) if batch_first else (4, 3)), 3), torch.tensor([4, 4, 2])
    got, wanted = compile_fn(fn, fullgraph=True)(x, lengths), fn(x, lengths)
    same(got[0], wanted[0])
    assert got[1] == wanted[1]


def _by_item(sizes: torch.Tensor) -> None:
    sizes[0] = 1


def _by_view(sizes: torch.Tensor) -> None:
    sizes[:2].fill_(1)


def _by_data(sizes: torch.Tensor) -> None:
    sizes.data.sub_(1)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("write", [_by_item, _by_view, _by_data])
def test_sizes_that_are_written_to(write: Callable[[torch.Tensor], None], inference: bool) -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths)
        before = int(packed.batch_sizes[0])
        write(packed.batch_sizes)
        return before, int(packed.batch_sizes[0]), packed.data * 1

    compiled = compile_fn(fn)
    with torch.inference_mode(inference):
        for lengths in ([4, 2], [3, 3]):
            got, wanted = compiled(t(4, 2, 3), torch.tensor(lengths)), fn(t(4, 2, 3), torch.tensor(lengths))
            assert got[:2] == wanted[:2] and torch.equal(got[2], wanted[2])


def test_a_loss_of_packed_targets() -> None:
    torch.manual_seed(0)
    outer = nn.Linear(3, 5)

    def fn(x: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        wanted = pack_padded_sequence(targets, lengths, batch_first=True)
        return F.cross_entropy(outer(packed.data), wanted.data)

    compiled = compile_fn(fn)
    for lengths in ([4, 2], [3, 3]):
        args = (t(2, 4, 3), torch.arange(8).reshape(2, 4) % 5, torch.tensor(lengths))
        same(compiled(*args), fn(*args))


def test_a_list_of_sequences() -> None:
    def fn(sequences: list[torch.Tensor]) -> Any:
        packed = pack_sequence(sequences, enforce_sorted=False)
        return packed.data * 2, packed.batch_sizes, packed.unsorted_indices

    compiled = compile_fn(fn, fullgraph=True)
    for sizes in ((2, 3, 1), (3, 3), (1, 1, 4)):
        same(compiled([t(n, 2) for n in sizes]), fn([t(n, 2) for n in sizes]))


@pytest.mark.parametrize("lengths", [[2, 4, 3], [4, 3, 0]])
def test_lengths_that_torch_refuses(lengths: list[int]) -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        return pack_padded_sequence(x, lengths, batch_first=True).data

    compiled = compile_fn(fn)
    compiled(t(3, 4, 3), torch.tensor([4, 2, 1]))
    with pytest.raises(RuntimeError) as wanted:
        fn(t(3, 4, 3), torch.tensor(lengths))
    with pytest.raises(RuntimeError) as got:
        compiled(t(3, 4, 3), torch.tensor(lengths))
    assert str(got.value) == str(wanted.value)


def test_a_packed_sequence_from_outside() -> None:
    module = nn.LSTM(3, 4)
    torch.manual_seed(0)
    packed = pack_padded_sequence(t(4, 2, 3), torch.tensor([4, 2]))

    def fn(packed: Any) -> Any:
        made, _ = module(packed)
        return pad_packed_sequence(made)

    same(compile_fn(fn)(packed), fn(packed))


def test_a_break_between() -> None:
    module = nn.GRU(3, 4)

    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths)
        print("packed")
        made, state = module(packed)
        print("gone through")
        return pad_packed_sequence(made)[0], state

    compiled = compile_fn(fn)
    for lengths in ([4, 2], [3, 3]):
        same(compiled(t(4, 2, 3), torch.tensor(lengths)), fn(t(4, 2, 3), torch.tensor(lengths)))


def test_autocast() -> None:
    module = nn.LSTM(3, 4)

    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(pack_padded_sequence(x, lengths))[0].data

    compiled = compile_fn(fn)
    lengths = torch.tensor([4, 2])
    same(compiled(t(4, 2, 3), lengths), fn(t(4, 2, 3), lengths))
