"""Engines of tables: windows, ranks, percentiles, duplicates, joins, packed columns, sketches, learnt estimates."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def window_functions(key: Tensor, time: Tensor, value: Tensor, groups: int, rows: int) -> tuple[Tensor, ...]:
    """SQL's OVER (PARTITION BY key ORDER BY time): row number, lag, lead, running and rolling sums, share."""
    n = len(key)
    order = torch.argsort(key * (n + 1) + time)
    k, v = key[order], value[order]
    count = torch.bincount(key, minlength=groups)
    start = (count.cumsum(0) - count)[k]
    position = torch.arange(n, device=key.device)
    number = position - start
    total = F.pad(v.double().cumsum(0), (1, 0))
    running = (total[1:] - total[start]).to(v.dtype)
    low = torch.maximum(start, position + 1 - rows)
    rolling = (total[1:] - total[low]).to(v.dtype) / (position + 1 - low)
    lag = torch.where(number > 0, v.roll(1), 0.0)
    lead = torch.where(number + 1 < count[k], v.roll(-1), 0.0)
    whole = torch.zeros(groups, dtype=v.dtype, device=v.device).index_add_(0, k, v)
    columns = torch.stack([running, rolling, lag, lead, v / whole[k].clamp(min=1e-6), v - lag], 1)
    out = torch.empty_like(columns)
    out[order] = columns
    return out, torch.empty_like(number).scatter_(0, order, number)


def windows_over(place: Place) -> Made:
    n, groups = place.size(40_000, 1_000_000), place.size(500, 20_000)
    time = torch.randperm(n).to(place.device)
    return window_functions, (place.randint(groups, n), time, place.randint(100, n).float() / 4, groups, 7)


def ranks_by_group(key: Tensor, score: Tensor, groups: int, tiles: int) -> tuple[Tensor, ...]:
    """RANK, DENSE_RANK, PERCENT_RANK and NTILE by group: two stable sorts, runs of equals by a running maximum."""
    n = len(key)
    first = score.argsort(descending=True, stable=True)
    order = first[key[first].argsort(stable=True)]
    k, s = key[order], score[order]
    position = torch.arange(n, device=key.device)
    fresh = torch.ones(n, dtype=torch.bool, device=key.device)
    fresh[1:] = k[1:] != k[:-1]
    start = torch.where(fresh, position, 0).cummax(0).values
    changed = fresh.clone()
    changed[1:] |= s[1:] != s[:-1]
    rank = torch.where(changed, position, 0).cummax(0).values - start
    runs = changed.cumsum(0)
    dense = runs - runs[start]
    size = torch.zeros(groups, dtype=torch.int64, device=key.device).scatter_add_(0, k, torch.ones_like(k))[k]
    percent = rank.to(score.dtype) / (size - 1).clamp(min=1)
    tile = (position - start) * tiles // size
    back = torch.empty_like(order)
    back[order] = position
    return rank[back], dense[back], tile[back], percent[back]


def ranks_of_rows(place: Place) -> Made:
    n, groups = place.size(30_000, 1_000_000), place.size(300, 10_000)
    return ranks_by_group, (place.randint(groups, n), place.randint(50, n).float(), groups, 10)


def grouped_percentiles(key: Tensor, value: Tensor, levels: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """PERCENTILE_CONT by group between sorted neighbours, the deviation from the median, outliers by its fences."""

    def percentiles(x: Tensor, at: Tensor) -> Tensor:
        first = x.argsort()
        x = x[first[key[first].argsort(stable=True)]]
        where = (count - 1).clamp(min=0)[:, None] * at
        low = where.floor()
        part = where - low
        index = (offset[:, None] + low.long()).clamp(max=len(x) - 1)
        after = torch.minimum(index + 1, (offset + count - 1).clamp(min=0)[:, None])
        return torch.lerp(x[index], x[after], part)

    count = torch.zeros(groups, dtype=torch.int64, device=key.device).index_add_(0, key, torch.ones_like(key))
    offset = count.cumsum(0) - count
    quantiles = percentiles(value, levels)
    middle = quantiles[:, len(levels) // 2]
    deviation = percentiles((value - middle[key]).abs(), levels.new_full((1,), 0.5))[:, 0]
    distance = (value - middle[key]) / (1.4826 * deviation + 0.01)[key]
    weight = (1 - (distance / 4).square()).clamp(min=0).square()
    top = torch.zeros_like(middle).index_add_(0, key, weight * value)
    robust = top / torch.zeros_like(middle).index_add_(0, key, weight).clamp(min=1e-6)
    return quantiles, deviation, robust


def percentiles(place: Place) -> Made:
    n, groups = place.size(20_000, 1_000_000), place.size(200, 5000)
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], device=place.device)
    return grouped_percentiles, (place.randint(groups, n), 3 + place.randn(n), levels, groups)


