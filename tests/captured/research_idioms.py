"""Programs as research code is written: detection heads, GAN blocks, speech models, graph networks, losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from captured.table import Made, Table, script, t
from torch import nn
from torch.autograd import Variable

program = Table()
NUMBERS: dict[str, Any] = {"capture_scalar_outputs": True}
SIZES: dict[str, Any] = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


@program(train=True)
def upsample_block() -> Made:
    class Up(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear")

        def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
            y = F.upsample(self.conv(x), size=skip.size()[2:], mode="bilinear", align_corners=True)
            return F.tanh(torch.cat([y, skip], 1)) + F.sigmoid(self.up(x).mean())

    torch.manual_seed(0)
    return Up(), t(1, 2, 4, 4), t(1, 3, 8, 8)


@program(train=True)
def anchors_by_numpy() -> Made:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 6, 1)
            self.scales = np.array([1.0, 2.0])
            self.stride = 8

        def anchors(self, h: int, w: int) -> torch.Tensor:
            xs, ys = np.meshgrid(np.arange(w) * self.stride, np.arange(h) * self.stride)
            shifts = np.stack([xs.ravel(), ys.ravel()], axis=1).astype(np.float32)
            return torch.from_numpy(shifts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.conv(x)
            n, _, h, w = out.shape
            out = out.permute(0, 2, 3, 1).contiguous().view(n, -1, 6)
            centres = out[..., :2] + self.anchors(h, w).to(out.device)
            return torch.cat([centres, out[..., 2:4].exp() * float(self.scales[1]), out[..., 4:]], -1)

    torch.manual_seed(0)
    return Head(), t(1, 2, 3, 4)


@program()
def yolo_grid() -> Made:
    def f(x: torch.Tensor, anchors: list[tuple[float, float]]) -> Any:
        n, _, g, _ = x.shape
        x = x.view(n, 2, 5, g, g).permute(0, 1, 3, 4, 2).contiguous()
        FloatTensor = torch.cuda.FloatTensor if x.is_cuda else torch.FloatTensor
        gx = torch.arange(g).repeat(g, 1).view([1, 1, g, g]).type(FloatTensor)
        gy = torch.arange(g).repeat(g, 1).t().view([1, 1, g, g]).type(FloatTensor)
        sizes = FloatTensor([(w / 8, h / 8) for w, h in anchors])
        boxes = FloatTensor(x[..., :4].shape)
        boxes[..., 0] = torch.sigmoid(x[..., 0]).data + gx
        boxes[..., 1] = torch.sigmoid(x[..., 1]).data + gy
        boxes[..., 2] = torch.exp(x[..., 2].data) * sizes[:, 0:1].view((1, 2, 1, 1))
        boxes[..., 3] = torch.exp(x[..., 3].data) * sizes[:, 1:2].view((1, 2, 1, 1))
        return boxes.view(n, -1, 4) * 8

    return f, t(1, 10, 3, 3), [(10.0, 13.0), (16.0, 30.0)]


@program(**SIZES)
def non_maximum_suppression_by_matrix() -> Made:
    def f(boxes: torch.Tensor, scores: torch.Tensor) -> Any:
        order = scores.argsort(descending=True, stable=True)
        boxes = boxes[order]
        corner = torch.max(boxes[:, None, :2], boxes[None, :, :2])
        other = torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
        inter = (other - corner).clamp(min=0).prod(2)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        iou = inter / (area[:, None] + area[None] - inter + 1e-6)
        keep = iou.triu(1).max(0)[0] < 0.5
        return boxes[keep], order[keep]

    boxes = t(6, 4).abs()
    boxes[:, 2:] += boxes[:, :2]
    return f, boxes, t(6, seed=1)


@program(train=True)
def reparametrisation() -> Made:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean, log = self.mean(x), self.log(x)
            std = log.mul(0.5).exp_()
            eps = Variable(std.data.new(std.size()).fill_(0.3))
            return eps.mul(std).add_(mean)

    torch.manual_seed(0)
    return Encoder(), t()


@program(train=True)
def pixel_norm_and_equalised_layers() -> Made:
    class Equalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 2, 3, 3))
            self.scale = 1 / math.sqrt(2 * 9)

        def forward(self, x: torch.Tensor, noise: Any = None) -> torch.Tensor:
            x = F.conv2d(x, self.weight * self.scale, padding=self.weight.shape[2] // 2)
            if noise is None:
                b, _, h, w = x.shape
                noise = x.new_empty(b, 1, h, w).normal_()
            x = F.leaky_relu(x + 0 * noise, 0.2) * 2**0.5
            return x * torch.rsqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-8)

    torch.manual_seed(0)
    return Equalised(), t(1, 2, 4, 4)


@program(train=True)
def minibatch_deviation() -> Made:
    def f(x: torch.Tensor) -> Any:
        b, c, h, w = x.shape
        group = min(b, 4)
        std = x.view(group, -1, 1, c, h, w)
        std = torch.sqrt(std.var(0, unbiased=False) + 1e-8)
        std = std.mean([2, 3, 4], keepdims=True).squeeze(2)
        return torch.cat([x, std.repeat(group, 1, h, w)], 1)

    return f, t(4, 2, 3, 3).requires_grad_()


@program(train=True)
def wasserstein_penalty() -> Made:
    def f(x: torch.Tensor) -> Any:
        return ((x.norm(2, dim=1) - 1) ** 2).mean() * 10

    return f, t().requires_grad_()


@program(train=True)
def modulated_convolution() -> Made:
    def f(x: torch.Tensor, weight: torch.Tensor, style: torch.Tensor) -> Any:
        b, c, h, w = x.shape
        weight = weight[None] * style[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(b, -1, 1, 1, 1)
        out = F.conv2d(x.view(1, b * c, h, w), weight.view(-1, c, 3, 3), padding=1, groups=b)
        return out.view(b, -1, h, w)

    return f, t(2, 2, 4, 4).requires_grad_(), t(3, 2, 3, 3, seed=1), t(2, 2, seed=2)


def sequence_mask(lengths: torch.Tensor, longest: Any = None) -> torch.Tensor:
    if longest is None:
        longest = lengths.data.max()
    at = torch.arange(0, longest).long()
    return at.unsqueeze(0).expand(lengths.size(0), longest) < lengths.unsqueeze(1)


@program(**NUMBERS)
def mask_of_lengths() -> Made:
    return lambda n: sequence_mask(n).float() * 2, torch.tensor([2, 5, 3])


@program()
def mask_of_lengths_and_a_size() -> Made:
    return lambda x, n: x * sequence_mask(n, x.size(1)).float(), t(3, 6), torch.tensor([2, 5, 3])


@program(**NUMBERS)
def mask_by_numpy() -> Made:
    def f(x: torch.Tensor, lengths: list[int]) -> Any:
        mask = np.zeros((len(lengths), max(lengths)), dtype=np.float32)
        for i, n in enumerate(lengths):
            mask[i, :n] = 1
        return x * torch.from_numpy(mask)

    return f, t(3, 5), [2, 5, 3]


@program()
def positions_by_numpy() -> Made:
    def table(n: int, d: int) -> torch.Tensor:
        angles = np.array([[p / np.power(10000, 2 * (j // 2) / d) for j in range(d)] for p in range(n)])
        angles[:, 0::2] = np.sin(angles[:, 0::2])
        angles[:, 1::2] = np.cos(angles[:, 1::2])
        return torch.FloatTensor(angles).unsqueeze(0)

    return lambda x: x + table(x.size(1), x.size(2)).to(x.device), t(2, 4, 6)


@program()
def subsequent_mask() -> Made:
    def f(x: torch.Tensor) -> Any:
        mask = np.triu(np.ones((1, x.size(-1), x.size(-1))), k=1).astype("uint8")
        keep = torch.from_numpy(mask) == 0
        return x.unsqueeze(1).masked_fill(~keep, -1e9).softmax(-1)

    return f, t(4, 6)


@program(train=True)
def focal_loss() -> Made:
    class Focal(nn.Module):
        def __init__(self, gamma: float = 2, alpha: Any = None, average: bool = True) -> None:
            super().__init__()
            self.gamma, self.alpha, self.average = gamma, alpha, average
            if isinstance(alpha, list):
                self.alpha = torch.Tensor(alpha)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            target = target.view(-1, 1)
            logpt = F.log_softmax(x, dim=1).gather(1, target).view(-1)
            pt = Variable(logpt.data.exp())
            if self.alpha is not None:
                if self.alpha.type() != x.data.type():
                    self.alpha = self.alpha.type_as(x.data)
                logpt = logpt * Variable(self.alpha.gather(0, target.data.view(-1)))
            loss = -1 * (1 - pt) ** self.gamma * logpt
            return loss.mean() if self.average else loss.sum()

    return Focal(alpha=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), t().requires_grad_(), torch.tensor([1, 0, 3, 5])


@program(train=True)
def dice_loss_by_scatter() -> Made:
    def f(x: torch.Tensor, target: torch.Tensor) -> Any:
        n = x.size(1)
        one_hot = torch.zeros(target.size(0), n).scatter_(1, target.unsqueeze(1), 1)
        probability = F.softmax(x, dim=1)
        inter = (probability * one_hot).sum(0)
        return 1 - ((2 * inter + 1) / (probability.sum(0) + one_hot.sum(0) + 1)).mean()

    return f, t().requires_grad_(), torch.tensor([1, 0, 3, 5])


@program(train=True, **SIZES)
def triplet_loss_of_hardest() -> Made:
    def f(x: torch.Tensor, labels: torch.Tensor) -> Any:
        n = x.size(0)
        dist = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(n, n)
        dist = dist + dist.t()
        dist = dist.addmm(x, x.t(), beta=1, alpha=-2).clamp(min=1e-12).sqrt()
        mask = labels.expand(n, n).eq(labels.expand(n, n).t())
        positive, negative = [], []
        for i in range(n):
            positive.append(dist[i][mask[i]].max().unsqueeze(0))
            negative.append(dist[i][mask[i] == 0].min().unsqueeze(0))
        a, b = torch.cat(positive), torch.cat(negative)
        return F.margin_ranking_loss(b, a, torch.ones_like(b), margin=0.3)

    return f, t().requires_grad_(), torch.tensor([1, 0, 1, 0])


@program(train=True)
def contrastive_loss() -> Made:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        z = F.normalize(torch.cat([a, b]), dim=-1)
        n = a.size(0)
        sim = z @ z.t() / 0.5
        sim.fill_diagonal_(-1e9) if not sim.requires_grad else None
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        labels = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
        return F.cross_entropy(sim, labels)

    return f, t().requires_grad_(), t(seed=1)


@program(train=True)
def weighted_loss_with_ignored() -> Made:
    def f(x: torch.Tensor, target: torch.Tensor) -> Any:
        valid = (target != 255).float()
        safe = target.clone()
        safe[target == 255] = 0
        loss = F.cross_entropy(x, safe, reduction="none") * valid
        return loss.sum() / torch.clamp(valid.sum(), min=1.0)

    return f, t().requires_grad_(), torch.tensor([1, 255, 3, 5])


@program(train=True, **SIZES)
def hard_example_mining() -> Made:
    def f(x: torch.Tensor, target: torch.Tensor) -> Any:
        loss = F.cross_entropy(x, target, reduction="none")
        threshold = loss.detach().sort(descending=True)[0][2]
        kept = loss[loss >= threshold]
        return kept.mean()

    return f, t().requires_grad_(), torch.tensor([1, 0, 3, 5])


@program(train=True)
def if_on_number_of_positives() -> Made:
    def f(x: torch.Tensor, target: torch.Tensor) -> Any:
        positive = (target > 0).float().sum().clamp(min=1)
        return F.smooth_l1_loss(x, target, reduction="sum") / positive

    return f, t().requires_grad_(), t(seed=2)


@program(train=True)
def graph_convolution() -> Made:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.FloatTensor(6, 3))
            self.register_parameter("bias", None)
            self.reset_parameters()

        def reset_parameters(self) -> None:
            bound = 1.0 / math.sqrt(self.weight.size(1))
            self.weight.data.uniform_(-bound, bound)

        def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
            out = torch.spmm(adjacency, torch.mm(x, self.weight))
            return out + self.bias if self.bias is not None else out

    torch.manual_seed(0)
    return Layer(), t(), torch.eye(4)


@program(train=True)
def graph_attention() -> Made:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(6, 3))
            self.a = nn.Parameter(torch.randn(6, 1))

        def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
            h = torch.mm(x, self.w)
            n = h.size()[0]
            pairs = torch.cat([h.repeat(1, n).view(n * n, -1), h.repeat(n, 1)], dim=1).view(n, -1, 6)
            e = F.leaky_relu(torch.matmul(pairs, self.a).squeeze(2), 0.2)
            attention = torch.where(adjacency > 0, e, -9e15 * torch.ones_like(e))
            attention = F.dropout(F.softmax(attention, dim=1), 0.5, training=False)
            return F.elu(torch.matmul(attention, h))

    torch.manual_seed(0)
    return Layer(), t(), (t(4, 4) > 0).float()


@program(**SIZES)
def message_passing_with_degrees() -> Made:
    def scatter(x: torch.Tensor, at: torch.Tensor, size: Any = None) -> torch.Tensor:
        if size is None:
            size = int(at.max()) + 1
        return torch.zeros(size, x.size(1)).scatter_add_(0, at[:, None].expand_as(x), x)

    def f(x: torch.Tensor, edges: torch.Tensor) -> Any:
        row, column = edges
        degree = scatter(torch.ones(row.size(0), 1), column, x.size(0))
        return scatter(x[row], column, x.size(0)) / degree.clamp(min=1)

    return f, t(), torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


@program(**SIZES)
def pooling_by_batch_index() -> Made:
    def f(x: torch.Tensor, batch: torch.Tensor) -> Any:
        size = int(batch.max().item() + 1)
        out = x.new_zeros(size, x.size(1)).index_add_(0, batch, x)
        count = torch.bincount(batch, minlength=size).clamp(min=1)
        return out / count[:, None]

    return f, t(), torch.tensor([0, 0, 1, 1])


@program(train=True)
def attention_with_lengths() -> Made:
    def f(q: torch.Tensor, k: torch.Tensor, lengths: torch.Tensor) -> Any:
        scores = torch.bmm(q, k.transpose(1, 2)) / np.sqrt(q.size(-1))
        mask = torch.arange(k.size(1))[None, :] >= lengths[:, None]
        scores = scores.masked_fill(mask.unsqueeze(1), -np.inf)
        return torch.bmm(F.softmax(scores, dim=-1), k)

    return f, t(2, 3, 4).requires_grad_(), t(2, 5, 4, seed=1), torch.tensor([3, 5])


@program(train=True)
def tacotron_style_decoder() -> Made:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(6, 6)
            self.out = nn.Linear(6, 6)

        def initial(self, x: torch.Tensor) -> None:
            self.h = Variable(x.data.new(x.size(0), 6).zero_())
            self.c = Variable(x.data.new(x.size(0), 6).zero_())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.initial(x)
            outs = []
            while len(outs) < 3:
                self.h, self.c = self.cell(x if not outs else outs[-1], (self.h, self.c))
                self.h = F.dropout(self.h, 0.1, self.training and False)
                outs += [self.out(self.h).squeeze(1)]
            return torch.stack(outs).transpose(0, 1)

    torch.manual_seed(0)
    return Decoder(), t()


@script
def gated(a: torch.Tensor, b: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n[0]
    both = a + b
    return torch.tanh(both[:, :k]) * torch.sigmoid(both[:, k:])


@program(**NUMBERS)
def wavenet_gate_scripted() -> Made:
    return lambda x: gated(x, x * 2, torch.IntTensor([3])), t()


@program(train=True)
def wavenet_of_causal_convolutions() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv1d(2, 4, 2, dilation=2**i, padding=2**i) for i in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            skips: Any = 0
            for i, layer in enumerate(self.layers):
                h = layer(x)[:, :, : -(2**i)]
                a, b = h.chunk(2, dim=1)
                h = a.tanh() * b.sigmoid()
                x = x + h
                skips = skips + h
            return skips / len(self.layers) ** 0.5

    torch.manual_seed(0)
    return Net(), t(1, 2, 9)


@program()
def spectrogram() -> Made:
    def f(x: torch.Tensor) -> Any:
        spec = torch.stft(x, 8, 4, 8, window=torch.hann_window(8), center=True, return_complex=True)
        spec = torch.view_as_real(spec)
        magnitude = torch.sqrt(spec.pow(2).sum(-1) + 1e-9)
        return torch.log(torch.clamp(magnitude, min=1e-5))

    return f, t(1, 32)


@program(train=True)
def coupling_layer() -> Made:
    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 6)
            w = torch.linalg.qr(t(6, 6))[0]
            self.w = nn.Parameter(w)

        def forward(self, x: torch.Tensor, reverse: bool = False) -> Any:
            x = x @ self.w
            logdet = torch.slogdet(self.w)[1]
            a, b = x.chunk(2, 1)
            log, shift = self.net(a).chunk(2, 1)
            return torch.cat([a, torch.exp(log) * b + shift], 1), log.sum() + logdet

    torch.manual_seed(0)
    return Flow(), t()


@program(train=True)
def vector_quantiser() -> Made:
    class Quantiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 6)
            self.embedding.weight.data.uniform_(-1 / 5, 1 / 5)

        def forward(self, z: torch.Tensor) -> Any:
            d = (z**2).sum(1, keepdim=True) + (self.embedding.weight**2).sum(1) - 2 * z @ self.embedding.weight.t()
            at = torch.argmin(d, dim=1).unsqueeze(1)
            one_hot = torch.zeros(at.shape[0], 5)
            one_hot.scatter_(1, at, 1)
            q = torch.matmul(one_hot, self.embedding.weight).view(z.shape)
            loss = torch.mean((q.detach() - z) ** 2) + 0.25 * torch.mean((q - z.detach()) ** 2)
            mean = torch.mean(one_hot, dim=0)
            perplexity = torch.exp(-torch.sum(mean * torch.log(mean + 1e-10)))
            return loss, z + (q - z).detach(), perplexity

    torch.manual_seed(0)
    return Quantiser(), t().requires_grad_()


@program(train=True)
def spatial_transformer() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(32, 6)
            self.fc.weight.data.zero_()
            self.fc.bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            theta = self.fc(x.view(x.size(0), -1)).view(-1, 2, 3)
            grid = F.affine_grid(theta, x.size(), align_corners=False)
            return F.grid_sample(x, grid, align_corners=False)

    torch.manual_seed(0)
    return Net(), t(1, 2, 4, 4)


@program(train=True)
def flow_warp() -> Made:
    def f(x: torch.Tensor, flow: torch.Tensor) -> Any:
        b, _, h, w = x.size()
        gy, gx = torch.meshgrid(torch.arange(0, h).type_as(x), torch.arange(0, w).type_as(x), indexing="ij")
        grid = torch.stack((gx, gy), 2).float()
        grid.requires_grad = False
        v = grid + flow
        vx = 2.0 * v[..., 0] / max(w - 1, 1) - 1.0
        vy = 2.0 * v[..., 1] / max(h - 1, 1) - 1.0
        return F.grid_sample(x, torch.stack((vx, vy), 3), align_corners=True)

    return f, t(1, 2, 4, 4).requires_grad_(), t(1, 4, 4, 2, seed=1)


@program(train=True)
def point_cloud_neighbours() -> Made:
    def f(x: torch.Tensor) -> Any:
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        xx = torch.sum(x**2, dim=1, keepdim=True)
        at = (-xx - inner - xx.transpose(2, 1)).topk(k=2, dim=-1)[1]
        b, d, n = x.size()
        device = torch.device("cuda" if x.is_cuda else "cpu")
        base = torch.arange(0, b, device=device).view(-1, 1, 1) * n
        at = (at + base).view(-1)
        x = x.transpose(2, 1).contiguous()
        feature = x.view(b * n, -1)[at, :].view(b, n, 2, d)
        return (feature - x.view(b, n, 1, d)).permute(0, 3, 1, 2).contiguous()

    return f, t(2, 3, 5).requires_grad_()


@program()
def rotation_matrices_by_numpy() -> Made:
    def f(x: torch.Tensor, angle: float) -> Any:
        c, s = np.cos(angle), np.sin(angle)
        matrix = torch.tensor([[c, -s], [s, c]], dtype=torch.float32)
        return x.view(-1, 2) @ matrix.t()

    return f, t(), 0.3


@program()
def metrics_by_numpy() -> Made:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x.detach().cpu().numpy(), y.numpy()
        error = np.abs(a - b).mean(axis=0)
        return torch.as_tensor(error) + float(np.log(2.0))

    return f, t(), t(seed=1)


@program(train=True)
def learned_positions_with_offset() -> Made:
    class Positions(nn.Embedding):
        def __init__(self) -> None:
            super().__init__(10, 6, padding_idx=1)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            mask = tokens.ne(self.padding_idx).int()
            at = (torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + self.padding_idx
            return super().forward(at)

    torch.manual_seed(0)
    return Positions(), torch.tensor([[3, 4, 1], [5, 1, 1]])


@program(breaks=True, train=True)
def reversible_block() -> Made:
    class Reversible(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, block: nn.Module) -> torch.Tensor:
            ctx.block = block
            with torch.no_grad():
                y = x + block(x)
            ctx.save_for_backward(x)
            return y.detach()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                y = x + ctx.block(x)
            y.backward(grad)
            return x.grad, None

    torch.manual_seed(0)
    block = nn.Linear(6, 6)
    return lambda x: Reversible.apply(x, block) * 2, t().requires_grad_()


@program()
def beam_of_scores() -> Made:
    def f(scores: torch.Tensor) -> Any:
        n = scores.size(-1)
        best, at = scores.view(-1).topk(3)
        beam = torch.div(at, n, rounding_mode="floor")
        token = at % n
        return best, beam.tolist() if False else beam, token

    return f, t()


@program(train=True)
def crf_forward() -> Made:
    def f(x: torch.Tensor, transitions: torch.Tensor) -> Any:
        alpha = torch.full((1, 6), -10000.0)
        alpha[0][2] = 0.0
        for feat in x:
            rows = []
            for tag in range(x.size(1)):
                score = alpha + transitions[tag].view(1, -1) + feat[tag].view(1, -1).expand(1, 6)
                rows.append(torch.logsumexp(score, 1).view(1))
            alpha = torch.cat(rows).view(1, -1)
        return torch.logsumexp(alpha + transitions[3], 1)

    return f, t().requires_grad_(), t(6, 6, seed=1)


@program(train=True)
def autoencoder_of_lazy_layers() -> Made:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten())
            self.mean, self.log_variance = nn.LazyLinear(2), nn.LazyLinear(2)
            self.decoder = nn.Linear(2, 5)

        def sample(self, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
            deviation = log_variance.mul(0.5).exp_()
            noise = Variable(deviation.data.new(deviation.size()).normal_())
            return noise.mul(deviation).add_(mean)

        def forward(self, x: torch.Tensor) -> Any:
            h = self.features(x)
            mean, log_variance = self.mean(h), self.log_variance(h)
            divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
            return self.decoder(self.sample(mean, log_variance)).mean() + divergence

    torch.manual_seed(0)
    return Encoder(), t(2, 3, 4, 4)


@program(train=True)
def blocks_dropped_by_a_schedule_of_numpys() -> Made:
    class DropBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 1, 1))
            self.rates = np.linspace(0.1, 0.3, 3)
            self.stage = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rate = self.rates[min(self.stage, len(self.rates) - 1)]
            x = x * self.weight
            if not self.training or rate == 0.0:
                return x
            seeds = (torch.rand(x.shape[0], *x.shape[2:]) < rate / 9).float()
            kept = 1 - F.max_pool2d(seeds[:, None], 3, stride=1, padding=1)
            return x * kept * kept.numel() / kept.sum()

    return DropBlock(), t(1, 2, 4, 4)
