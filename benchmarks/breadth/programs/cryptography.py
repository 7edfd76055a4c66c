"""Digests, ciphers, rings, shares, and what compressors do before and after their models."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row

MASK = 0xFFFFFFFF


def primes(n: int) -> list[int]:
    found: list[int] = []
    k = 2
    while len(found) < n:
        if all(k % p for p in found):
            found.append(k)
        k += 1
    return found


def rotate_right(x: Tensor, k: int) -> Tensor:
    return ((x >> k) | (x << (32 - k))) & MASK


def digests(message: Tensor, constants: Tensor, initial: Tensor) -> Tensor:
    """SHA-256's compression of one block a row: the schedule of words, then its rounds; words kept in int64."""
    w = list(message.unbind(1))
    for t in range(16, constants.numel()):
        s0 = rotate_right(w[t - 15], 7) ^ rotate_right(w[t - 15], 18) ^ (w[t - 15] >> 3)
        s1 = rotate_right(w[t - 2], 17) ^ rotate_right(w[t - 2], 19) ^ (w[t - 2] >> 10)
        w.append((w[t - 16] + s0 + w[t - 7] + s1) & MASK)
    a, b, c, d, e, f, g, h = (initial[i].expand(len(message)) for i in range(8))
    for t in range(constants.numel()):
        sigma = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)
        one = (h + sigma + ((e & f) ^ (~e & g)) + constants[t] + w[t]) & MASK
        two = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        h, g, f, e, d, c, b, a = g, f, e, (d + one) & MASK, c, b, a, (one + two) & MASK
    return (torch.stack([a, b, c, d, e, f, g, h], dim=1) + initial) & MASK


def digest_blocks(place: Place) -> Made:
    rounds = place.size(24, 64)
    k = [int((p ** (1 / 3) % 1) * 2**32) for p in primes(rounds)]
    h = [int((p**0.5 % 1) * 2**32) for p in primes(8)]
    message = place.randint(2**32, place.size(4000, 1_000_000), 16)
    return digests, (message, torch.tensor(k, device=place.device), torch.tensor(h, device=place.device))


def substitution_box() -> Tensor:
    """Rijndael's, from inverses in GF(256)."""
    box, p, q = [0] * 256, 1, 1
    while True:
        p ^= ((p << 1) ^ (0x1B if p & 0x80 else 0)) & 0xFF
        for k in (1, 2, 4):
            q = (q ^ (q << k)) & 0xFF
        q ^= 0x09 if q & 0x80 else 0
        turned = [((q << k) | (q >> (8 - k))) & 0xFF for k in range(5)]
        box[p] = turned[0] ^ turned[1] ^ turned[2] ^ turned[3] ^ turned[4] ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    return torch.tensor(box)


def counter_mode(counters: Tensor, keys: Tensor, plain: Tensor, box: Tensor, shift: Tensor) -> Tensor:
    """AES on blocks of 16 bytes: bytes substituted by a table, rows shifted, columns mixed in GF(256)."""

    def doubled(x: Tensor) -> Tensor:
        return ((x << 1) ^ torch.where(x >= 128, 0x1B, 0)) & 0xFF

    state = counters ^ keys[0]
    last = len(keys) - 1
    for r in range(1, last + 1):
        state = box[state][:, shift]
        if r < last:
            s = state.view(-1, 4, 4)
            total = s[..., 0] ^ s[..., 1] ^ s[..., 2] ^ s[..., 3]
            state = (s ^ total[..., None] ^ doubled(s ^ s.roll(-1, dims=-1))).view(-1, 16)
        state = state ^ keys[r]
    return state ^ plain


def block_cipher(place: Place) -> Made:
    n = place.size(4000, 1_000_000)
    shift = torch.tensor([(i + 4 * (i % 4)) % 16 for i in range(16)], device=place.device)
    return counter_mode, (
        place.randint(256, n, 16),
        place.randint(256, 11, 16),
        place.randint(256, n, 16),
        substitution_box().to(place.device),
        shift,
    )


OFFSETS = [0, 36, 3, 41, 18, 1, 44, 10, 45, 2, 62, 6, 43, 15, 61, 28, 55, 25, 21, 56, 27, 20, 39, 8, 14]


