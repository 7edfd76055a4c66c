"""Dynamic programmes and combinatorial algorithms: paths, edits, sorting, matching, tours, trees of drafts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def viterbi(emission: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The best tag sequences with back pointers; padded steps point to themselves."""
    batch, time, tags = emission.shape
    score = emission[:, 0]
    identity = torch.arange(tags, device=emission.device).expand(batch, tags)
    pointers = []
    for t in range(1, time):
        best, came = (score[:, :, None] + transition).max(dim=1)
        alive = (t < lengths)[:, None]
        score = torch.where(alive, best + emission[:, t], score)
        pointers.append(torch.where(alive, came, identity))
    value, tag = score.max(dim=1)
    path = [tag]
    for came in reversed(pointers):
        tag = came.gather(1, tag[:, None]).squeeze(1)
        path.append(tag)
    path.reverse()
    tokens = torch.stack(path, dim=1)
    tokens = tokens.masked_fill(torch.arange(time, device=tokens.device) >= lengths[:, None], -1)
    return value, tokens


def tagging(place: Place) -> Made:
    batch, time, tags = place.size(32, 512), place.size(32, 96), place.size(24, 48)
    lengths = time // 2 + place.randint(time // 2, batch)
    return viterbi, (place.randn(batch, time, tags), place.randn(tags, tags), lengths)


def edit_distance(a: Tensor, b: Tensor, a_length: Tensor, b_length: Tensor) -> Tensor:
    """Levenshtein's, a row at a time; insertions along a row by a running minimum."""
    batch, m = b.shape
    offset = torch.arange(m + 1, device=a.device)
    row = offset.expand(batch, m + 1)
    result = row.gather(1, b_length[:, None]).squeeze(1)
    for i in range(a.size(1)):
        substitute = row[:, :-1] + (a[:, i, None] != b)
        delete = row[:, 1:] + 1
        start = torch.full_like(row[:, :1], i + 1)
        now = torch.cat([start, torch.minimum(substitute, delete)], dim=1)
        row = torch.cummin(now - offset, dim=1).values + offset
        result = torch.where(a_length == i + 1, row.gather(1, b_length[:, None]).squeeze(1), result)
    return result


def transcripts(place: Place) -> Made:
    batch, length = place.size(128, 8192), place.size(32, 64)
    a, b = place.randint(28, batch, length), place.randint(28, batch, length)
    b[:, ::2] = a[:, ::2]
    return edit_distance, (a, b, 1 + place.randint(length, batch), 1 + place.randint(length, batch))


