"""What wins competitions on tables, sales, sounds and clicks: embedded numbers, neighbours, hierarchies, interests."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class PiecewiseLinearEmbeddings(nn.Module):
    """Numbers encoded by bins of their quantiles, and by learnt periods (Gorishniy et al., 2022), before an MLP."""

    def __init__(self, edges: Tensor, width: int, cards: tuple[int, ...], hidden: int) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        features, bins = edges.size(0), edges.size(1) - 1
        self.weight = nn.Parameter(torch.randn(features, bins, width) / math.sqrt(bins))
        self.bias = nn.Parameter(torch.zeros(features, width))
        self.frequencies = nn.Parameter(0.3 * torch.randn(features, 8))
        self.mixed = nn.Linear(16, width)
        self.cards = cards
        total = 2 * features * width + sum(cards)
        self.layers = nn.Sequential(
            nn.Linear(total, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, x: Tensor, cats: Tensor, y: Tensor) -> Tensor:
        left, right = self.edges[:, :-1], self.edges[:, 1:]
        encoded = (x[..., None] - left) / (right - left)
        n = encoded.size(-1)
        inner = torch.zeros(n, dtype=torch.bool, device=x.device)
        inner[1:-1] = True
        encoded = torch.where(inner, encoded.clamp(0, 1), encoded)
        encoded = torch.cat([encoded[..., :1].clamp(max=1), encoded[..., 1:-1], encoded[..., -1:].clamp(min=0)], dim=-1)
        linear = F.relu(torch.einsum("bfn,fnd->bfd", encoded, self.weight) + self.bias)
        v = 2 * math.pi * self.frequencies * x[..., None]
        periodic = F.relu(self.mixed(torch.cat([torch.cos(v), torch.sin(v)], dim=-1)))
        hot = [F.one_hot(cats[:, i], c).to(x.dtype) for i, c in enumerate(self.cards)]
        out = self.layers(torch.cat([linear.flatten(1), periodic.flatten(1), *hot], dim=1)).squeeze(1)
        return F.huber_loss(out, y)


def piecewise(place: Place) -> Made:
    b, features, bins = place.size(64, 4096), place.size(6, 40), place.size(8, 48)
    edges = torch.randn(features, bins + 1).sort(1).values + 0.01 * torch.arange(bins + 1)
    cards = (3, 12, 31)
    cats = torch.stack([torch.randint(c, (b,)) for c in cards], dim=1).to(place.device)
    model = PiecewiseLinearEmbeddings(edges, place.size(6, 16), cards, place.size(32, 384)).to(place.device)
    return model, (place.randn(b, features), cats, place.randn(b))


class RetrievedLabels(nn.Module):
    """TabR (Gorishniy et al., 2023): the nearest rows of the training set by keys, their labels and differences."""

    def __init__(self, features: int, width: int, classes: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.linear, self.norm = nn.Linear(features, width), nn.LayerNorm(width)
        self.k = nn.Linear(width, width)
        self.label = nn.Embedding(classes, width)
        self.t = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width, bias=False))
        self.predict = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU())
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor, index: Tensor, y: Tensor, candidates: Tensor, labels: Tensor) -> Tensor:
        h = self.linear(x)
        k = self.k(self.norm(h))
        with torch.no_grad():
            keys = self.k(self.norm(self.linear(candidates)))
            distances = k.square().sum(-1, keepdim=True) + keys.square().sum(-1) - 2 * k @ keys.T
            distances[torch.arange(len(x), device=x.device), index] = torch.inf
            nearest = distances.topk(self.context, largest=False).indices
        context_k = self.k(self.norm(self.linear(candidates[nearest])))
        similarities = (
            -k.square().sum(-1, keepdim=True)
            + (2 * (k[..., None, :] @ context_k.transpose(-1, -2))).squeeze(-2)
            - context_k.square().sum(-1)
        )
        probs = F.softmax(similarities, dim=-1)
        values = self.label(labels[nearest]) + self.t(k[:, None] - context_k)
        x = h + (probs[:, None] @ values).squeeze(1)
        return F.cross_entropy(self.head(self.predict(x)), y)


def retrieval(place: Place) -> Made:
    n, b, features, classes = place.size(400, 40_000), place.size(16, 256), place.size(8, 50), 5
    rows, labels = place.randn(n, features), place.randint(classes, n)
    index = torch.randperm(n)[:b].to(place.device)
    model = RetrievedLabels(features, place.size(16, 128), classes, place.size(12, 96)).to(place.device)
    return model, (rows[index].clone(), index, labels[index].clone(), rows, labels)


def hierarchical_sales(
    forecast: Tensor, sales: Tensor, history: Tensor, price: Tensor, levels: list[Tensor], counts: list[int]
) -> tuple[Tensor, Tensor]:
    """M5's weighted scaled error: twelve levels of sums, scales from history, weights by revenue."""
    losses = []
    for group, count in zip(levels, counts, strict=True):

        def gathered(x: Tensor, group: Tensor = group, count: int = count) -> Tensor:
            return torch.zeros(count, x.size(1), dtype=x.dtype, device=x.device).index_add_(0, group, x)

        past = gathered(history)
        started = (past > 0).cumsum(1) > 0
        difference = (past[:, 1:] - past[:, :-1]).square() * started[:, :-1]
        scale = difference.sum(1) / started[:, :-1].sum(1).clamp(min=1)
        revenue = gathered(history[:, -28:] * price).sum(1)
        weight = revenue / revenue.sum()
        error = (gathered(forecast) - gathered(sales)).square().mean(1)
        losses.append((weight * torch.sqrt(error / scale.clamp(min=1e-3) + 1e-8)).sum())
    return torch.stack(losses).mean(), torch.stack(losses).detach()