def sponge(state: Tensor, blocks: Tensor, constants: Tensor, offsets: Tensor) -> Tensor:
    """Keccak: lanes of 64 bits in a 5 x 5 array; parities of columns, turns, a permutation of places, chi, iota."""

    def turned(x: Tensor, k: Tensor | int) -> Tensor:
        k = torch.as_tensor(k, device=x.device)
        right = (x >> ((64 - k) % 64)) & ((torch.ones_like(k) << k) - 1)
        return torch.where(k == 0, x, (x << k) | right)

    x, y = torch.meshgrid(torch.arange(5, device=state.device), torch.arange(5, device=state.device), indexing="ij")
    source = ((x + 3 * y) % 5) * 5 + x
    for block in blocks.unbind(1):
        state = state ^ F.pad(block, (0, 25 - block.size(1))).view(-1, 5, 5)
        for constant in constants:
            c = state[:, :, 0] ^ state[:, :, 1] ^ state[:, :, 2] ^ state[:, :, 3] ^ state[:, :, 4]
            state = state ^ (c.roll(1, dims=1) ^ turned(c.roll(-1, dims=1), 1))[..., None]
            state = turned(state, offsets).flatten(1)[:, source.flatten()].view(-1, 5, 5)
            state = state ^ (~state.roll(-1, dims=1) & state.roll(-2, dims=1))
            state[:, 0, 0] ^= constant
    return state[:, :4, 0]


def sponges(place: Place) -> Made:
    n, rounds = place.size(500, 200_000), place.size(4, 8)
    words = torch.randint(-(2**62), 2**62, (n, 2, 17)).to(place.device)
    constants = torch.randint(-(2**62), 2**62, (rounds,)).to(place.device)
    offsets = torch.tensor(OFFSETS, device=place.device).view(5, 5)
    return sponge, (torch.zeros(n, 5, 5, dtype=torch.int64, device=place.device), words, constants, offsets)


def ring_products(a: Tensor, b: Tensor, forward: list[Tensor], backward: list[Tensor], q: int, scale: int) -> Tensor:
    """Products modulo x^n + 1 and q by number-theoretic transforms, butterflies in levels."""

    def transform(x: Tensor) -> Tensor:
        n = x.size(-1)
        for level, z in enumerate(forward):
            half = n >> (level + 1)
            pair = x.view(-1, 1 << level, 2, half)
            t = pair[:, :, 1] * z[:, None] % q
            x = torch.stack([(pair[:, :, 0] + t) % q, (pair[:, :, 0] - t) % q], dim=2).view(-1, n)
        return x

    x = transform(a) * transform(b) % q
    n = x.size(-1)
    for level in reversed(range(len(backward))):
        half = n >> (level + 1)
        pair = x.view(-1, 1 << level, 2, half)
        low, high = pair[:, :, 0], pair[:, :, 1]
        x = torch.stack([(low + high) % q, (low - high) * backward[level][:, None] % q], dim=2).view(-1, n)
    return x * scale % q


