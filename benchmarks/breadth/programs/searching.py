"""Search, tables and sequences: postings, late interaction, joins, sessions, warping, alignment, prices of moves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def okapi(terms: Tensor, lengths: Tensor, queries: Tensor, vocabulary: int, k: int = 10) -> tuple[Tensor, Tensor]:
    """Robertson's BM25: document frequencies by scatters, saturated counts, the best documents' scores."""
    documents = terms.size(0)
    valid = torch.arange(terms.size(1), device=terms.device) < lengths[:, None]
    seen = torch.zeros(documents, vocabulary, dtype=torch.int32, device=terms.device)
    seen.scatter_add_(1, terms, valid.to(torch.int32))
    frequency = (seen > 0).sum(0)
    idf = torch.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    norm = 0.25 + 0.75 * lengths / (lengths.sum() / documents)
    counts = seen[:, queries.flatten()].to(idf.dtype)
    weight = idf[queries.flatten()] * counts * 2.2 / (counts + 1.2 * norm[:, None])
    score = weight.unflatten(1, queries.shape).sum(2).T
    return score.topk(k, 1).values, idf


def postings(place: Place) -> Made:
    documents, length, vocabulary = place.size(1000, 16_384), place.size(80, 200), place.size(500, 4096)
    terms = (place.rand(documents, length) ** 3 * vocabulary * 0.999).long()
    lengths = 10 + place.randint(length - 10, documents)
    return okapi, (terms, lengths, place.randint(vocabulary, place.size(8, 64), 6), vocabulary)


def late_interaction(queries: Tensor, documents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Khattab and Zaharia, 2020: best-matching tokens summed, all pairs in a batch as negatives, and margins."""
    q, d = F.normalize(queries, dim=-1), F.normalize(documents, dim=-1)
    match = torch.einsum("aqd,btd->abqt", q, d).masked_fill(~mask[None, :, None], -1.0)
    score = match.amax(-1).sum(-1)
    target = torch.arange(score.size(0), device=score.device)
    own = score.diagonal()
    return F.cross_entropy(score, target), F.softplus(score - own[:, None] + 0.2).mean()


def token_matching(place: Place) -> Made:
    b, q, t, d = place.size(12, 96), place.size(12, 32), place.size(40, 160), place.size(32, 128)
    mask = torch.arange(t) < (10 + torch.randint(t - 10, (b, 1)))
    return late_interaction, (
        place.randn(b, q, d).requires_grad_(),
        place.randn(b, t, d).requires_grad_(),
        mask.to(place.device),
    )


def as_of_join(
    trades: Tensor, trade_key: Tensor, quotes: Tensor, quote_key: Tensor, price: Tensor
) -> tuple[Tensor, ...]:
    """Each trade gets its symbol's latest quote: a composite key, a binary search, averages."""
    span = 1 << 32
    order = torch.argsort(quote_key * span + quotes, stable=True)
    ordered = (quote_key * span + quotes)[order]
    slot = torch.searchsorted(ordered, trade_key * span + trades, right=True) - 1
    at = order[slot.clamp(min=0)]
    found = (slot >= 0) & (quote_key[at] == trade_key)
    value = torch.where(found, price[at], 0.0)
    age = torch.where(found, trades - quotes[at], -1)
    symbols = 64
    total = torch.zeros(symbols, dtype=price.dtype, device=price.device).index_add(0, trade_key, value)
    count = torch.zeros(symbols, dtype=torch.int64, device=price.device).index_add(0, trade_key, found.long())
    return value, age, total / count.clamp(min=1).to(price.dtype)


def quotes(place: Place) -> Made:
    n, m, span = place.size(8000, 2_000_000), place.size(12_000, 3_000_000), 1 << 24
    return as_of_join, (
        place.randint(span, n),
        place.randint(64, n),
        place.randint(span, m),
        place.randint(64, m),
        place.rand(m),
    )


