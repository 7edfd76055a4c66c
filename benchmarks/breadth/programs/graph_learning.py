"""Learning on graphs and molecules, and algorithms on their edges: aggregators, forces, walks, distances."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class GineVirtual(nn.Module):
    """OGB's molecule baseline: GIN with bond features, batch norms, and a virtual node for each graph."""

    def __init__(self, d: int, layers: int = 3) -> None:
        super().__init__()
        self.atom = nn.Embedding(40, d)
        self.bonds = nn.ModuleList(nn.Embedding(8, d) for _ in range(layers))
        self.eps = nn.Parameter(torch.zeros(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d, bias=False), nn.BatchNorm1d(2 * d), nn.ReLU(), nn.Linear(2 * d, d))
            for _ in range(layers)
        )
        self.virtual = nn.Parameter(torch.zeros(d))
        self.virtual_mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d), nn.ReLU()) for _ in range(layers - 1)
        )
        self.head = nn.Linear(d, 12)

    def forward(self, atoms: Tensor, edges: Tensor, kinds: Tensor, graph: Tensor, labels: Tensor) -> Tensor:
        graphs = labels.size(0)
        h = self.atom(atoms).sum(1)
        v = self.virtual.expand(graphs, -1)
        source, target = edges
        for i, (mlp, bond) in enumerate(zip(self.mlps, self.bonds, strict=True)):
            h = h + v[graph]
            message = F.relu(h[source] + bond(kinds))
            gathered = torch.zeros_like(h).index_add_(0, target, message)
            new = mlp((1 + self.eps[i]) * h + gathered)
            if i < len(self.virtual_mlps):
                pooled = torch.zeros_like(v).index_add_(0, graph, h)
                v = v + self.virtual_mlps[i](pooled + v)
                new = F.relu(new)
            h = new + h
        count = torch.bincount(graph, minlength=graphs).clamp(min=1)
        pooled = h.new_zeros(graphs, h.size(1)).index_add_(0, graph, h) / count[:, None]
        known = ~labels.isnan()
        losses = F.binary_cross_entropy_with_logits(self.head(pooled), labels.nan_to_num(), reduction="none")
        return (losses * known).sum() / known.sum()


def molecules(place: Place) -> Made:
    graphs, each, d = place.size(16, 512), 24, place.size(48, 256)
    base = torch.arange(graphs).repeat_interleave(2 * each) * each
    edges = torch.stack([base + torch.randint(each, base.shape) for _ in range(2)]).to(place.device)
    labels = 1.0 * place.randint(2, graphs, 12)
    labels[place.rand(graphs, 12) < 0.2] = torch.nan
    return GineVirtual(d).to(place.device), (
        place.randint(40, graphs * each, 5),
        edges,
        place.randint(8, edges.size(1)),
        torch.arange(graphs, device=place.device).repeat_interleave(each),
        labels,
    )