def lattice_rings(place: Place) -> Made:
    q, bits = 12289, place.size(6, 10)
    n = 1 << bits
    root = pow(11, (q - 1) // (2 * n), q)
    forward, backward = [], []
    for level in range(bits):
        powers = [int(f"{i:b}".zfill(bits)[::-1], 2) for i in range(1 << level, 2 << level)]
        values = [pow(root, p, q) for p in powers]
        forward.append(torch.tensor(values, device=place.device))
        backward.append(torch.tensor([pow(v, q - 2, q) for v in values], device=place.device))
    polynomials = place.size(200, 20_000)
    arguments = (place.randint(q, polynomials, n), place.randint(q, polynomials, n), forward, backward, q)
    return ring_products, (*arguments, pow(n, q - 2, q))


def shares(secret: Tensor, coefficients: Tensor, points: Tensor, chosen: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Shamir, 1979: polynomials by Horner's rule, and secrets from a quorum by Lagrange's weights modulo a prime."""
    share = torch.zeros_like(secret)[:, None] + torch.zeros_like(points)
    for c in (*coefficients.unbind(1), secret):
        share = (share * points + c[:, None]) % p
    x = points[chosen]
    y = share.gather(1, chosen)
    quorum = x.size(1)
    numerator, denominator = torch.ones_like(x), torch.ones_like(x)
    for j in range(quorum):
        other = torch.arange(quorum, device=x.device) != j
        numerator = torch.where(other, numerator * x[:, j : j + 1] % p, numerator)
        denominator = torch.where(other, denominator * (x[:, j : j + 1] - x) % p, denominator)
    inverse, base, exponent = torch.ones_like(x), denominator, p - 2
    while exponent:
        if exponent & 1:
            inverse = inverse * base % p
        base = base * base % p
        exponent >>= 1
    return share, (y * numerator % p * inverse % p).sum(1) % p


def secret_shares(place: Place) -> Made:
    p, n, quorum, parties = 2**31 - 1, place.size(2000, 400_000), 4, 9
    chosen = torch.rand(n, parties).argsort(1)[:, :quorum].to(place.device)
    return shares, (
        place.randint(p, n),
        place.randint(p, n, quorum - 1),
        1 + torch.arange(parties, device=place.device),
        chosen,
        p,
    )


def mixed(a: Tensor, b: Tensor) -> Tensor:
    """A small hash of two words of 32 bits (Murmur's finaliser)."""
    h = (a * 0x9E3779B1 ^ b.roll(1, dims=-1) * 0x85EBCA6B) & MASK
    h = (h ^ (h >> 16)) * 0x45D9F3B & MASK
    return h ^ (h >> 15)


def merkle(leaves: Tensor, asked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A tree of digests, the proofs of some leaves, and the roots those proofs lead to."""
    levels = [leaves]
    while levels[-1].size(0) > 1:
        pairs = levels[-1].view(-1, 2, leaves.size(1))
        levels.append(mixed(pairs[:, 0], pairs[:, 1]))
    position, node, proof = asked, leaves[asked], []
    for level in levels[:-1]:
        sibling = level[position ^ 1]
        right = (position & 1).bool()[:, None]
        node = mixed(torch.where(right, sibling, node), torch.where(right, node, sibling))
        proof.append(sibling)
        position = position >> 1
    return levels[-1], torch.stack(proof, dim=1), (node == levels[-1]).all(1)


def merkle_proofs(place: Place) -> Made:
    n = 1 << place.size(11, 20)
    return merkle, (place.randint(2**32, n, 8), place.randint(n, place.size(500, 200_000)))


def recent_ranks(symbols: Tensor, alphabet: int) -> tuple[Tensor, Tensor]:
    """Move to front without a list: a symbol's rank is how many others came since it last did; counts of ranks."""
    b, n = symbols.shape
    steps = torch.arange(1, n + 1, device=symbols.device)
    seen = torch.zeros(b, n, alphabet, dtype=torch.int64, device=symbols.device)
    seen.scatter_(2, symbols[..., None], steps[:, None].expand(b, -1, -1))
    last = seen.cummax(dim=1).values
    before = torch.cat([torch.zeros_like(last[:, :1]), last[:, :-1]], dim=1)
    before = torch.where(before == 0, -torch.arange(alphabet, device=symbols.device), before)
    own = before.gather(2, symbols[..., None])
    rank = (before > own).sum(-1)
    return rank, F.one_hot(rank, alphabet).sum(1)


def front_moves(place: Place) -> Made:
    b, n, k = place.size(4, 256), place.size(200, 2048), place.size(32, 64)
    return recent_ranks, ((place.rand(b, n).pow(3) * k).long(), k)


def match_lengths(text: Tensor, window: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """LZ77 by every distance at once: runs of equal bytes, the longest and nearest match, what greedy parsing takes."""
    n = text.numel()
    lengths = []
    for d in range(1, window + 1):
        equal = F.pad((text[d:] == text[:-d]).long(), (d, 0))
        index = torch.arange(n, device=text.device)
        stop = torch.where(equal == 0, index, n).flip(0).cummin(0).values.flip(0)
        lengths.append((stop - index).clamp(max=longest))
    best, distance = torch.stack(lengths).max(0)
    step = torch.where(best >= 3, best, 1)
    target = (torch.arange(n, device=text.device) + step).clamp(max=n)
    reached = torch.zeros(n + 1, dtype=torch.bool, device=text.device)
    reached[0] = True
    jump = torch.cat([target, torch.full((1,), n, device=text.device)])
    for _ in range(n.bit_length()):
        reached[jump[reached.nonzero().squeeze(1)]] = True
        jump = jump[jump]
    return best, torch.where(best >= 3, distance + 1, 0), reached[:n]


def dictionary_matches(place: Place) -> Made:
    n = place.size(4000, 1_000_000)
    phrase = place.randint(12, 40)
    text = torch.where(place.rand(n) < 0.15, place.randint(12, n), phrase[torch.arange(n, device=place.device) % 40])
    return match_lengths, (text, place.size(24, 64), 32)


def entropy_states(words: Tensor, frequency: Tensor, start: Tensor, state: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Interleaved rANS (Duda, 2013; Giesen, 2014): many states decode at once, refilled from one stream by a count."""
    bits = 10
    slots = torch.repeat_interleave(torch.arange(frequency.numel(), device=words.device), frequency)
    at = torch.zeros((), dtype=torch.int64, device=words.device)
    symbols = []
    for _ in range(steps):
        slot = state & ((1 << bits) - 1)
        symbol = slots[slot]
        state = frequency[symbol] * (state >> bits) + slot - start[symbol]
        need = state < (1 << 16)
        source = at + need.cumsum(0) - 1
        fresh = words[source.clamp(0, words.numel() - 1)]
        state = torch.where(need, (state << 16) | fresh, state)
        at = at + need.sum()
        symbols.append(symbol)
    return torch.stack(symbols), at


def interleaved_states(place: Place) -> Made:
    lanes, steps, k = place.size(1000, 200_000), place.size(16, 32), 64
    share = torch.softmax(2 * torch.randn(k), 0)
    frequency = 1 + (share * (1024 - k)).long()
    frequency[0] += 1024 - frequency.sum()
    start = frequency.cumsum(0) - frequency
    state = (1 << 16) + place.randint(1 << 20, lanes)
    words = place.randint(1 << 16, lanes * steps)
    return entropy_states, (words, frequency.to(place.device), start.to(place.device), state, steps)


def residual_bits(signal: Tensor, orders: int) -> tuple[Tensor, Tensor, Tensor]:
    """FLAC's fixed predictors: differences of up to four orders, the best Rice parameter of each, bits of a block."""
    residual, bits, parameters = signal, [], []
    k = torch.arange(15, device=signal.device)
    for order in range(orders):
        if order:
            residual = torch.diff(residual, dim=-1, prepend=residual[:, :1])
        folded = torch.where(residual >= 0, 2 * residual, -2 * residual - 1)
        cost = ((folded[..., None] >> k) + 1 + k).sum(1)
        best, parameter = cost.min(-1)
        bits.append(best)
        parameters.append(parameter)
    table = torch.stack(bits, dim=1)
    total, order = table.min(1)
    return total, order, torch.stack(parameters, dim=1).gather(1, order[:, None]).squeeze(1)


def lossless_audio(place: Place) -> Made:
    blocks, n = place.size(16, 8192), place.size(500, 1024)
    t = torch.arange(n, device=place.device)
    wave = 8000 * torch.sin(0.02 * t * (1 + place.rand(blocks, 1))) + 40 * place.randn(blocks, n)
    return residual_bits, (wave.long(), 5)


ROWS: tuple[Row, ...] = (
    Row("program/message_digests", digest_blocks),
    Row("program/block_cipher_counters", block_cipher),
    Row("program/permutation_sponge", sponges),
    Row("program/lattice_ring_products", lattice_rings),
    Row("program/secret_shares", secret_shares),
    Row("program/merkle_proofs", merkle_proofs),
    Row("program/move_to_front_ranks", front_moves),
    Row("program/dictionary_match_lengths", dictionary_matches),
    Row("program/interleaved_entropy_states", interleaved_states),
    Row("program/rice_coded_residuals", lossless_audio),
)