def sessions(user: Tensor, time: Tensor, value: Tensor, gap: int = 1800) -> tuple[Tensor, ...]:
    """Sessions of events: sorted by user and time, cut at gaps, numbered by sums; lengths, totals, ranks."""
    order = torch.argsort(user * (1 << 32) + time, stable=True)
    u, t, v = user[order], time[order], value[order]
    fresh = F.pad((u[1:] != u[:-1]) | (t[1:] - t[:-1] > gap), (1, 0), value=True)
    number = fresh.cumsum(0) - 1
    n = len(u)
    size = torch.zeros(n, dtype=torch.int64, device=u.device).index_add(0, number, torch.ones_like(number))
    total = torch.zeros(n, dtype=v.dtype, device=u.device).index_add(0, number, v)
    start = torch.zeros_like(t).scatter_reduce(0, number, t, "amin", include_self=False)
    end = torch.zeros_like(t).scatter_reduce(0, number, t, "amax", include_self=False)
    rank = torch.arange(n, device=u.device) - torch.where(fresh, torch.arange(n, device=u.device), 0).cummax(0).values
    return number, rank, v / total[number].clamp(min=1e-6), (end - start)[number], size


def events(place: Place) -> Made:
    n, users = place.size(20_000, 2_000_000), place.size(300, 30_000)
    return sessions, (place.randint(users, n), place.randint(400_000, n), 0.1 + place.rand(n))


def warped_barycentre(series: Tensor, centre: Tensor, gamma: float = 0.5) -> tuple[Tensor, Tensor]:
    """Cuturi and Blondel, 2017, by anti-diagonals: soft warping distances of many series to a learnt average."""
    b, n = series.shape
    m = centre.size(0)
    cost = (series[:, :, None] - centre) ** 2
    skewed = F.pad(cost, (0, n), value=1e3).flatten(1)[:, : n * (m + n - 1)].view(b, n, -1)
    before = torch.full((b, n), 1e3, dtype=series.dtype, device=series.device)
    now = before
    for k in range(n + m - 1):
        above = F.pad(now[:, :-1], (1, 0), value=1e3)
        corner = F.pad(before[:, :-1], (1, 0), value=0.0 if k == 0 else 1e3)
        softest = -gamma * torch.logsumexp(-torch.stack([now, above, corner]) / gamma, 0)
        before, now = now, (skewed[:, :, k] + softest).clamp(max=1e3)
    rough = centre.diff(n=2).square().mean()
    return now[:, -1] / (n + m), rough


def warping(place: Place) -> Made:
    b, n = place.size(64, 16_384), 26
    return warped_barycentre, (place.randn(b, n).cumsum(1) / 4, place.randn(n).requires_grad_())


