"""The digest of memory, beside the same in Python."""

from __future__ import annotations

import functools
import operator
import struct

import numpy as np
import pytest
import torch

from jitney_llvm_cpu.machine import machine
from jitney_llvm_cpu.onednn.digest import digest_function
from jitney_llvm_cpu.onednn.digest_code import BLOCK, FINAL, PRIME, SECOND, STRIDE, aes_bytes, seeds
from jitney_llvm_cpu.target import Target

ALL = 2**64 - 1
AES = [False] + [True] * bool(aes_bytes(machine(0).target))
WIDTHS = [width for width in (16, 32, 64) if width <= machine(0).target.vector_bytes]


def doubled(byte: int) -> int:
    """Times x in AES's field."""
    return (byte << 1) ^ (0x11B if byte & 0x80 else 0)


@functools.cache
def s_box() -> list[int]:
    """AES's substitution: the inverse in its field, then an affine map (FIPS 197, 5.1.1)."""
    powers = [1]
    while len(powers) < 255:
        powers.append(powers[-1] ^ doubled(powers[-1]))
    found = []
    for byte in range(256):
        inverse = powers[-powers.index(byte) % 255] if byte else 0
        turned = [(inverse << n | inverse >> (8 - n)) & 0xFF for n in range(5)]
        found.append(functools.reduce(operator.xor, turned) ^ 0x63)
    return found


def aes_round(state: bytes, key: bytes) -> bytes:
    """What ``aesenc`` does: substitute, shift rows, mix columns, add the key."""
    box = s_box()
    shifted = [box[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
    mixed_bytes = []
    for column in range(0, 16, 4):
        four = shifted[column : column + 4]
        for row in range(4):
            a, b, c, d = four[row:] + four[:row]
            mixed_bytes.append(doubled(a) ^ doubled(b) ^ b ^ c ^ d)
    return bytes(byte ^ part for byte, part in zip(mixed_bytes, key, strict=True))


def ciphered(lanes: list[int], words: list[int]) -> list[int]:
    """Lanes, two of which are a state, after words of the same number."""
    keys = [struct.pack("<2Q", key, key) for key in (PRIME, SECOND)]
    found: list[int] = []
    for at in range(0, len(lanes), 2):
        state = struct.pack("<2Q", lanes[at] ^ words[at], lanes[at + 1] ^ words[at + 1])
        found += struct.unpack("<2Q", aes_round(aes_round(state, keys[0]), keys[1]))
    return found


def mixed(h: int, word: int, prime: int) -> int:
    product = ((h ^ word) * prime) & ALL
    product = ((product ^ (product >> 32)) * SECOND) & ALL
    return product ^ (product >> 29)


def expected(data: bytes, aes: bool) -> int:
    total = 0
    for number, start in enumerate(range(0, len(data), BLOCK)):
        block = data[start : start + BLOCK]
        whole = len(block) // STRIDE * STRIDE
        lanes = seeds()
        words = np.frombuffer(block[:whole], np.uint64).tolist()
        for at in range(0, len(words), len(lanes)):
            several = words[at : at + len(lanes)]
            if aes:
                lanes = ciphered(lanes, several)
            else:
                lanes = [mixed(lane, word, PRIME) for lane, word in zip(lanes, several, strict=True)]
        h = sum(mixed(lane, at // 8, FINAL) * seed for at, (lane, seed) in enumerate(zip(lanes, seeds(), strict=True)))
        h &= ALL
        words_end = whole + (len(block) - whole) // 8 * 8
        for word in np.frombuffer(block[whole:words_end], np.uint64).tolist():
            h = mixed(h, word, PRIME)
        for byte in block[words_end:]:
            h = mixed(h, byte, PRIME)
        total += mixed(mixed(h, number, FINAL), 0, PRIME)
    return total & ALL


def digest(tensor: torch.Tensor, threads: int = 1, aes: bool = True, width: int = 0) -> int:
    return digest_function(width, aes)(tensor.data_ptr(), tensor.nbytes, threads) & ALL


def test_rounds_are_aes() -> None:
    """FIPS 197, appendix B: the first round."""
    state = bytes.fromhex("193de3bea0f4e22b9ac68d2ae9f84808")
    key = bytes.fromhex("a0fafe1788542cb123a339392a6c7605")
    assert aes_round(state, key).hex() == "a49c7ff2689f352b6b5bea43026a5049"


@pytest.mark.parametrize("aes", AES)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 255, 256, 257, 519, BLOCK - 1, BLOCK, BLOCK + 300, 3 * BLOCK])
def test_it_is_that_of_the_description(count: int, aes: bool) -> None:
    data = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    assert {digest(data, aes=aes, width=width) for width in WIDTHS} == {expected(data.numpy().tobytes(), aes)}


@pytest.mark.parametrize(
    ("features", "width", "expected_bytes"),
    [("+aes", 64, 16), ("+aes,+vaes", 64, 64), ("+aes,+vaes", 32, 32), ("+avx2,-aes", 32, 0), ("-vaes", 16, 0)],
)
def test_what_the_processor_has_is_used(features: str, width: int, expected_bytes: int) -> None:
    assert aes_bytes(Target("x86_64-unknown-linux-gnu", "any", features, width)) == expected_bytes
    assert aes_bytes(Target("aarch64-unknown-linux-gnu", "any", features, 16)) == 0


@pytest.mark.parametrize("aes", AES)
def test_threads_do_not_matter(aes: bool) -> None:
    data = torch.randn(40 * BLOCK // 4 + 3)
    assert len({digest(data, threads, aes) for threads in (1, 2, 3, 8)}) == 1


@pytest.mark.parametrize("aes", AES)
def test_it_changes_with_each_bit(aes: bool) -> None:
    data = torch.zeros(600, dtype=torch.uint8)
    found = {digest(data, aes=aes)}
    for at in range(len(data)):
        for bit in (0, 7):
            data[at] = 1 << bit
            found.add(digest(data, aes=aes))
        data[at] = 0
    assert len(found) == 1 + 2 * len(data)


@pytest.mark.parametrize("aes", AES)
@pytest.mark.parametrize("count", [1000, 50_000])
def test_it_changes_with_signs_and_order(count: int, aes: bool) -> None:
    data = torch.randn(count)
    others = [data, -data, data.flip(0), data.roll(1), data.roll(BLOCK // 4), data.sort().values, data + 0.0 * data + 1]
    others.append(torch.where(torch.arange(count) % 2 == 1, -data, data))
    assert len({digest(other.contiguous(), aes=aes) for other in others}) == len(others)


@pytest.mark.parametrize("aes", AES)
@pytest.mark.parametrize("bits", [1 << 31, 1 << 30, 1 << 31 | 1 << 30, 1], ids=["sign", "exponent", "both", "last"])
def test_flips_of_neighbours_and_of_a_lane_do_not_cancel(bits: int, aes: bool) -> None:
    numbers = torch.randn(64 * 64 + 13).view(torch.int32)
    bit = bits - (1 << 32) if bits >> 31 else bits
    firsts, steps, others = (1, 7, 64, 127, 1000, numbers.numel() - 9), (1, 2, 3, 62, 63, 64, 65, 128), ((), (1,), (2,))
    patterns = {frozenset({f, f + s, *(f + s + n for n in more)}) for f in firsts for s in steps for more in others}
    patterns = {places for places in patterns if max(places) < numbers.numel()}
    seen = {digest(numbers, aes=aes)}
    for places in patterns:
        changed = numbers.clone()
        for place in places:
            changed[place] ^= bit
        seen.add(digest(changed, aes=aes))
    assert len(seen) == 1 + len(patterns) > 80