def best_of_groups(key: Tensor, score: Tensor, payload: Tensor, groups: int, keep: int) -> tuple[Tensor, ...]:
    """The best rows of each group as a table of fixed width, with sentinels, and the sum of all the others."""
    order = score.argsort(descending=True, stable=True)
    order = order[key[order].argsort(stable=True)]
    k = key[order]
    count = torch.bincount(k, minlength=groups)
    rank = torch.arange(len(k), device=k.device) - (count.cumsum(0) - count)[k]
    inside = rank < keep
    slot = torch.where(inside, k * keep + rank, groups * keep)
    best = score.new_full((groups * keep + 1,), -1.0).scatter_(0, slot, torch.where(inside, score[order], -1.0))
    row = torch.full((groups * keep + 1,), -1, dtype=torch.int64, device=k.device)
    row.index_put_((slot,), torch.where(inside, order, -1))
    best, row = best[:-1].view(groups, keep), row[:-1].view(groups, keep)
    found = row >= 0
    chosen = payload[row.clamp(min=0)] * found[..., None]
    weight = best.masked_fill(~found, float("-inf")).softmax(1).nan_to_num(0.0)
    rest = torch.zeros(groups, dtype=score.dtype, device=k.device)
    rest.index_add_(0, k, torch.where(inside, 0.0, score[order]))
    return row, best, torch.einsum("gk,gkd->gd", weight, chosen), rest


def top_rows(place: Place) -> Made:
    n, groups = place.size(20_000, 1_000_000), place.size(500, 20_000)
    return best_of_groups, (place.randint(groups, n), place.rand(n), place.randn(n, 16), groups, 5)