def affine_alignment(a: Tensor, b: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Gotoh, 1982: local alignment with affine gaps along anti-diagonals, many pairs at once, in integers."""
    pairs, n = a.shape
    m = b.size(1)
    score = matrix[a[:, :, None], b[:, None]]
    skewed = F.pad(score, (0, n), value=-99).flatten(1)[:, : n * (m + n - 1)].view(pairs, n, -1)
    zero = torch.zeros(pairs, n, dtype=matrix.dtype, device=a.device)
    h1, h2, e, f, best = zero, zero, zero - 99, zero - 99, zero
    for k in range(n + m - 1):
        e = torch.maximum(h1 - 11, e - 1)
        f = torch.maximum(F.pad(h1[:, :-1], (1, 0)) - 11, F.pad(f[:, :-1], (1, 0), value=-99) - 1)
        diagonal = F.pad(h2[:, :-1], (1, 0)) + skewed[:, :, k]
        h2, h1 = h1, torch.stack([diagonal, e, f]).amax(0).clamp(min=0)
        best = torch.maximum(best, h1)
    return best.amax(1), best.argmax(1)


def alignments(place: Place) -> Made:
    pairs, n = place.size(128, 32_768), 28
    matrix = torch.randint(-4, 2, (20, 20))
    matrix = (torch.triu(matrix) + torch.triu(matrix, 1).T + 6 * torch.eye(20, dtype=torch.int64)).to(place.device)
    return affine_alignment, (place.randint(20, pairs, n), place.randint(20, pairs, n), matrix)


def tree_search(
    prior: Tensor, reward: Tensor, successor: Tensor, simulations: int = 6, depth: int = 3
) -> tuple[Tensor, Tensor]:
    """Silver et al., 2017, without pointers: visits and values in tables, bounds walked down, returns up again."""
    b = prior.size(0)
    visits, value = torch.zeros_like(prior), torch.zeros_like(prior)
    row = torch.arange(b, device=prior.device)
    for _ in range(simulations):
        state = torch.zeros(b, dtype=torch.int64, device=prior.device)
        path = []
        for _ in range(depth):
            n = visits[row, state]
            bound = value[row, state] / (n + 1) + 1.25 * prior[row, state] * (n.sum(1, keepdim=True) + 1).sqrt() / (
                1 + n
            )
            action = bound.argmax(1)
            path.append((state, action))
            state = successor[row, state, action]
        gain = torch.zeros_like(prior[:, 0, 0])
        for state, action in reversed(path):
            gain = reward[row, state, action] + 0.9 * gain
            visits = visits.index_put((row, state, action), torch.ones_like(gain), accumulate=True)
            value = value.index_put((row, state, action), gain, accumulate=True)
    return visits[:, 0] / simulations, value.sum(2) / (visits.sum(2) + 1)


def searches(place: Place) -> Made:
    b, states, actions = place.size(256, 8192), place.size(32, 64), 8
    return tree_search, (
        place.randn(b, states, actions).softmax(-1),
        place.randint(4096, b, states, actions) / 4096.0,
        place.randint(states, b, states, actions),
    )


def distributional_agent(q: Tensor, target: Tensor, priority: Tensor, draw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Schaul et al., 2016, with quantiles: replay by cumulated priorities, weights, Huber's quantile loss."""
    cumulated = priority.cumsum(0)
    index = torch.searchsorted(cumulated, draw).clamp(max=len(priority) - 1)
    chance = priority[index] / cumulated[-1]
    weight = (len(priority) * chance) ** -0.5
    weight = weight / weight.amax()
    quantiles = q.size(1)
    tau = (torch.arange(quantiles, device=q.device, dtype=q.dtype) + 0.5) / quantiles
    gap = target[index][:, None] - q[index][:, :, None]
    huber = torch.where(gap.abs() < 1, 0.5 * gap**2, gap.abs() - 0.5)
    loss = ((tau[:, None] - (gap.detach() < 0).to(q.dtype)).abs() * huber).mean(2).sum(1)
    renewed = priority.index_put((index,), loss.detach().clamp(max=10))
    return (weight * loss).mean(), renewed.sum(), loss.detach()


def replay(place: Place) -> Made:
    memory, batch, quantiles = place.size(4000, 200_000), place.size(128, 16_384), 32
    priority = place.randint(15, memory) / 16.0 + 1 / 16
    draw = (place.randint(8 * memory, batch) + 0.5) / 16
    return distributional_agent, (
        place.randn(memory, quantiles).requires_grad_(),
        place.randn(memory, quantiles),
        priority,
        draw,
    )


ROWS: tuple[Row, ...] = (
    Row("program/okapi_bm25", postings),
    Row("program/late_interaction", token_matching, "training"),
    Row("program/as_of_join", quotes),
    Row("program/sessionisation", events),
    Row("program/soft_warped_barycentre", warping, "training"),
    Row("program/gotoh_affine_alignment", alignments),
    Row("program/tabular_tree_search", searches),
    Row("program/prioritised_quantile_replay", replay, "training"),
)