def bitonic_sort(keys: Tensor, payload: Tensor) -> tuple[Tensor, Tensor]:
    """Batcher's network over rows of a power of two, values going along with their keys."""
    batch, n = keys.shape
    size = 2
    while size <= n:
        stride = size // 2
        while stride:
            k = keys.view(batch, -1, 2, stride)
            p = payload.view(batch, -1, 2, stride)
            block = torch.arange(k.size(1), device=keys.device) * 2 * stride
            ascending = ((block // size) % 2 == 0)[:, None]
            swap = (k[:, :, 0] > k[:, :, 1]) == ascending
            low, high = torch.where(swap, k[:, :, 1], k[:, :, 0]), torch.where(swap, k[:, :, 0], k[:, :, 1])
            first, second = torch.where(swap, p[:, :, 1], p[:, :, 0]), torch.where(swap, p[:, :, 0], p[:, :, 1])
            keys = torch.stack([low, high], dim=2).view(batch, n)
            payload = torch.stack([first, second], dim=2).view(batch, n)
            stride //= 2
        size *= 2
    return keys, payload


def sorting_network(place: Place) -> Made:
    batch, n = place.size(32, 1024), place.size(256, 1024)
    return bitonic_sort, (place.randn(batch, n), place.randint(n, batch, n))


class GumbelSinkhorn(nn.Module):
    """Mena et al., 2018: a network scores positions, Sinkhorn's iterations make permutations, puzzles are solved."""

    def __init__(self, piece: int, hidden: int, places: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(piece, hidden), nn.ReLU(), nn.Linear(hidden, places))

    def forward(self, shuffled: Tensor, solved: Tensor, gumbel: Tensor) -> tuple[Tensor, Tensor]:
        log_alpha = (self.net(shuffled) + gumbel) / 0.5
        for _ in range(15):
            log_alpha = log_alpha - torch.logsumexp(log_alpha, dim=-1, keepdim=True)
            log_alpha = log_alpha - torch.logsumexp(log_alpha, dim=-2, keepdim=True)
        plan = log_alpha.exp()
        rebuilt = plan.mT @ shuffled
        entropy = -(plan * log_alpha).sum((-2, -1)).mean()
        return F.mse_loss(rebuilt, solved) + 0.01 * entropy, plan.argmax(-1)


def permutations(place: Place) -> Made:
    batch, places, piece = place.size(32, 2048), place.size(16, 25), 48
    gumbel = -torch.log(-torch.log((place.randint(4096, batch, places, places) + 0.5) / 4096))
    pieces = place.randn(batch, places, piece)
    return GumbelSinkhorn(piece, 64, places).to(place.device), (pieces, pieces.flip(1), gumbel)


def neural_sort(scores: Tensor, relevance: Tensor, tau: float = 1.0) -> tuple[Tensor, Tensor]:
    """Grover et al., 2019: a relaxed sorting operator, and NDCG through it."""
    n = scores.size(-1)
    pairwise = (scores[:, :, None] - scores[:, None, :]).abs().sum(-1)
    scaling = n + 1 - 2 * torch.arange(1, n + 1, dtype=scores.dtype, device=scores.device)
    p = torch.softmax((scores[:, None, :] * scaling[None, :, None] - pairwise[:, None, :]) / tau, dim=-1)
    discount = 1 / torch.log2(torch.arange(n, dtype=scores.dtype, device=scores.device) + 2)
    gain = 2**relevance - 1
    soft = (p @ gain[..., None]).squeeze(-1)
    ideal = (gain.sort(-1, descending=True).values * discount).sum(-1)
    ndcg = (soft * discount).sum(-1) / ideal.clamp(min=1e-6)
    return 1 - ndcg.mean(), p.argmax(-1)


def relaxed_ranking(place: Place) -> Made:
    batch, n = place.size(32, 512), place.size(64, 128)
    return neural_sort, (place.randn(batch, n).requires_grad_(), 1.0 * place.randint(5, batch, n))


def auction(value: Tensor, rounds: int = 24, epsilon: float = 0.0625) -> tuple[Tensor, Tensor]:
    """Bertsekas' auction for assignments, everyone without an object bids at once; owners and prices."""
    batch, n, m = value.shape
    price = value.new_zeros(batch, m)
    owner = torch.full((batch, m), -1, dtype=torch.int64, device=value.device)
    held = torch.full((batch, n), -1, dtype=torch.int64, device=value.device)
    for _ in range(rounds):
        (first, second), best = (
            (value - price[:, None]).topk(2, dim=-1)[0].unbind(-1),
            (value - price[:, None]).argmax(-1),
        )
        bid = price.gather(1, best) + first - second + epsilon
        bid = torch.where(held < 0, bid, -torch.inf)
        offers = torch.full_like(value, -torch.inf).scatter(2, best[..., None], bid[..., None])
        top, winner = offers.max(dim=1)
        sold = top > -torch.inf
        loser = torch.where(sold & (owner >= 0), owner, n)
        held = F.pad(held, (0, 1)).scatter(1, loser, -1)[:, :n]
        owner = torch.where(sold, winner, owner)
        price = torch.where(sold, top, price)
        objects = torch.arange(m, device=value.device).expand(batch, m)
        held = F.pad(held, (0, 1)).scatter(1, torch.where(sold, winner, n), objects)[:, :n]
    gained = value.gather(2, held.clamp(min=0)[..., None]).squeeze(-1)
    return owner, torch.where(held >= 0, gained, 0.0).sum(1)


def assignment(place: Place) -> Made:
    batch, n = place.size(16, 512), place.size(48, 128)
    return auction, (place.randint(1 << 16, batch, n, n + 8).float() / 1024,)


def two_opt(distance: Tensor, tour: Tensor, moves: int = 8) -> tuple[Tensor, Tensor]:
    """The best 2-opt exchange of a tour, eight times; many tours of the same cities side by side."""
    n = tour.size(-1)
    i = torch.arange(n, device=tour.device)
    allowed = (i[None, :] > i[:, None] + 1) & ~((i[:, None] == 0) & (i[None, :] == n - 1))
    for _ in range(moves):
        following = tour.roll(-1, dims=-1)
        edge = distance[tour, following]
        gain = edge[:, :, None] + edge[:, None, :]
        gain = (
            gain - distance[tour[:, :, None], tour[:, None, :]] - distance[following[:, :, None], following[:, None, :]]
        )
        gain = torch.where(allowed, gain, -torch.inf)
        best, flat = gain.flatten(1).max(dim=1)
        a, b = flat // n, flat % n
        inside = (i > a[:, None]) & (i <= b[:, None]) & (best > 1e-6)[:, None]
        source = torch.where(inside, a[:, None] + 1 + b[:, None] - i, i)
        tour = tour.gather(1, source)
    return tour, distance[tour, tour.roll(-1, dims=-1)].sum(-1)


def tours(place: Place) -> Made:
    batch, n = place.size(8, 128), place.size(64, 200)
    cities = place.randint(4096, n, 2).double()
    distance = torch.cdist(cities, cities).mul(64).round().div(64).float()
    return two_opt, (distance, place.rand(batch, n).argsort(-1))


def min_p_sampling(logits: Tensor, history: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """llama.cpp's newer samplers in a chain: penalties of repeated bigrams, XTC, min-p, temperature, an inverse CDF."""
    vocabulary = logits.size(-1)
    last = history[:, -1:]
    repeats = history[:, :-1] == last
    following = history[:, 1:]
    penalty = torch.zeros_like(logits).scatter_add_(1, following, 0.8 * repeats.to(logits.dtype))
    logits = logits - penalty
    p = logits.softmax(-1)
    keep = p >= 0.05 * p.amax(-1, keepdim=True)
    sorted_p, order = p.sort(-1, descending=True)
    above = (sorted_p > 0.1).sum(-1, keepdim=True)
    position = torch.arange(vocabulary, device=logits.device)
    excluded = (position < above - 1) & (uniforms[0, :, None] < 0.5)
    keep &= ~torch.zeros_like(keep).scatter(1, order, excluded)
    filtered = (logits / 0.9).masked_fill(~keep, -torch.inf).softmax(-1)
    cdf = filtered.cumsum(-1)
    token = torch.searchsorted(cdf, uniforms[1, :, None]).clamp(max=vocabulary - 1)
    return token.squeeze(-1), filtered


def chain_of_samplers(place: Place) -> Made:
    batch, vocabulary = place.size(16, 256), place.size(8000, 64_000)
    logits = 3 * place.randn(batch, vocabulary)
    uniforms = (place.randint(512, 2, batch) + 0.5) / 512
    return min_p_sampling, (logits, place.randint(200, batch, 128), uniforms)


def verify_tree(
    tree_logits: Tensor, drafted: Tensor, parent: Tensor, uniforms: Tensor, children: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Medusa's typical acceptance over a tree of drafts: ancestors by pointer jumping, the longest accepted path."""
    batch, nodes = drafted.shape
    p = tree_logits.softmax(-1)
    entropy = -(p * torch.log(p + 1e-5)).sum(-1)
    threshold = torch.minimum(torch.full_like(entropy, 0.09), torch.exp(-entropy) * 0.3)
    ask = parent.clamp(min=0)
    likely = p[:, ask].gather(-1, drafted[..., None]).squeeze(-1)
    accepted = (likely > threshold[:, ask]) | (parent < 0)
    depth = (parent >= 0).long()
    jump = ask
    reached = accepted
    for _ in range(4):
        reached = reached & reached[:, jump]
        depth = depth + depth[jump]
        jump = jump[jump]
    score = torch.where(reached, depth * nodes - torch.arange(nodes, device=parent.device), -1)
    leaf = score.argmax(1)
    count = depth[leaf]
    final = p[torch.arange(batch, device=leaf.device), leaf]
    blocked = drafted[:, children].masked_fill(children < 0, 0)[torch.arange(batch, device=leaf.device), leaf]
    rest = final.scatter(1, blocked, 0.0)
    rest = rest / rest.sum(-1, keepdim=True)
    return count, (rest.cumsum(-1) < uniforms[:, None]).sum(-1), rest


def draft_tree(place: Place) -> Made:
    batch, vocabulary, nodes = place.size(4, 32), place.size(2000, 32_000), 40
    parent = (torch.arange(nodes) - 1) // 3
    children = torch.full((nodes, 3), -1)
    for node in range(1, nodes):
        children[int(parent[node]), (node - 1) % 3] = node
    parent[0] = -1
    logits = place.randn(batch, nodes, vocabulary)
    drafted = place.randint(vocabulary, batch, nodes)
    logits.scatter_add_(2, drafted[:, parent.clamp(min=0).to(place.device)][..., None], torch.full_like(logits, 8.0))
    uniforms = (place.randint(512, batch) + 0.5) / 512
    return verify_tree, (logits, drafted, parent.to(place.device), uniforms, children.to(place.device))


ROWS: tuple[Row, ...] = (
    Row("program/viterbi_backtrace", tagging),
    Row("program/edit_distance", transcripts),
    Row("program/bitonic_sort", sorting_network),
    Row("program/gumbel_sinkhorn_puzzle", permutations, "training"),
    Row("program/neural_sort_ndcg", relaxed_ranking, "training"),
    Row("program/auction_assignment", assignment),
    Row("program/two_opt_tours", tours),
    Row("program/min_p_sampler_chain", chain_of_samplers),
    Row("program/draft_tree_verification", draft_tree),
)