def latest_rows(key: Tensor, version: Tensor, value: Tensor, keys: int) -> tuple[Tensor, ...]:
    """A log of changes to a table: the newest version of each key wins, NaN means the last known; what is stale."""
    n = len(key)
    stamp = version * n + torch.arange(n, device=key.device)
    newest = torch.full((keys,), -1, dtype=torch.int64, device=key.device)
    newest = newest.scatter_reduce(0, key, stamp, "amax")
    alive = newest[key] == stamp
    table = value.new_zeros(keys, value.size(1))
    missing = value.isnan()
    for column in range(value.size(1)):
        known = torch.where(missing[:, column], -1, stamp)
        last = torch.full_like(newest, -1).scatter_reduce(0, key, known, "amax")
        wins = (last[key] == known) & (known >= 0)
        table[:, column].index_add_(0, key, torch.where(wins, value[:, column].nan_to_num(0.0), 0.0))
    changes = torch.zeros_like(newest).index_add_(0, key, torch.ones_like(key))
    age = torch.where(newest >= 0, version.max() - newest // n, -1)
    digest = (table.mul(1024).round().long() * torch.arange(1, value.size(1) + 1, device=key.device)).sum(1) % 65521
    return table, alive, changes, age, digest


def changes(place: Place) -> Made:
    n, keys = place.size(50_000, 2_000_000), place.size(8000, 300_000)
    value = place.randint(4096, n, 4).float() / 16
    value[place.rand(n, 4) < 0.3] = float("nan")
    return latest_rows, (place.randint(keys, n), place.randint(1000, n), value, keys)


def hash_join(build: Tensor, amount: Tensor, probe: Tensor, quantity: Tensor, bits: int) -> tuple[Tensor, ...]:
    """An inner join by open addressing: rounds in which the smallest row takes a slot, then the same walk to probe."""

    def slot(x: Tensor, step: int) -> Tensor:
        return (((x * 2654435761) & 0xFFFFFFFF) >> (32 - bits)) + step * (step + 1) // 2 & (size - 1)

    size, n = 1 << bits, len(build)
    row = torch.arange(n, device=build.device)
    table = torch.full((size,), n, dtype=torch.int64, device=build.device)
    waiting = torch.ones(n, dtype=torch.bool, device=build.device)
    for step in range(8):
        at = slot(build, step)
        bid = torch.where(waiting & (table[at] == n), row, n)
        taken = torch.full_like(table, n).scatter_reduce(0, at, bid, "amin")
        table = torch.where(table == n, taken, table)
        waiting &= table[at] != row
    match = torch.full_like(probe, -1)
    keys = F.pad(build, (0, 1), value=-1)
    for step in range(8):
        candidate = table[slot(probe, step)]
        match = torch.where((match < 0) & (keys[candidate] == probe), candidate, match)
    hit = match >= 0
    revenue = torch.where(hit, quantity * amount[match.clamp(min=0)], 0.0)
    by_row = torch.zeros_like(amount).index_add_(0, match.clamp(min=0), revenue)
    return match, revenue, by_row, torch.stack([hit.sum(), waiting.sum()])


def join(place: Place) -> Made:
    n, m, bits = place.size(8000, 200_000), place.size(30_000, 1_000_000), place.size(14, 19)
    build = torch.randperm(4 * n)[:n].to(place.device)
    amounts = place.randint(1000, n).float() / 8
    return hash_join, (build, amounts, place.randint(4 * n, m), 1 + place.randint(9, m).float(), bits)


def packed_deltas(values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parquet's delta encoding: differences less their minimum in miniblocks, packed to their bits, and back again."""
    first = values[:, :1]
    delta = (values[:, 1:] - values[:, :-1]).unflatten(1, (-1, 32))
    base = delta.amin(2, keepdim=True)
    rest = delta - base
    most = rest.amax(2)
    width = sum((most >> bit > 0).long() for bit in range(31))
    lane = torch.arange(32, device=values.device)
    start = lane * width[..., None]
    word, shift = start // 32, start % 32
    low, high = (rest << shift) & 0xFFFFFFFF, (rest << shift) >> 32
    packed = torch.zeros(*width.shape, 33, dtype=torch.int64, device=values.device)
    packed.scatter_add_(2, word, low)
    packed.scatter_add_(2, word + 1, high)
    pair = packed.gather(2, word) | (packed.gather(2, word + 1) << 32)
    mask = (torch.ones_like(width) << width) - 1
    back = ((pair >> shift) & mask[..., None]) + base
    decoded = torch.cat([first, first + back.flatten(1).cumsum(1)], 1)
    size = 8 * 5 + width.sum(1) * 32 + 8 * (width.size(1) + 4)
    return packed.to(torch.int32), width, size, (decoded == values).all(1)


def deltas(place: Place) -> Made:
    rows, n = place.size(100, 512), place.size(32 * 40, 32 * 128)
    steps = place.randint(1 << 12, rows, n + 1) >> place.randint(10, rows, 1)
    return packed_deltas, (1_600_000_000 + steps.cumsum(1),)


def distinct_registers(key: Tensor, item: Tensor, groups: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """HyperLogLog by group: hashed leading zeros into registers by maximum, harmonic means, small ones by empties."""
    m = 1 << bits
    x = (item * 0x9E3779B1) & 0xFFFFFFFF
    for shift, factor in ((15, 0x85EBCA77), (13, 0xC2B2AE3D)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    x = x ^ (x >> 16)
    register, rest = x & (m - 1), x >> bits
    smeared = rest
    for shift in (1, 2, 4, 8, 16):
        smeared = smeared | (smeared >> shift)
    ones = sum((smeared >> bit) & 1 for bit in range(32 - bits))
    rank = 33 - bits - ones
    table = torch.zeros(groups * m, dtype=torch.int64, device=key.device)
    table = table.scatter_reduce(0, key * m + register, rank, "amax").view(groups, m)
    alpha = 0.7213 / (1 + 1.079 / m)

    def estimate(registers: Tensor) -> Tensor:
        raw = alpha * m * m / torch.exp2(-registers.to(torch.get_default_dtype())).sum(-1)
        empty = (registers == 0).sum(-1)
        small = m * torch.log(m / empty.clamp(min=1).to(raw.dtype))
        return torch.where((raw < 2.5 * m) & (empty > 0), small, raw)

    alone = estimate(table)
    union = torch.maximum(table, table.roll(1, 0))
    both = alone + alone.roll(1, 0) - estimate(union)
    return table.to(torch.uint8), alone, both


def distinct(place: Place) -> Made:
    n, groups = place.size(60_000, 3_000_000), place.size(100, 2000)
    return distinct_registers, (place.randint(groups, n), place.randint(n, n), groups, 8)


class QueryEstimator(nn.Module):
    """Kipf et al., 2019 (MSCN): sets of tables, joins and predicates averaged under masks; logarithmic q-errors."""

    def __init__(self, tables: int, joins: int, columns: int, width: int) -> None:
        super().__init__()
        self.table, self.join = nn.Embedding(tables, width), nn.Embedding(joins, width)
        self.column, self.operator = nn.Embedding(columns, width), nn.Embedding(3, width)
        self.number = nn.Linear(1, width)
        self.sets = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU()) for _ in range(3))
        self.out = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(
        self, sets: tuple[Tensor, ...], operator: Tensor, number: Tensor, lengths: Tensor, rows: Tensor
    ) -> tuple:
        table, join, column = sets
        predicate = self.column(column) + self.operator(operator) + self.number(number[..., None])
        pooled = []
        for i, x in enumerate((self.table(table), self.join(join), predicate)):
            mask = torch.arange(x.size(1), device=x.device) < lengths[:, i : i + 1]
            h = self.sets[i](x) * mask[..., None]
            pooled.append(h.sum(1) / lengths[:, i : i + 1].clamp(min=1))
        estimate = 20 * torch.sigmoid(self.out(torch.cat(pooled, 1)).squeeze(1))
        error = (estimate - rows).abs()
        weight = torch.where(estimate < rows, 1.5, 1.0)
        return (weight * F.huber_loss(estimate, rows, reduction="none", delta=2.0)), error.detach().amax()


def query_estimates(place: Place) -> Made:
    b, width = place.size(256, 8192), place.size(48, 256)
    sets = (place.randint(12, b, 4), place.randint(20, b, 3), place.randint(60, b, 6))
    lengths = torch.stack([1 + place.randint(4, b), place.randint(4, b), place.randint(7, b)], 1)
    model = QueryEstimator(12, 20, 60, width).to(place.device)
    return model, (sets, place.randint(3, b, 6), place.rand(b, 6), lengths, 15 * place.rand(b))


class LearntIndex(nn.Module):
    """Kraska et al., 2018: a small network picks a leaf, the leaf's line says where a key lies; bounds by leaf."""

    def __init__(self, leaves: int, width: int) -> None:
        super().__init__()
        self.root = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, 1))
        self.slope = nn.Parameter(torch.ones(leaves))
        self.offset = nn.Parameter(torch.linspace(0, 1, leaves))

    def forward(self, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        leaves, n = len(self.slope), len(keys)
        rank = torch.linspace(0, 1, n, dtype=keys.dtype, device=keys.device)
        coarse = keys + 0.1 * self.root(keys[:, None]).squeeze(1)
        leaf = (keys * leaves).long().clamp(0, leaves - 1)
        near = (leaf[:, None] + torch.tensor([-1, 0, 1], device=keys.device)).clamp(0, leaves - 1)
        centre = (near + 0.5) / leaves
        blend = (-4 * (coarse[:, None] * leaves - near - 0.5).square()).softmax(1)
        lines = self.offset[near] + self.slope[near] * (keys[:, None] - centre)
        guess = (blend * lines).sum(1)
        off = guess - rank
        bound = torch.zeros_like(self.slope).scatter_reduce(0, leaf, off.detach().abs(), "amax")
        order = F.relu(guess[:-1] - guess[1:])
        return off.square() * n, order.mean() + 0.01 * (coarse - rank).square(), torch.log2(2 * n * bound + 2)


def learnt_index(place: Place) -> Made:
    keys = place.rand(place.size(16_000, 1_000_000)).square().sort().values
    return LearntIndex(place.size(128, 4096), 16).to(place.device), (keys,)


ROWS: tuple[Row, ...] = (
    Row("program/partition_windows", windows_over),
    Row("program/ranks_by_group", ranks_of_rows),
    Row("program/percentiles_by_group", percentiles),
    Row("program/best_rows_of_groups", top_rows),
    Row("program/latest_of_change_log", changes),
    Row("program/open_addressing_join", join),
    Row("program/packed_delta_columns", deltas),
    Row("program/distinct_count_registers", distinct),
    Row("program/query_cardinality_sets", query_estimates, "training"),
    Row("program/learnt_index_leaves", learnt_index, "training"),
)
