"""Records and rules: ciphers, packed numbers, signatures, scans of columns, monitored series, quotes, board games."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row

MASK = 0xFFFFFFFF


def rotate_left(x: Tensor, k: int) -> Tensor:
    return ((x << k) | (x >> (32 - k))) & MASK


def chacha(key: Tensor, counter: Tensor, nonce: Tensor, message: Tensor) -> Tensor:
    """Bernstein's stream cipher, 20 rounds on 32-bit words kept in int64; blocks times 16 words."""
    n = counter.size(0)
    constant = key.new_tensor([0x61707865, 0x3320646E, 0x79622D32, 0x6B206574])
    words = [constant[i].expand(n) for i in range(4)] + [key[i].expand(n) for i in range(8)]
    words += [counter] + [nonce[i].expand(n) for i in range(3)]
    x = list(words)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        x[a] = (x[a] + x[b]) & MASK
        x[d] = rotate_left(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotate_left(x[b] ^ x[c], 12)
        x[a] = (x[a] + x[b]) & MASK
        x[d] = rotate_left(x[d] ^ x[a], 8)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotate_left(x[b] ^ x[c], 7)

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    stream = torch.stack([(a + b) & MASK for a, b in zip(x, words, strict=True)], dim=1)
    return message ^ stream


def ciphers(place: Place) -> Made:
    n = place.size(500, 100_000)
    counter = torch.arange(n, device=place.device)
    return chacha, (place.randint(2**32, 8), counter, place.randint(2**32, 3), place.randint(2**32, n, 16))


def variable_length(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LEB128 of zigzagged differences: bytes needed, offsets by a running sum, bytes scattered, read back."""
    delta = torch.diff(values, prepend=values.new_zeros(1))
    zigzag = (delta << 1) ^ (delta >> 63)
    size = 1 + sum((zigzag >= (1 << (7 * k))).long() for k in range(1, 6))
    end = size.cumsum(0)
    start = end - size
    out = torch.zeros(values.numel() * 6, dtype=torch.uint8, device=values.device)
    for k in range(6):
        byte = (zigzag >> (7 * k)) & 0x7F
        byte = torch.where(k < size - 1, byte | 0x80, byte).to(torch.uint8)
        at = torch.where(k < size, start + k, out.numel() - 1)
        out.scatter_(0, at, torch.where(k < size, byte, torch.zeros_like(byte)))
    decoded = torch.zeros_like(values)
    for k in range(6):
        byte = out[(start + k).clamp(max=out.numel() - 1)].long() & 0x7F
        decoded += torch.where(k < size, byte << (7 * k), 0)
    decoded = (decoded >> 1) ^ -(decoded & 1)
    return out, decoded.cumsum(0), end[-1:]


def varints(place: Place) -> Made:
    n = place.size(5000, 2_000_000)
    return variable_length, ((place.randn(n) * 2 ** (20 * place.rand(n))).long().cumsum(0),)


def xor_lengths(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gorilla's (Pelkonen et al., 2015): bits XORed with those before, zeros ahead and behind, bits needed."""
    bits = values.long() & MASK
    x = bits[:, 1:] ^ bits[:, :-1]
    filled = x
    for k in (1, 2, 4, 8, 16):
        filled = filled | (filled >> k)
    count = filled - ((filled >> 1) & 0x55555555)
    count = (count & 0x33333333) + ((count >> 2) & 0x33333333)
    count = (count + (count >> 4)) & 0x0F0F0F0F
    significant = ((count * 0x01010101) & MASK) >> 24
    lowest = x & -x
    behind = torch.where(x == 0, 32, torch.log2(lowest.clamp(min=1).double()).round().long())
    ahead = 32 - significant
    fits = (ahead[:, 1:] >= ahead[:, :-1]) & (behind[:, 1:] >= behind[:, :-1])
    size = torch.where(x == 0, 1, 2 + 5 + 6 + significant - behind)
    again = 2 + 32 - ahead[:, :-1] - behind[:, :-1]
    size[:, 1:] = torch.where(fits & (x[:, 1:] != 0) & (x[:, :-1] != 0), again, size[:, 1:])
    return size, size.sum(1), torch.bincount(ahead.flatten(), minlength=33)


def sensors(place: Place) -> Made:
    b, n = place.size(4, 512), place.size(1000, 8192)
    rounded = (20 + 0.3 * torch.randn(b, n).cumsum(1)).mul(10).round().div(10).to(place.device)
    return xor_lengths, (torch.where(place.rand(b, n) < 0.4, rounded[:, :1], rounded).view(torch.int32),)


def zone_map_scan(
    price: Tensor, quantity: Tensor, discount: Tensor, day: Tensor, low: int, high: int, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    """TPC-H's sixth query over blocks: minima and maxima skip, bitmaps select, sums by block and by month."""
    blocks = day.view(-1, block)
    first, last = blocks.amin(1), blocks.amax(1)
    touched = (last >= low) & (first < high)
    selected = (blocks >= low) & (blocks < high) & touched[:, None]
    d = discount.view(-1, block)
    selected = selected & (d >= 5) & (d <= 7) & (quantity.view(-1, block) < 24)
    revenue = torch.where(selected, price.view(-1, block) * d / 100, 0.0)
    weights = 1 << torch.arange(32, device=day.device)
    words = (selected.view(-1, 32).long() * weights).sum(1)
    month = ((day - low) // 30).clamp(0, 12)
    by_month = torch.zeros(13, dtype=price.dtype, device=day.device).scatter_add_(0, month, revenue.flatten())
    return revenue.sum(1), words, by_month


def warehouse(place: Place) -> Made:
    n, block = place.size(8192, 4_194_304), place.size(256, 4096)
    day = (torch.arange(n, device=place.device) * 2500 // n + place.randint(60, n)).long()
    return zone_map_scan, (
        1000 * place.rand(n),
        1 + place.randint(50, n),
        place.randint(11, n),
        day,
        730,
        1095,
        block,
    )


def hampel(x: Tensor, half: int, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Outliers of running medians replaced, then a Savitzky-Golay polynomial and its slope, and CUSUM's alarms."""
    window = F.pad(x[:, None], (half, half), mode="reflect")[:, 0].unfold(-1, 2 * half + 1, 1)
    median = window.median(-1).values
    spread = 1.4826 * (window - median[..., None]).abs().median(-1).values
    clean = torch.where((x - median).abs() > threshold * spread, median, x)
    position = torch.arange(-half, half + 1, device=x.device, dtype=x.dtype)
    vandermonde = torch.stack([position**k for k in range(4)], dim=1)
    kernel = torch.linalg.solve(vandermonde.T @ vandermonde, vandermonde.T)[:2]
    fitted = F.conv1d(F.pad(clean[:, None], (half, half), mode="replicate"), kernel[:, None])
    residual = (clean - fitted[:, 0]) / clean.std(1, keepdim=True)
    drift = (residual - 0.05).cumsum(1)
    upward = drift - torch.cummin(F.pad(drift, (1, 0)), dim=1).values[:, 1:]
    return fitted, upward, (upward > 4).sum(1)


def monitored(place: Place) -> Made:
    b, n = place.size(4, 128), place.size(500, 20_000)
    spikes = (place.rand(b, n) < 0.01) * 8 * place.randn(b, n)
    return hampel, (0.05 * place.randn(b, n).cumsum(1) + 0.3 * place.randn(b, n) + spikes, 7, 3.0)


def ordinal_entropy(x: Tensor, order: int, delay: int) -> tuple[Tensor, Tensor]:
    """Bandt and Pompe, 2002: windows' permutations as Lehmer codes, weighted counts, entropy, missing patterns."""
    n = x.size(1) - (order - 1) * delay
    windows = torch.stack([x[:, i * delay : i * delay + n] for i in range(order)], dim=-1)
    rank = (windows[..., :, None] > windows[..., None, :]) | (
        (windows[..., :, None] == windows[..., None, :])
        & (torch.arange(order, device=x.device)[:, None] > torch.arange(order, device=x.device))
    )
    later = torch.ones(order, order, device=x.device, dtype=torch.bool).triu(1)
    lehmer = (rank & later).sum(-1)
    factorial = x.new_tensor([math.factorial(order - 1 - i) for i in range(order)]).long()
    code = (lehmer * factorial).sum(-1)
    weight = windows.var(-1, unbiased=False)
    count = torch.zeros(x.size(0), math.factorial(order), dtype=x.dtype, device=x.device).scatter_add_(1, code, weight)
    p = count / count.sum(1, keepdim=True)
    return -torch.xlogy(p, p).sum(1) / math.log(math.factorial(order)), (count == 0).sum(1)


def ordinal_patterns(place: Place) -> Made:
    return ordinal_entropy, (place.randn(place.size(4, 256), place.size(1000, 20_000)).cumsum(1), 5, 2)


def fitted_smiles(raw: Tensor, strikes: Tensor, variance: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gatheral's SVI for many maturities: total variance, Durrleman's condition, crossing calendars, as one loss."""
    a, b, rho, m, sigma = raw.unbind(-1)
    b, rho, sigma = F.softplus(b)[:, None], torch.tanh(rho)[:, None], F.softplus(sigma)[:, None] + 1e-3
    k = strikes - m[:, None]
    root = torch.sqrt(k**2 + sigma**2)
    w = F.softplus(a)[:, None] + b * (rho * k + root)
    first = b * (rho + k / root)
    second = b * sigma**2 / root**3
    g = (1 - strikes * first / (2 * w)) ** 2 - first**2 / 4 * (1 / w + 0.25) + second / 2
    fit = (weight * (w - variance) ** 2).sum(1)
    butterfly = F.relu(-g).square().sum(1)
    calendar = F.relu(w[:-1] - w[1:]).square().sum(1)
    return fit.mean() + 10 * butterfly.mean() + 10 * calendar.mean(), g.amin(1)


def smiles(place: Place) -> Made:
    n, k = place.size(100, 20_000), place.size(21, 101)
    strikes = torch.linspace(-1, 1, k, device=place.device).expand(n, k)
    raw = torch.tensor([-3.0, -1.0, -0.4, 0.0, -1.0], device=place.device) + 0.2 * place.randn(n, 5)
    return fitted_smiles, (
        raw.requires_grad_(),
        strikes,
        0.04 + 0.1 * strikes**2 + 0.01 * place.rand(n, k),
        place.rand(n, k),
    )


def barrier_labels(high: Tensor, low: Tensor, close: Tensor, horizon: int) -> tuple[Tensor, Tensor, Tensor]:
    """López de Prado's: average true range sets profit and stop; which comes first, uniqueness of labels."""
    before = torch.cat([close[:, :1], close[:, :-1]], dim=1)
    true_range = torch.stack([high - low, (high - before).abs(), (low - before).abs()]).amax(0)
    average = F.avg_pool1d(F.pad(true_range[:, None], (13, 0), mode="replicate"), 14, stride=1)[:, 0]
    n = close.size(1) - horizon
    entry = close[:, :n, None]
    above, below = entry + 2 * average[:, :n, None], entry - 1.5 * average[:, :n, None]
    up = high[:, 1:].unfold(1, horizon, 1)[:, :n] >= above
    down = low[:, 1:].unfold(1, horizon, 1)[:, :n] <= below
    steps = torch.arange(horizon, device=close.device)
    first_up = torch.where(up, steps, horizon).amin(-1)
    first_down = torch.where(down, steps, horizon).amin(-1)
    held = torch.minimum(torch.minimum(first_up, first_down), torch.full_like(first_up, horizon - 1))
    label = torch.where(first_down <= first_up, -(first_down < horizon).long(), (first_up < horizon).long())
    leave = (torch.arange(n, device=close.device) + held + 1).clamp(max=close.size(1) - 1)
    outcome = close.gather(1, leave) / close[:, :n] - 1
    events = torch.zeros_like(close)
    events[:, :n] += 1
    events.scatter_add_(1, leave, -torch.ones_like(outcome))
    return label, outcome, 1 / events.cumsum(1).clamp(min=1)


def barriers(place: Place) -> Made:
    b, n, horizon = place.size(4, 200), place.size(300, 5000), place.size(10, 20)
    close = 100 * torch.exp(0.01 * place.randn(b, n).cumsum(1))
    high, low = close * (1 + 0.01 * place.rand(b, n)), close * (1 - 0.01 * place.rand(b, n))
    return barrier_labels, (high, low, close, horizon)


def slide(board: Tensor) -> tuple[Tensor, Tensor]:
    """2048's move to the left: zeros to the end by a stable sort, equal neighbours merged once, zeros out again."""
    order = (board == 0).to(torch.int8).sort(dim=-1, stable=True).indices
    row = board.gather(-1, order)
    cells = list(row.unbind(-1))
    score = torch.zeros_like(cells[0])
    for i in range(3):
        same = (cells[i] == cells[i + 1]) & (cells[i] > 0)
        cells[i] = torch.where(same, cells[i] + 1, cells[i])
        score = score + torch.where(same, 1 << cells[i], 0)
        rest = [torch.where(same, cells[j + 1], cells[j]) for j in range(i + 1, 3)]
        cells[i + 1 :] = [*rest, torch.where(same, 0, cells[3])]
    return torch.stack(cells, dim=-1), score.sum(-1)


def doubling_moves(board: Tensor, draw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All four moves of many boards, the greedy one taken, a new tile where the draw falls among empty cells."""
    boards, gains = [], []
    for turn in range(4):
        moved, gain = slide(torch.rot90(board, turn, dims=(1, 2)))
        boards.append(torch.rot90(moved, -turn, dims=(1, 2)))
        gains.append(gain)
    after, gain = torch.stack(boards), torch.stack(gains)
    legal = (after != board).flatten(2).any(-1)
    empty = (after == 0).flatten(2).sum(-1)
    value = torch.where(legal, gain + 8 * empty, -1)
    best = value.argmax(0)
    index = torch.arange(board.size(0), device=board.device)
    chosen = after[best, index].flatten(1)
    free = chosen == 0
    target = (draw * free.sum(1)).long()
    place = free & (free.cumsum(1) - 1 == target[:, None])
    chosen = torch.where(place, torch.where(draw > 0.9, 2, 1)[:, None], chosen)
    return chosen.view_as(board), gain[best, index], ~legal.any(0)


def doubling(place: Place) -> Made:
    n = place.size(500, 200_000)
    return doubling_moves, (place.randint(5, n, 4, 4), place.rand(n))


def guess_patterns(guesses: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Wordle: patterns of all guesses against all answers with repeated letters right, expected information of each."""
    g, a = guesses[:, None], answers[None]
    green = g == a
    left = torch.zeros(guesses.size(0), answers.size(0), 26, dtype=torch.int8, device=g.device)
    left.scatter_add_(2, a.expand(guesses.size(0), -1, -1), (~green).to(torch.int8))
    pattern = torch.zeros(left.shape[:2], dtype=torch.long, device=g.device)
    for i in range(5):
        letter = guesses[:, i, None, None].expand(-1, answers.size(0), 1)
        available = left.gather(2, letter).squeeze(2)
        yellow = ~green[..., i] & (available > 0)
        left.scatter_add_(2, letter, -yellow.to(torch.int8)[..., None])
        pattern = 3 * pattern + torch.where(green[..., i], 2, yellow.long())
    count = torch.zeros(guesses.size(0), 243, device=g.device).scatter_add_(
        1, pattern, torch.ones(pattern.shape, device=g.device)
    )
    p = count / answers.size(0)
    return pattern, -(p * torch.log2(p.clamp(min=1e-12))).sum(1)


def words(place: Place) -> Made:
    return guess_patterns, (place.randint(26, place.size(50, 1500), 5), place.randint(26, place.size(80, 2309), 5))


def poker_ranks(cards: Tensor) -> Tensor:
    """The best five of seven cards as one number: all 21 choices, counts of ranks, flushes, straights with low aces."""
    combos = cards.new_tensor(list(itertools.combinations(range(7), 5)))
    hands = cards[:, combos]
    rank, suit = hands // 4, hands % 4
    count = F.one_hot(rank, 13).sum(-2)
    flush = (suit == suit[..., :1]).all(-1)
    present = (count > 0).long()
    wheel = torch.cat([present[..., -1:], present], dim=-1)
    runs = wheel.unfold(-1, 5, 1).sum(-1) == 5
    top = torch.where(runs, torch.arange(10, device=cards.device), -1).amax(-1)
    straight = top >= 0
    key = (count * 16 + torch.arange(13, device=cards.device)) * (count > 0)
    ordered = key.sort(dim=-1, descending=True).values[..., :5]
    first, second = ordered[..., 0] // 16, ordered[..., 1] // 16
    kickers = torch.zeros_like(first)
    for i in range(5):
        kickers = kickers * 13 + ordered[..., i] % 16
    kind = torch.where(first == 2, torch.where(second == 2, 2, 1), 0)
    kind = torch.where(first == 3, torch.where(second == 2, 6, 3), kind)
    kind = torch.where(first == 4, 7, kind)
    kind = torch.where(straight, torch.where(flush, 8, 4), torch.where(flush & (kind < 5), 5, kind))
    kickers = torch.where(straight, top, kickers)
    return (kind * 13**5 + kickers).amax(1)


def showdowns(place: Place) -> Made:
    n = place.size(200, 10_000)
    return poker_ranks, (torch.rand(n, 52).topk(7, dim=1).indices.to(place.device),)


ROWS: tuple[Row, ...] = (
    Row("program/chacha_blocks", ciphers),
    Row("program/variable_length_integers", varints),
    Row("program/xored_sensor_lengths", sensors),
    Row("program/zone_map_scan", warehouse),
    Row("program/hampel_and_alarms", monitored),
    Row("program/ordinal_pattern_entropy", ordinal_patterns),
    Row("program/arbitrage_free_smiles", smiles, "training"),
    Row("program/triple_barrier_labels", barriers),
    Row("program/doubling_tile_moves", doubling),
    Row("program/word_guess_patterns", words),
    Row("program/seven_card_showdowns", showdowns),
)