def sales(place: Place) -> Made:
    items, days = place.size(200, 30_490), place.size(60, 400)
    shop, product = torch.randint(10, (items,)), torch.randint(3049, (items,))
    state, category, department = shop % 3, product % 3, product % 7
    levels = [torch.zeros_like(shop), state, shop, category, department, state * 3 + category]
    levels += [state * 7 + department, shop * 3 + category, shop * 7 + department, product]
    levels += [product * 3 + state, torch.arange(items)]
    counts = [int(level.max()) + 1 for level in levels]
    history = torch.poisson(2 * torch.rand(items, 1).expand(-1, days)) * (torch.rand(items, days) < 0.8)
    future = torch.poisson(2 * torch.rand(items, 28))
    forecast = (2 * place.rand(items, 28)).requires_grad_()
    tensors = [level.to(place.device) for level in levels]
    price = 1 + 9 * place.rand(items, 1)
    return hierarchical_sales, (forecast, future.to(place.device), history.to(place.device), price, tensors, counts)


class SoundEvents(nn.Module):
    """PANNs with an attention head over frames, as bird-song competitions had it: labels of clips, mixed recordings."""

    def __init__(self, bands: int, width: int, classes: int) -> None:
        super().__init__()
        self.bn0 = nn.BatchNorm2d(bands)
        sizes = [1, width, 2 * width, 4 * width]
        self.convs = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
                nn.Conv2d(b, b, 3, padding=1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
            )
            for a, b in itertools.pairwise(sizes)
        )
        self.fc1 = nn.Linear(4 * width, 4 * width)
        self.att, self.cla = nn.Conv1d(4 * width, classes, 1), nn.Conv1d(4 * width, classes, 1)

    def forward(self, x: Tensor, target: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        x = x[0::2] * lam[:, None, None, None] + x[1::2] * (1 - lam)[:, None, None, None]
        target = torch.maximum(target[0::2] * (lam > 0.3)[:, None], target[1::2] * (lam < 0.7)[:, None])
        frames = x.size(2)
        x = self.bn0(x.transpose(1, 3)).transpose(1, 3)
        for i, conv in enumerate(self.convs):
            x = F.avg_pool2d(conv(x), 2 if i < 2 else (1, 2))
        x = x.mean(dim=3)
        x = F.max_pool1d(x, 3, stride=1, padding=1) + F.avg_pool1d(x, 3, stride=1, padding=1)
        x = F.relu(self.fc1(x.transpose(1, 2))).transpose(1, 2)
        norm_att = torch.softmax(torch.clamp(self.att(x), -10, 10), dim=-1)
        cla = torch.sigmoid(self.cla(x))
        clip = (norm_att * cla).sum(2).clamp(1e-6, 1 - 1e-6)
        framewise = cla.transpose(1, 2).repeat_interleave(frames // cla.size(2), dim=1)
        bce = F.binary_cross_entropy(clip, target, reduction="none")
        focal = (1 - torch.exp(-bce)) ** 2 * bce
        loudest = framewise.max(dim=1).values.clamp(1e-6, 1 - 1e-6)
        return focal.mean() + 0.5 * F.binary_cross_entropy(loudest, target), framewise.detach()


def bird_songs(place: Place) -> Made:
    b, frames, bands, classes = place.size(4, 32), place.size(24, 320), place.size(16, 64), place.size(6, 264)
    target = (place.rand(b, classes) < 0.05).float()
    return SoundEvents(bands, place.size(8, 32), classes).to(place.device), (
        place.randn(b, 1, frames, bands),
        target,
        place.rand(b // 2),
    )


class CompressedInteractions(nn.Module):
    """xDeepFM (Lian et al., 2018): outer products of fields, compressed layer by layer with half passed on."""

    def __init__(self, fields: int, vocabulary: int, width: int, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(fields * vocabulary, width), nn.Embedding(fields * vocabulary, 1)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.register_buffer("offsets", torch.arange(fields) * vocabulary)
        sizes, self.conv1ds = [fields], nn.ModuleList()
        for size in layers:
            self.conv1ds.append(nn.Conv1d(fields * sizes[-1], size, 1))
            sizes.append(size // 2)
        self.layers = layers
        self.fc = nn.Linear(sum(sizes[1:-1]) + layers[-1], 1)
        self.mlp = nn.Sequential(
            nn.Linear(fields * width, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        x = x + self.offsets
        e = self.embedding(x)
        b, fields, width = e.shape
        xs, x0, h = [], e.unsqueeze(2), e
        for i, conv in enumerate(self.conv1ds):
            z = (x0 * h.unsqueeze(1)).view(b, fields * h.shape[1], width)
            z = F.relu(conv(z))
            if i != len(self.layers) - 1:
                z, h = torch.split(z, z.shape[1] // 2, dim=1)
            xs.append(z)
        cross = self.fc(torch.sum(torch.cat(xs, dim=1), 2))
        logit = (self.linear(x).sum(1) + cross + self.mlp(e.view(b, -1))).squeeze(1)
        return F.binary_cross_entropy_with_logits(logit, label)


def compressed_fields(place: Place) -> Made:
    b, fields, vocabulary = place.size(32, 2048), place.size(6, 26), place.size(50, 4000)
    model = CompressedInteractions(fields, vocabulary, place.size(4, 16), (place.size(8, 64), 16))
    return model.to(place.device), (place.randint(vocabulary, b, fields), place.randint(2, b).float())


class InterestEvolution(nn.Module):
    """DIEN (Zhou et al., 2019): a GRU with an auxiliary loss on next clicks, then one whose gates attention scales."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.extract = nn.GRU(width, width, batch_first=True)
        self.aux = nn.Sequential(nn.Linear(2 * width, 64), nn.Sigmoid(), nn.Linear(64, 1))
        self.attention = nn.Parameter(torch.randn(width, width) / math.sqrt(width))
        self.x2h, self.h2h = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.prelu = nn.PReLU(80)
        self.fc1, self.fc2 = nn.Linear(3 * width, 80), nn.Linear(80, 1)

    def forward(self, history: Tensor, negatives: Tensor, target: Tensor, label: Tensor) -> Tensor:
        mask = history > 0
        e, q = self.items(history), self.items(target)
        hidden, _ = self.extract(e)
        click = self.aux(torch.cat([hidden[:, :-1], e[:, 1:]], dim=-1)).squeeze(-1)
        skipped = self.aux(torch.cat([hidden[:, :-1], self.items(negatives)[:, 1:]], dim=-1)).squeeze(-1)
        aux = F.softplus(-click) + F.softplus(skipped)
        aux = (aux * mask[:, 1:]).sum() / mask[:, 1:].sum()
        scores = torch.einsum("btd,de,be->bt", hidden, self.attention, q)
        scores = scores.masked_fill(~mask, -(2**15)).softmax(-1)
        h = torch.zeros_like(q)
        for t in range(history.size(1)):
            xr, xz, xn = self.x2h(hidden[:, t]).chunk(3, dim=1)
            hr, hz, hn = self.h2h(h).chunk(3, dim=1)
            r, u = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
            u = scores[:, t : t + 1] * u
            new = (1 - u) * h + u * torch.tanh(xn + r * hn)
            h = torch.where(mask[:, t : t + 1], new, h)
        features = torch.cat([h, q, (e * mask[..., None]).sum(1)], dim=1)
        logit = self.fc2(self.prelu(self.fc1(features))).squeeze(1)
        return F.binary_cross_entropy_with_logits(logit, label) + aux


def interests(place: Place) -> Made:
    b, t, items = place.size(8, 1024), place.size(6, 16), place.size(100, 50_000)
    lengths = 1 + place.randint(t, b, 1)
    history = (1 + place.randint(items - 1, b, t)) * (torch.arange(t, device=place.device) < lengths)
    return InterestEvolution(items, place.size(8, 36)).to(place.device), (
        history,
        1 + place.randint(items - 1, b, t),
        1 + place.randint(items - 1, b),
        place.randint(2, b).float(),
    )


def shallow_items(
    users: Tensor, items: Tensor, shape: tuple[int, int], regular: float, k: int
) -> tuple[Tensor, Tensor]:
    """EASE (Steck, 2019): a linear model of items in closed form; seen ones masked, recall and discounted gains."""
    n, m = shape
    x = torch.zeros(n, m, device=users.device)
    x[users, items] = 1.0
    held = (users * 31 + items * 17) % 5 == 0
    train = x.clone()
    train[users[held], items[held]] = 0.0
    gram = train.T @ train
    diagonal = torch.arange(m, device=users.device)
    gram[diagonal, diagonal] += regular
    p = torch.linalg.inv(gram)
    b = p / -torch.diag(p)
    b[diagonal, diagonal] = 0
    scores = train @ b
    scores[train > 0] = -float("inf")
    top = scores.topk(k, dim=1).indices
    hits = (x - train).gather(1, top)
    discount = 1 / torch.log2(torch.arange(2, k + 2, device=users.device))
    relevant = (x - train).sum(1)
    ideal = torch.cat([torch.zeros_like(discount[:1]), discount.cumsum(0)])[relevant.long().clamp(max=k)]
    some = relevant > 0
    gain = torch.where(some, (hits * discount).sum(1) / ideal.clamp(min=1e-6), 0.0).sum() / some.sum()
    return b, gain


def shallow_autoencoder(place: Place) -> Made:
    n, m, clicks = place.size(200, 20_000), place.size(40, 1500), place.size(2000, 600_000)
    users = place.randint(n, clicks)
    items = (place.rand(clicks) ** 2 * m).long()
    return shallow_items, (users, items, (n, m), place.size(5, 200), 20)


ROWS: tuple[Row, ...] = (
    Row("program/piecewise_linear_embeddings", piecewise, "training", autocast=torch.bfloat16),
    Row("program/retrieved_neighbour_labels", retrieval, "training"),
    Row("program/hierarchical_sales_error", sales, "training"),
    Row("program/sound_event_attention", bird_songs, "training"),
    Row("program/compressed_interactions", compressed_fields, "training"),
    Row("program/interest_evolution", interests, "training"),
    Row("program/shallow_item_autoencoder", shallow_autoencoder),
)
