"""The digest of memory, beside the same in Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from jitney_llvm_cpu.onednn.digest import BLOCK, FINAL, PRIME, SECOND, STRIDE, digest_function, seeds

ALL = 2**64 - 1


def mixed(h: int, word: int, prime: int) -> int:
    product = ((h ^ word) * prime) & ALL
    product = ((product ^ (product >> 32)) * SECOND) & ALL
    return product ^ (product >> 29)


def expected(data: bytes) -> int:
    total = 0
    for number, start in enumerate(range(0, len(data), BLOCK)):
        block = data[start : start + BLOCK]
        whole = len(block) // STRIDE * STRIDE
        lanes = seeds()
        words = np.frombuffer(block[:whole], np.uint64).tolist()
        for at, word in enumerate(words):
            lanes[at % len(lanes)] = mixed(lanes[at % len(lanes)], word, PRIME)
        h = sum(mixed(lane, at // 8, FINAL) * seed for at, (lane, seed) in enumerate(zip(lanes, seeds(), strict=True)))
        h &= ALL
        words_end = whole + (len(block) - whole) // 8 * 8
        for word in np.frombuffer(block[whole:words_end], np.uint64).tolist():
            h = mixed(h, word, PRIME)
        for byte in block[words_end:]:
            h = mixed(h, byte, PRIME)
        total += mixed(mixed(h, number, FINAL), 0, PRIME)
    return total & ALL


def digest(tensor: torch.Tensor, threads: int = 1) -> int:
    return digest_function()(tensor.data_ptr(), tensor.nbytes, threads) & ALL


@pytest.mark.parametrize("count", [0, 1, 7, 8, 255, 256, 257, 519, BLOCK - 1, BLOCK, BLOCK + 300, 3 * BLOCK])
def test_it_is_that_of_the_description(count: int) -> None:
    data = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    assert digest(data) == expected(data.numpy().tobytes())


def test_threads_do_not_matter() -> None:
    data = torch.randn(40 * BLOCK // 4 + 3)
    assert len({digest(data, threads) for threads in (1, 2, 3, 8)}) == 1


def test_it_changes_with_each_bit() -> None:
    data = torch.zeros(600, dtype=torch.uint8)
    found = {digest(data)}
    for at in range(len(data)):
        for bit in (0, 7):
            data[at] = 1 << bit
            found.add(digest(data))
        data[at] = 0
    assert len(found) == 1 + 2 * len(data)


@pytest.mark.parametrize("count", [1000, 50_000])
def test_it_changes_with_signs_and_order(count: int) -> None:
    data = torch.randn(count)
    others = [data, -data, data.flip(0), data.roll(1), data.roll(BLOCK // 4), data.sort().values, data + 0.0 * data + 1]
    others.append(torch.where(torch.arange(count) % 2 == 1, -data, data))
    assert len({digest(other.contiguous()) for other in others}) == len(others)


@pytest.mark.parametrize("bits", [1 << 31, 1 << 30, 1 << 31 | 1 << 30, 1], ids=["sign", "exponent", "both", "last"])
def test_flips_of_neighbours_and_of_a_lane_do_not_cancel(bits: int) -> None:
    numbers = torch.randn(64 * 64 + 13).view(torch.int32)
    bit = bits - (1 << 32) if bits >> 31 else bits
    firsts, steps, others = (1, 7, 64, 127, 1000, numbers.numel() - 9), (1, 2, 3, 62, 63, 64, 65, 128), ((), (1,), (2,))
    patterns = {frozenset({f, f + s, *(f + s + n for n in more)}) for f in firsts for s in steps for more in others}
    patterns = {places for places in patterns if max(places) < numbers.numel()}
    seen = {digest(numbers)}
    for places in patterns:
        changed = numbers.clone()
        for place in places:
            changed[place] ^= bit
        seen.add(digest(changed))
    assert len(seen) == 1 + len(patterns) > 80
