"""Bits and hashes: signatures, filters, sketches, space-filling curves, random numbers by counters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..row import Made, Place, Row

MASK32 = 0xFFFFFFFF


def popcount(x: Tensor) -> Tensor:
    """The number of ones in the lower 32 bits of int64, by adding in parallel."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) & MASK32) >> 24


def hyperplane_search(base: Tensor, query: Tensor, planes: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
    """Charikar's hashing: signs of projections packed into words, Hamming distances, the cosine among the best."""
    weights = 1 << torch.arange(32, device=base.device)

    def signature(x: Tensor) -> Tensor:
        bits = (x @ planes) > 0
        return (bits.unflatten(-1, (-1, 32)) * weights).sum(-1)

    codes, wanted = signature(base), signature(query)
    distance = popcount(wanted[:, None] ^ codes[None]).sum(-1)
    near, index = torch.sort(distance, dim=-1, stable=True)
    near, index = near[:, :k], index[:, :k]
    found = torch.nn.functional.normalize(base[index], dim=-1)
    cosine = torch.einsum("qkd,qd->qk", found, torch.nn.functional.normalize(query, dim=-1))
    return near, cosine


def hyperplanes(place: Place) -> Made:
    n, q, d = place.size(2000, 32_768), place.size(32, 128), 64
    planes = (2 * place.randint(2, d, 128) - 1).float()
    grid = [(place.randint(16, rows, d) - 7.75) / 16 for rows in (n, q)]
    return hyperplane_search, (grid[0], grid[1], planes)


def mix(x: Tensor) -> Tensor:
    """Murmur3's finaliser on 32 bits held in int64."""
    x = x & MASK32
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK32
    return x ^ (x >> 16)


def min_hash(tokens: Tensor, length: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """MinHash of documents: hashed trigrams, their least value under each seed, bands, and Jaccard estimates."""
    shingles = mix(tokens[:, :-2] * 31 + mix(tokens[:, 1:-1] * 37 + mix(tokens[:, 2:])))
    inside = torch.arange(shingles.size(1), device=tokens.device) < (length - 2)[:, None]
    hashed = mix(shingles[:, :, None] ^ seeds)
    signature = torch.where(inside[:, :, None], hashed, MASK32).amin(1)
    bands = signature.view(signature.size(0), -1, 4)
    band = mix(bands[..., 0] + 3 * bands[..., 1] + 5 * bands[..., 2] + 7 * bands[..., 3])
    candidate = (band[:, None] == band[None]).any(-1)
    jaccard = (signature[:, None] == signature[None]).to(torch.get_default_dtype()).mean(-1)
    return signature, candidate, jaccard


def documents(place: Place) -> Made:
    n, length = place.size(64, 1024), place.size(128, 256)
    lengths = length // 2 + place.randint(length // 2, n)
    return min_hash, (place.randint(50, n, length), lengths, place.randint(1 << 31, 64))


def bloom_filter(words: Tensor, keys: Tensor, queries: Tensor, hashes: int = 5) -> tuple[Tensor, Tensor]:
    """Insert keys into packed words by double hashing, then ask; how full the filter is."""
    bits = words.size(0) * 32
    flags = ((words[:, None] >> torch.arange(32, device=words.device)) & 1).flatten().bool()

    def positions(x: Tensor) -> Tensor:
        first, second = mix(x), mix(x ^ 0x5BD1E995) | 1
        return (first[:, None] + torch.arange(hashes, device=x.device) * second[:, None]) % bits

    flags[positions(keys).flatten()] = True
    packed = (flags.view(-1, 32) * (1 << torch.arange(32, device=words.device))).sum(-1)
    where = positions(queries)
    present = ((packed[where >> 5] >> (where & 31)) & 1).all(-1)
    return packed, present


def bloom(place: Place) -> Made:
    n, size = place.size(10_000, 1 << 19), place.size(1 << 12, 1 << 18)
    words = place.randint(1 << 31, size) & place.randint(1 << 31, size)
    return bloom_filter, (words, place.randint(1 << 31, n), place.randint(1 << 31, 2 * n))


def count_sketch(keys: Tensor, values: Tensor, rows: int = 5, width: int = 1 << 12) -> tuple[Tensor, Tensor]:
    """A count sketch of a weighted stream: signed sums by row, each key's estimate is the rows' median."""
    tables, estimates = [], []
    for row in range(rows):
        hashed = mix(keys * 0x9E3779B1 + row * 0x7F4A7C15)
        slot = hashed % width
        sign = 1.0 - 2.0 * ((hashed >> 20) & 1).to(values.dtype)
        table = torch.zeros(width, dtype=values.dtype, device=values.device).scatter_add_(0, slot, sign * values)
        tables.append(table)
        estimates.append(sign * table[slot])
    return torch.stack(tables), torch.stack(estimates).median(dim=0).values


def sketch(place: Place) -> Made:
    n = place.size(20_000, 1 << 20)
    keys = (place.rand(n) ** 3 * 5000).long()
    return count_sketch, (keys, place.randint(100, n).float())


def spread(x: Tensor) -> Tensor:
    """Two zeros between neighbouring bits of ten-bit numbers."""
    x = (x | (x << 16)) & 0x030000FF
    x = (x | (x << 8)) & 0x0300F00F
    x = (x | (x << 4)) & 0x030C30C3
    return (x | (x << 2)) & 0x09249249


def morton_tree(points: Tensor, depth: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    """Karras' linear octree: Morton codes, sorted; common prefixes of neighbours, and cells taken at every level."""
    cell = (points * (1 << depth)).long().clamp(0, (1 << depth) - 1)
    code = (spread(cell[:, 0]) << 2) | (spread(cell[:, 1]) << 1) | spread(cell[:, 2])
    code, order = torch.sort(code, stable=True)
    differing = code[1:] ^ code[:-1]
    filled = differing
    for shift in (1, 2, 4, 8, 16):
        filled = filled | (filled >> shift)
    prefix = 30 - popcount(filled)
    levels = torch.arange(1, depth + 1, device=points.device)
    cells = 1 + (prefix[:, None] < 3 * levels).sum(0)
    return prefix, cells, points[order]


def morton(place: Place) -> Made:
    n = place.size(20_000, 1 << 20)
    return morton_tree, ((place.randint(4096, n, 3) + 0.5) / 4096,)


def multiply_high_low(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """The product of 32-bit numbers in halves of 16 bits, since int64 holds no more."""
    a_low, a_high = a & 0xFFFF, a >> 16
    b_low, b_high = b & 0xFFFF, b >> 16
    low = a_low * b_low
    middle = a_high * b_low + (low >> 16)
    other = a_low * b_high + (middle & 0xFFFF)
    return a_high * b_high + (middle >> 16) + (other >> 16), ((other & 0xFFFF) << 16) | (low & 0xFFFF)


def philox_normals(counter: Tensor, key: int = 0x1BD11BDA) -> tuple[Tensor, Tensor, Tensor]:
    """Philox4x32-10 written out, then Box and Muller: normal numbers that depend on a counter only."""
    c0, c1 = counter & MASK32, counter >> 32
    c2, c3 = torch.zeros_like(counter), torch.zeros_like(counter)
    k0, k1 = key, 0xA4093822
    for _ in range(10):
        high0, low0 = multiply_high_low(0xD2511F53, c0)
        high1, low1 = multiply_high_low(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    scale = 2.0**-32
    kind = torch.get_default_dtype()
    u, v = ((c0 >> 9).to(kind) + 0.5) * (scale * 512), ((c1 >> 9).to(kind) + 0.5) * (scale * 512)
    radius = torch.sqrt(-2 * torch.log(u))
    return radius * torch.cos(2 * math.pi * v), radius * torch.sin(2 * math.pi * v), c2 ^ c3


def philox(place: Place) -> Made:
    n = place.size(50_000, 1 << 20)
    return philox_normals, (torch.arange(n, device=place.device) + (7 << 32),)


def crc32(message: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """CRC-32 by table, byte after byte, over a batch of packets; which of them pass their own check."""
    crc = torch.full((message.size(0),), MASK32, dtype=torch.int64, device=message.device)
    for byte in message[:, :-4].unbind(1):
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc = crc ^ MASK32
    shift = torch.tensor([0, 8, 16, 24], device=message.device)
    sent = (message[:, -4:].long() << shift).sum(-1)
    return crc, crc == sent


def packets(place: Place) -> Made:
    table = torch.arange(256)
    for _ in range(8):
        table = torch.where(table % 2 == 1, (table >> 1) ^ 0xEDB88320, table >> 1)
    message = place.randint(256, place.size(5000, 262_144), 68).to(torch.uint8)
    return crc32, (message, table.to(place.device))


ROWS: tuple[Row, ...] = (
    Row("program/hyperplane_hashing", hyperplanes),
    Row("program/min_hash", documents),
    Row("program/bloom_filter", bloom),
    Row("program/count_sketch", sketch),
    Row("program/morton_octree", morton),
    Row("program/philox_normals", philox),
    Row("program/crc32_packets", packets),
)