class PrincipalAggregation(nn.Module):
    """Corso et al., 2020: four aggregators times three scalers by degree, in towers."""

    def __init__(self, d: int, towers: int = 4, mean_log_degree: float = 1.6) -> None:
        super().__init__()
        self.towers, self.mean_log_degree = towers, mean_log_degree
        self.pre = nn.ModuleList(nn.Linear(3 * d // towers, d // towers) for _ in range(towers))
        self.post = nn.ModuleList(nn.Linear(13 * d // towers, d // towers) for _ in range(towers))
        self.edge, self.mix = nn.Linear(8, d), nn.Linear(d, d)

    def forward(self, x: Tensor, edges: Tensor, features: Tensor) -> Tensor:
        source, target = edges
        n = x.size(0)
        degree = torch.bincount(target, minlength=n).to(x.dtype)[:, None]
        count = degree.clamp(min=1)
        log_degree = torch.log1p(count)
        e = self.edge(features).chunk(self.towers, dim=-1)
        out = []
        for i, part in enumerate(x.chunk(self.towers, dim=-1)):
            message = self.pre[i](torch.cat([part[target], part[source], e[i]], dim=-1))
            index = target[:, None].expand_as(message)
            zero = torch.zeros_like(part)
            mean = zero.scatter_add(0, index, message) / count
            square = zero.scatter_add(0, index, message * message) / count
            deviation = (F.relu(square - mean * mean) + 1e-5).sqrt()
            high = zero.scatter_reduce(0, index, message, "amax", include_self=False)
            low = zero.scatter_reduce(0, index, message, "amin", include_self=False)
            found = torch.cat([mean, low, high, deviation], dim=-1)
            grown = found * (log_degree / self.mean_log_degree)
            shrunk = found * (self.mean_log_degree / log_degree)
            out.append(self.post[i](torch.cat([part, found, grown, shrunk], dim=-1)))
        return x + F.leaky_relu(self.mix(torch.cat(out, dim=-1)))


def principal(place: Place) -> Made:
    n, d, degree = place.size(1000, 20_000), place.size(32, 128), 6
    target = torch.arange(n).repeat_interleave(degree)
    edges = torch.stack([torch.randint(n, target.shape), target]).to(place.device)
    return PrincipalAggregation(d).to(place.device), (
        place.randn(n, d).requires_grad_(),
        edges,
        place.randn(edges.size(1), 8),
    )


class SchNet(nn.Module):
    """Schuett et al., 2017: continuous filters of distances; trained on energies and on forces, their gradient."""

    def __init__(self, d: int, bases: int = 32, cutoff: float = 5.0, blocks: int = 2) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.embed = nn.Embedding(20, d)
        self.register_buffer("centres", torch.linspace(0, cutoff, bases))
        self.gamma = bases / cutoff
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(bases, d), nn.Softplus(), nn.Linear(d, d)) for _ in range(blocks)
        )
        self.inner = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(blocks))
        self.outer = nn.ModuleList(
            nn.Sequential(nn.Linear(d, d), nn.Softplus(), nn.Linear(d, d)) for _ in range(blocks)
        )
        self.head = nn.Sequential(nn.Linear(d, d // 2), nn.Softplus(), nn.Linear(d // 2, 1))

    def forward(self, kinds: Tensor, xyz: Tensor, energy: Tensor, forces: Tensor) -> Tensor:
        away = xyz[:, :, None] - xyz[:, None]
        distance = (away.square().sum(-1) + 1e-6).sqrt()
        n = xyz.size(1)
        apart = ~torch.eye(n, dtype=torch.bool, device=xyz.device)
        window = 0.5 * (torch.cos(math.pi * distance / self.cutoff) + 1)
        window = window * ((distance < self.cutoff) & apart)
        rbf = torch.exp(-self.gamma * (distance[..., None] - self.centres) ** 2)
        h = self.embed(kinds)
        for spread, inner, outer in zip(self.filters, self.inner, self.outer, strict=True):
            w = spread(rbf) * window[..., None]
            h = h + outer(torch.einsum("bijd,bjd->bid", w, inner(h)))
        predicted = self.head(h).sum((1, 2))
        (gradient,) = torch.autograd.grad(predicted.sum(), xyz, create_graph=True)
        return F.mse_loss(predicted, energy) + 10 * F.mse_loss(-gradient, forces)


def schnet(place: Place) -> Made:
    batch, n, d = place.size(4, 64), place.size(12, 24), place.size(32, 64)
    return SchNet(d).to(place.device), (
        place.randint(20, batch, n),
        (2 * place.randn(batch, n, 3)).requires_grad_(),
        place.randn(batch),
        place.randn(batch, n, 3),
    )


def biased_walks(
    start: Tensor, pointer: Tensor, neighbour: Tensor, uniforms: Tensor, p: float = 0.5, q: float = 2.0
) -> tuple[Tensor, Tensor]:
    """node2vec on a compressed adjacency: returns and departures weighed, three tries of rejection; visits by node."""
    previous = current = start
    walk = [start]
    highest = max(1 / p, 1.0, 1 / q)
    for step in range(uniforms.size(0)):
        first, degree = pointer[current], pointer[current + 1] - pointer[current]
        chosen = current
        settled = torch.zeros_like(current, dtype=torch.bool)
        for attempt in range(3):
            offset = (uniforms[step, attempt, 0] * degree).long().clamp(min=0)
            candidate = neighbour[first + torch.minimum(offset, (degree - 1).clamp(min=0))]
            low = pointer[previous]
            span = pointer[previous + 1] - low
            near = torch.zeros_like(settled)
            for k in range(4):
                near |= neighbour[low + (span - 1).clamp(min=0).clamp(max=k)] == candidate
            weight = torch.where(candidate == previous, 1 / p, torch.where(near, 1.0, 1 / q))
            accept = (uniforms[step, attempt, 1] * highest < weight) & ~settled & (degree > 0)
            chosen = torch.where(accept, candidate, chosen)
            settled |= accept
        previous, current = current, chosen
        walk.append(current)
    path = torch.stack(walk, dim=1)
    visits = torch.bincount(path.flatten(), minlength=pointer.numel() - 1)
    return path, visits


def walks(place: Place) -> Made:
    n, degree, count, length = place.size(2000, 200_000), 8, place.size(1000, 100_000), 8
    pointer = torch.arange(n + 1) * degree
    neighbour = torch.randint(n, (n, degree)).sort(1).values.flatten()
    uniforms = (place.randint(509, length, 3, 2, count) + 0.25) / 509
    return biased_walks, (place.randint(n, count), pointer.to(place.device), neighbour.to(place.device), uniforms)


class Graphormer(nn.Module):
    """Ying et al., 2021: attention biased by shortest paths (found by squaring, min-plus) and by degrees."""

    def __init__(self, d: int, heads: int, furthest: int = 8) -> None:
        super().__init__()
        self.heads, self.furthest = heads, furthest
        self.atom, self.degree = nn.Embedding(32, d), nn.Embedding(16, d)
        self.distance = nn.Embedding(furthest + 2, heads)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.head = nn.Linear(d, 1)

    def forward(self, atoms: Tensor, adjacency: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        b, n = atoms.shape
        far = self.furthest + 1
        hops = torch.where(adjacency, 1, far)
        hops = hops.masked_fill(torch.eye(n, dtype=torch.bool, device=atoms.device), 0)
        for _ in range(3):
            hops = (hops[:, :, :, None] + hops[:, None]).amin(2).clamp(max=far)
        degree = adjacency.sum(-1).clamp(max=15)
        x = self.atom(atoms) + self.degree(degree)
        bias = self.distance(hops).permute(0, 3, 1, 2)
        bias = bias.masked_fill(~mask[:, None, None, :], -torch.inf)
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.mT / q.size(-1) ** 0.5 + bias).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + self.mlp(self.norm2(x))
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.l1_loss(self.head(pooled).squeeze(-1), target)


def graphormer(place: Place) -> Made:
    batch, n, d = place.size(8, 64), place.size(20, 40), place.size(32, 128)
    upper = (place.rand(batch, n, n) < 0.08).triu(1)
    mask = torch.arange(n, device=place.device) < (n // 2 + place.randint(n // 2, batch))[:, None]
    return Graphormer(d, 4).to(place.device), (
        place.randint(32, batch, n),
        (upper | upper.mT) & mask[:, None] & mask[:, :, None],
        mask,
        place.randn(batch),
    )


def components(edges: Tensor, weight: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Connected components by hooking and pointer jumping; sizes and the heaviest edge inside each."""
    label = torch.arange(n, device=edges.device)
    a, b = edges
    for _ in range(6):
        la, lb = label[a], label[b]
        low = torch.minimum(la, lb)
        label = label.scatter_reduce(0, la, low, "amin").scatter_reduce(0, lb, low, "amin")
        for _ in range(2):
            label = label[label]
    size = torch.zeros(n, dtype=torch.int64, device=edges.device).scatter_add_(0, label, torch.ones_like(label))
    heaviest = weight.new_full((n,), -torch.inf).scatter_reduce(0, label[a], weight, "amax")
    return label, size, torch.where(size > 1, heaviest, 0.0)


def hooking(place: Place) -> Made:
    n = place.size(20_000, 1 << 22)
    return components, (place.randint(n, 2, n // 2), place.rand(n // 2), n)


def light_gcn(users: Tensor, items: Tensor, edges: Tensor, batch: Tensor, layers: int = 3) -> tuple[Tensor, Tensor]:
    """He et al., 2020: embeddings are smoothed over the bipartite graph by a sparse product; BPR on a batch."""
    count = users.size(0)
    x = torch.cat([users, items])
    n = x.size(0)
    row = torch.cat([edges[0], edges[1] + count])
    column = torch.cat([edges[1] + count, edges[0]])
    degree = torch.zeros(n, dtype=x.dtype, device=x.device).scatter_add_(0, row, torch.ones_like(row, dtype=x.dtype))
    scale = degree.clamp(min=1).rsqrt()
    value = scale[row] * scale[column]
    layer, total = x, x
    for _ in range(layers):
        layer = torch.zeros_like(layer).index_add(0, row, value[:, None] * layer[column])
        total = total + layer
    final = total / (layers + 1)
    u, positive, negative = final[batch[0]], final[count + batch[1]], final[count + batch[2]]
    loss = F.softplus((u * negative).sum(-1) - (u * positive).sum(-1)).mean()
    penalty = 0.5 * (users[batch[0]].square().sum() + items[batch[1:]].square().sum()) / batch.size(1)
    return loss, 1e-4 * penalty


def smoothed(place: Place) -> Made:
    n, d, batch = place.size(500, 30_000), place.size(32, 64), place.size(256, 4096)
    return light_gcn, (
        (0.1 * place.randn(n, d)).requires_grad_(),
        (0.1 * place.randn(n, d)).requires_grad_(),
        place.randint(n, 2, 8 * n),
        place.randint(n, 3, batch),
    )


ROWS: tuple[Row, ...] = (
    Row("program/gine_virtual_node", molecules, "training"),
    Row("program/principal_aggregation", principal, "training"),
    Row("program/schnet_forces", schnet, "training"),
    Row("program/node2vec_walks", walks),
    Row("program/graphormer", graphormer, "training"),
    Row("program/connected_components", hooking),
    Row("program/light_gcn", smoothed, "training"),
)
