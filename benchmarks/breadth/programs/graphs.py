"""Message passing on graphs, without a graph library."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def edges_of(place: Place, nodes: int, degree: int) -> Tensor:
    """Random edges (2, nodes * degree), sources above targets."""
    return place.randint(nodes, 2, nodes * degree)


class GCNConv(nn.Module):
    """Kipf and Welling, 2017."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_in, d_out) * d_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        n = x.size(0)
        degree = torch.ones(n, dtype=x.dtype, device=x.device)
        degree.scatter_add_(0, target, torch.ones_like(target, dtype=x.dtype))
        norm = degree.pow(-0.5)
        x = x @ self.weight
        out = x * (norm * norm)[:, None]
        out = out.index_add(0, target, x[source] * (norm[source] * norm[target])[:, None])
        return out + self.bias


class GCN(nn.Module):
    def __init__(self, d: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(d, hidden), GCNConv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, labels: Tensor) -> Tensor:
        h = F.relu(self.conv1(x, edge_index))
        return F.cross_entropy(self.conv2(h, edge_index), labels)


def gcn(place: Place) -> Made:
    n = place.size(1500, 60_000)
    return GCN(64, 64, 7).to(place.device), (place.randn(n, 64), edges_of(place, n, 6), place.randint(7, n))


class GAT(nn.Module):
    """Attention over each node's incoming edges: a softmax by scatter_reduce's maximum and index_add's sum."""

    def __init__(self, d: int, heads: int, d_head: int) -> None:
        super().__init__()
        self.heads, self.d_head = heads, d_head
        self.proj = nn.Linear(d, heads * d_head, bias=False)
        self.a_source = nn.Parameter(torch.randn(heads, d_head) * 0.1)
        self.a_target = nn.Parameter(torch.randn(heads, d_head) * 0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index[0], edge_index[1]
        n = x.shape[0]
        h = self.proj(x).view(n, self.heads, self.d_head)
        e = F.leaky_relu((h * self.a_source).sum(-1)[src] + (h * self.a_target).sum(-1)[dst], 0.2)
        index = dst[:, None].expand_as(e)
        top = torch.full((n, self.heads), -1e9, dtype=x.dtype, device=x.device)
        top = top.scatter_reduce(0, index, e.detach(), reduce="amax")
        e = torch.exp(e - top[dst])
        total = torch.zeros(n, self.heads, dtype=x.dtype, device=x.device).index_add_(0, dst, e)
        alpha = e / (total[dst] + 1e-16)
        out = torch.zeros_like(h).index_add_(0, dst, alpha[..., None] * h[src])
        return F.elu(out.flatten(1))


def gat(place: Place) -> Made:
    n = place.size(800, 40_000)
    return GAT(64, 4, 16).to(place.device), (place.randn(n, 64), edges_of(place, n, 6))


class EdgeConv(nn.Module):
    """DGCNN's layer: an MLP of (x_i, x_j - x_i), and the maximum over neighbours."""

    def __init__(self, d: int, out: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * d, out), nn.BatchNorm1d(out), nn.LeakyReLU(0.2), nn.Linear(out, out))
        self.out = out

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        j, i = edge_index
        message = self.mlp(torch.cat([x[i], x[j] - x[i]], dim=-1))
        result = message.new_zeros(len(x), self.out)
        return result.scatter_reduce(0, i[:, None].expand_as(message), message, "amax", include_self=False)


def edge_conv(place: Place) -> Made:
    n = place.size(1000, 30_000)
    return EdgeConv(32, 64).to(place.device).eval(), (place.randn(n, 32), edges_of(place, n, 8))


def segment_statistics(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, maximum and standard deviation of each graph's nodes, nodes being sorted by graph."""
    mean = torch.segment_reduce(x, "mean", lengths=lengths)
    largest = torch.segment_reduce(x, "max", lengths=lengths)
    centred = x - torch.repeat_interleave(mean, lengths, dim=0, output_size=x.shape[0])
    variance = torch.segment_reduce(centred * centred, "mean", lengths=lengths)
    return mean, largest, (variance + 1e-5).sqrt()


def graph_readout(place: Place) -> Made:
    graphs, nodes = place.size(200, 4000), 40
    lengths = torch.full((graphs,), nodes, device=place.device)
    lengths[::2] -= 10
    lengths[1::2] += 10
    return segment_statistics, (place.randn(graphs * nodes, 32), lengths)


def pagerank(edge_index: Tensor, weight: Tensor, n: int, damping: float = 0.85) -> Tensor:
    """Twelve power iterations; dangling nodes give to all."""
    source, target = edge_index
    out = torch.zeros(n, dtype=weight.dtype, device=weight.device).scatter_add(0, source, weight)
    p = weight / out[source]
    dangling = out == 0
    rank = torch.full_like(out, 1 / n)
    for _ in range(12):
        lost = rank[dangling].sum() / n
        rank = (1 - damping) / n + damping * (lost + torch.zeros_like(rank).index_add_(0, target, p * rank[source]))
    return rank


def pagerank_power(place: Place) -> Made:
    n = place.size(4000, 500_000)
    return pagerank, (edges_of(place, n, 4), place.rand(4 * n) + 0.1, n)


class EGNN(nn.Module):
    """An E(n)-equivariant layer: invariant messages move the features and the coordinates."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU())
        self.node = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.shift = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1, bias=False))

    def forward(self, h: Tensor, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        i, j = edges.unbind(0)
        r = x.index_select(0, i) - x.index_select(0, j)
        m = self.edge(torch.cat((h[i], h[j], (r**2).sum(-1, keepdim=True)), -1))
        moved = x + torch.zeros_like(x).index_add(0, i, r * torch.tanh(self.shift(m))) / 4
        gathered = torch.zeros_like(h).index_add(0, i, m)
        return h + self.node(torch.cat((h, gathered), -1)), moved


def egnn(place: Place) -> Made:
    n = place.size(500, 20_000)
    return EGNN(64).to(place.device), (place.randn(n, 64), place.randn(n, 3), edges_of(place, n, 4))


ROWS: tuple[Row, ...] = (
    Row("program/gcn", gcn, "training"),
    Row("program/gat", gat, "training"),
    Row("program/edge_conv", edge_conv),
    Row("program/segment_statistics", graph_readout),
    Row("program/pagerank", pagerank_power),
    Row("program/egnn", egnn, "training"),
)
