"""Models of series and of memory: matrices as states, controls, periods, Legendre windows, tapes, chosen variables."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class MatrixMemory(nn.Module):
    """xLSTM's mLSTM (Beck et al., 2024) in its parallel form: a stabilised matrix of gates in place of softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.up = nn.Linear(width, 4 * width)
        self.conv = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.q, self.k = nn.Linear(2 * width, 2 * width, bias=False), nn.Linear(2 * width, 2 * width, bias=False)
        self.v = nn.Linear(2 * width, 2 * width, bias=False)
        self.igate, self.fgate = nn.Linear(6 * width, heads), nn.Linear(6 * width, heads)
        self.norm = nn.GroupNorm(heads, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        xm, z = self.up(x).chunk(2, dim=-1)
        xc = F.silu(self.conv(xm.transpose(1, 2))[..., :s].transpose(1, 2))
        q, k, v = self.q(xc), self.k(xc), self.v(xm)
        gates = torch.cat([q, k, v], dim=-1)
        i = self.igate(gates).transpose(1, 2).float()
        log_f = F.logsigmoid(self.fgate(gates).float() + 3.0).transpose(1, 2)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        log_sums = torch.cat([log_f.new_zeros(b, self.heads, 1), log_f.cumsum(-1)], dim=-1)
        rep = log_sums[..., None].repeat(1, 1, 1, s + 1)
        log_fg = (rep - rep.transpose(-2, -1))[..., 1:, 1:]
        ltr = torch.tril(torch.ones((s, s), dtype=torch.bool, device=x.device))
        log_d = torch.where(ltr, log_fg, -float("inf")) + i.unsqueeze(-2)
        max_log_d = log_d.max(dim=-1, keepdim=True).values
        d = torch.exp(log_d - max_log_d)
        c = (q @ (k / math.sqrt(k.shape[-1])).transpose(-2, -1)) * d
        normaliser = torch.maximum(c.sum(-1, keepdim=True).abs(), torch.exp(-max_log_d))
        h = (c / (normaliser + 1e-6)).to(v.dtype) @ v
        h = self.norm(h.transpose(1, 2).reshape(b * s, -1)).view(b, s, -1)
        return x + self.down((h + xc) * F.silu(z))


def matrix_memory(place: Place) -> Made:
    width = place.size(16, 256)
    return MatrixMemory(width, place.size(2, 4)).to(place.device), (
        place.randn(place.size(2, 4), place.size(24, 512), width),
    )


class ActionBlock(nn.Module):
    """A residual block of diffusion policies: two convolutions, scale and shift from a condition."""

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, outputs, 5, padding=2), nn.GroupNorm(4, outputs), nn.Mish())
            for a in (inputs, outputs)
        )
        self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * outputs))
        self.outputs = outputs
        self.residual = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, cond: Tensor) -> Tensor:
        out = self.blocks[0](x)
        embed = self.cond_encoder(cond).reshape(x.shape[0], 2, self.outputs, 1)
        out = embed[:, 0, ...] * out + embed[:, 1, ...]
        return self.blocks[1](out) + self.residual(x)


class ActionUnet(nn.Module):
    """The network of diffusion policy (Chi et al., 2023): noise of a short plan, by step and observations."""

    def __init__(self, action: int, observed: int, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.dsed = dims[0]
        self.step = nn.Sequential(nn.Linear(dims[0], 4 * dims[0]), nn.Mish(), nn.Linear(4 * dims[0], dims[0]))
        cond = dims[0] + observed
        sizes = [action, *dims]
        pairs = list(itertools.pairwise(sizes))
        self.down_modules = nn.ModuleList(
            nn.ModuleList(
                [
                    ActionBlock(a, b, cond),
                    ActionBlock(b, b, cond),
                    nn.Conv1d(b, b, 3, 2, 1) if i < len(pairs) - 1 else nn.Identity(),
                ]
            )
            for i, (a, b) in enumerate(pairs)
        )
        self.mid = ActionBlock(dims[-1], dims[-1], cond)
        self.up_modules = nn.ModuleList(
            nn.ModuleList([ActionBlock(2 * b, a, cond), nn.ConvTranspose1d(a, a, 4, 2, 1)])
            for a, b in reversed(pairs[1:])
        )
        self.final = nn.Conv1d(dims[0], action, 1)

    def forward(self, sample: Tensor, timestep: Tensor, observation: Tensor, noise: Tensor) -> Tensor:
        half = self.dsed // 2
        emb = torch.exp(torch.arange(half, device=sample.device, dtype=sample.dtype) * -(math.log(10000) / (half - 1)))
        emb = timestep[:, None] * emb[None, :]
        cond = torch.cat([self.step(torch.cat((emb.sin(), emb.cos()), dim=-1)), observation], dim=-1)
        x, h = sample.permute(0, 2, 1), []
        for resnet, resnet2, downsample in self.down_modules:  # type: ignore[misc]
            x = resnet2(resnet(x, cond), cond)
            h.append(x)
            x = downsample(x)
        x = self.mid(x, cond)
        for resnet, upsample in self.up_modules:  # type: ignore[misc]
            x = torch.cat((x, h.pop()), dim=1)
            x = upsample(resnet(x, cond))
        return F.mse_loss(self.final(x).permute(0, 2, 1), noise)


def action_unet(place: Place) -> Made:
    b, d, k = place.size(4, 256), place.size(16, 128), 7
    return ActionUnet(k, 20, (d, 2 * d, 4 * d)).to(place.device), (
        place.randn(b, 16, k),
        place.randint(100, b),
        place.randn(b, 20),
        place.randn(b, 16, k),
    )


class InceptionTime(nn.Module):
    """InceptionTime (Fawaz et al., 2020): three long kernels beside a pooled one, shortcuts."""

    def __init__(self, channels: int, filters: int, depth: int, classes: int) -> None:
        super().__init__()
        width = 4 * filters
        self.bottlenecks, self.convs, self.pooled, self.bns = (nn.ModuleList() for _ in range(4))
        self.shortcuts = nn.ModuleList()
        for d in range(depth):
            n = channels if d == 0 else width
            self.bottlenecks.append(nn.Conv1d(n, filters, 1, bias=False))
            self.convs.append(
                nn.ModuleList(nn.Conv1d(filters, filters, k, padding=k // 2, bias=False) for k in (39, 19, 9))
            )
            self.pooled.append(nn.Conv1d(n, filters, 1, bias=False))
            self.bns.append(nn.BatchNorm1d(width))
            if d % 3 == 2:
                n = channels if d == 2 else width
                self.shortcuts.append(nn.Sequential(nn.Conv1d(n, width, 1, bias=False), nn.BatchNorm1d(width)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        res = x
        for d, (bottleneck, convs, pooled, bn) in enumerate(
            zip(self.bottlenecks, self.convs, self.pooled, self.bns, strict=True)
        ):
            y = bottleneck(x)
            parts = [conv(y) for conv in convs]  # type: ignore[attr-defined]
            parts.append(pooled(F.max_pool1d(x, 3, stride=1, padding=1)))
            x = F.relu(bn(torch.cat(parts, dim=1)))
            if d % 3 == 2:
                x = res = F.relu(x + self.shortcuts[d // 3](res))
        return self.head(x.mean(-1)).log_softmax(-1)


def inception_time(place: Place) -> Made:
    model = InceptionTime(place.size(3, 9), place.size(8, 32), 6, 12).to(place.device).eval()
    return model, (place.randn(place.size(2, 64), place.size(3, 9), place.size(80, 512)),)


class DenseEncoderBlock(nn.Module):
    """A residual block of TiDE."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
        self.skip = nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.dense(x) + self.skip(x))


class DenseTimeEncoder(nn.Module):
    """TiDE (Das et al., 2023) with reversible instance norms: look back and covariates, dense layers alone."""

    def __init__(self, back: int, ahead: int, covariates: int, reduced: int, hidden: int, temporal: int) -> None:
        super().__init__()
        self.back, self.ahead, self.temporal = back, ahead, temporal
        self.affine_weight, self.affine_bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))
        self.feature_encoder = DenseEncoderBlock(covariates, hidden, reduced)
        self.encoders = nn.Sequential(
            DenseEncoderBlock(back + (back + ahead) * reduced, hidden, hidden),
            DenseEncoderBlock(hidden, hidden, hidden),
        )
        self.decoders = nn.Sequential(
            DenseEncoderBlock(hidden, hidden, hidden), DenseEncoderBlock(hidden, hidden, temporal * ahead)
        )
        self.temporal_decoder = DenseEncoderBlock(temporal + reduced, hidden, 1)
        self.temporal_decoder.norm = nn.Identity()  # type: ignore[assignment]
        self.residual_proj = nn.Linear(back, ahead)

    def forward(self, x: Tensor, marks: Tensor, target: Tensor) -> Tensor:
        means = x.mean(1, keepdim=True).detach()
        x = x - means
        stdev = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
        x = x / stdev * self.affine_weight + self.affine_bias
        feature = self.feature_encoder(marks)
        outs = []
        for i in range(x.shape[-1]):
            series = x[:, :, i]
            hidden = self.encoders(torch.cat([series, feature.reshape(feature.shape[0], -1)], dim=-1))
            decoded = self.decoders(hidden).reshape(hidden.shape[0], self.ahead, self.temporal)
            out = self.temporal_decoder(torch.cat([feature[:, self.back :], decoded], dim=-1)).squeeze(-1)
            outs.append(out + self.residual_proj(series))
        dec = torch.stack(outs, dim=-1)
        dec = (dec - self.affine_bias) / (self.affine_weight + 1e-10) * stdev + means
        return F.l1_loss(dec, target)


def dense_time(place: Place) -> Made:
    b, back, ahead, c = place.size(4, 256), place.size(24, 168), place.size(12, 96), place.size(2, 7)
    return DenseTimeEncoder(back, ahead, 5, 4, place.size(32, 256), 8).to(place.device), (
        place.randn(b, back, c).cumsum(1),
        place.randn(b, back + ahead, 5),
        place.randn(b, ahead, c),
    )


class PeriodsAsPictures(nn.Module):
    """TimesNet's block (Wu et al., 2023): the strongest periods fold the series into pictures for two convolutions."""

    def __init__(self, width: int, k: int) -> None:
        super().__init__()
        self.k = k
        self.convs1 = nn.ModuleList(nn.Conv2d(width, 2 * width, 2 * i + 1, padding=i) for i in range(3))
        self.convs2 = nn.ModuleList(nn.Conv2d(2 * width, width, 2 * i + 1, padding=i) for i in range(3))

    def forward(self, x: Tensor) -> Tensor:
        b, t, n = x.size()
        xf = torch.fft.rfft(x, dim=1)
        frequency_list = abs(xf).mean(0).mean(-1)
        frequency_list[0] = 0
        _, top_list = torch.topk(frequency_list, self.k)
        period_list = [t // f for f in top_list.tolist()]
        period_weight = abs(xf).mean(-1)[:, top_list]
        res = []
        for period in period_list:
            length = -(-t // period) * period
            out = x
            if length != t:
                out = torch.cat([x, torch.zeros([b, length - t, n], dtype=x.dtype, device=x.device)], dim=1)
            out = out.reshape(b, length // period, period, n).permute(0, 3, 1, 2).contiguous()
            out = torch.stack([conv(out) for conv in self.convs1], dim=-1).mean(-1)
            out = torch.stack([conv(F.gelu(out)) for conv in self.convs2], dim=-1).mean(-1)
            res.append(out.permute(0, 2, 3, 1).reshape(b, -1, n)[:, :t, :])
        weights = F.softmax(period_weight, dim=1).unsqueeze(1).unsqueeze(1).repeat(1, t, n, 1)
        return torch.sum(torch.stack(res, dim=-1) * weights, -1) + x


def periods(place: Place) -> Made:
    b, t, n = place.size(2, 32), place.size(48, 192), place.size(8, 64)
    time = torch.arange(t)[None, :, None] * (2 * math.pi)
    waves = 2.0 * torch.sin(time / 24 + torch.rand(b, 1, n)) + torch.cos(time / 7 + torch.rand(b, 1, n))
    return PeriodsAsPictures(n, 3).to(place.device), (waves.to(place.device) + 0.3 * place.randn(b, t, n),)


class ControlledPaths(nn.Module):
    """Neural controlled differential equations (Kidger et al., 2020): Hermite splines of data drive a state."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.channels, self.hidden = channels, hidden
        self.initial = nn.Linear(channels, hidden)
        self.linear1, self.linear2 = nn.Linear(hidden, 128), nn.Linear(128, channels * hidden)
        self.readout = nn.Linear(hidden, 1)

    def field(self, z: Tensor) -> Tensor:
        return self.linear2(self.linear1(z).relu()).tanh().view(*z.shape[:-1], self.hidden, self.channels)

    def forward(self, x: Tensor, times: Tensor, label: Tensor) -> Tensor:
        delta = times[1:] - times[:-1]
        derivs = (x[:, 1:] - x[:, :-1]) / delta[:, None]
        before = torch.cat([derivs[:, :1], derivs[:, :-1]], dim=1)
        two_c = 2 * (3 * (derivs - before) / delta[:, None] - (derivs - before) / delta[:, None])
        three_d = (-2 * (derivs - before)) / delta[:, None] ** 2 - (derivs - before) / delta[:, None] ** 2
        z = self.initial(x[:, 0])
        for i in range(len(delta)):
            h = delta[i]

            def slope(t: Tensor, i: int = i) -> Tensor:
                return before[:, i] + (two_c[:, i] + three_d[:, i] * t) * t

            k1 = (self.field(z) @ slope(0 * h)[..., None]).squeeze(-1)
            k2 = (self.field(z + h / 2 * k1) @ slope(h / 2)[..., None]).squeeze(-1)
            z = z + h * k2
        return F.binary_cross_entropy_with_logits(self.readout(z).squeeze(-1), label)


def controlled_paths(place: Place) -> Made:
    b, t, c = place.size(8, 256), place.size(8, 12), place.size(3, 6)
    times = torch.cumsum(0.2 + torch.rand(t), 0).to(place.device)
    return ControlledPaths(c, place.size(8, 64)).to(place.device), (
        0.3 * place.randn(b, t, c).cumsum(1),
        times,
        place.randint(2, b).float(),
    )


class LiquidTimeConstants(nn.Module):
    """Liquid networks (Hasani et al., 2021): synapses with sigmoids, fused steps that solve each cell's equation."""

    def __init__(self, inputs: int, units: int, unfolds: int) -> None:
        super().__init__()
        self.unfolds = unfolds
        self.gleak, self.vleak = nn.Parameter(torch.rand(units) + 0.01), nn.Parameter(torch.rand(units) * 0.4 - 0.2)
        self.cm = nn.Parameter(torch.rand(units) * 0.2 + 0.4)
        for name, rows in (("sensory_", inputs), ("", units)):
            setattr(self, name + "w", nn.Parameter(torch.rand(rows, units)))
            setattr(self, name + "mu", nn.Parameter(torch.rand(rows, units) * 0.5 + 0.3))
            setattr(self, name + "sigma", nn.Parameter(torch.rand(rows, units) * 5 + 3))
            setattr(self, name + "erev", nn.Parameter(torch.randint(2, (rows, units)).float() * 2 - 1))
        self.register_buffer("mask", (torch.rand(units, units) < 0.5).float())
        self.out = nn.Linear(units, 2)

    def synapses(self, v: Tensor, name: str) -> tuple[Tensor, Tensor]:
        w, mu, sigma, erev = (getattr(self, name + k) for k in ("w", "mu", "sigma", "erev"))
        activation = F.softplus(w) * torch.sigmoid(sigma * (torch.unsqueeze(v, -1) - mu))
        if not name:
            activation = activation * self.mask
        return torch.sum(activation * erev, dim=1), torch.sum(activation, dim=1)

    def forward(self, x: Tensor, elapsed: Tensor) -> Tensor:
        v = x.new_zeros(x.size(0), self.cm.numel())
        outputs = []
        for t in range(x.size(1)):
            rev_s, act_s = self.synapses(x[:, t], "sensory_")
            cm_t = F.softplus(self.cm) / ((elapsed[:, t : t + 1] + 1.0) / self.unfolds)
            gleak = F.softplus(self.gleak)
            for _ in range(self.unfolds):
                rev, act = self.synapses(v, "")
                numerator = cm_t * v + gleak * self.vleak + rev + rev_s
                v = numerator / (cm_t + gleak + act + act_s + 1e-8)
            outputs.append(self.out(v))
        return torch.stack(outputs, dim=1)


def liquid_cells(place: Place) -> Made:
    b, t, inputs = place.size(4, 128), place.size(4, 6), place.size(4, 16)
    return LiquidTimeConstants(inputs, place.size(12, 64), 4).to(place.device), (
        place.randn(b, t, inputs).requires_grad_(),
        place.rand(b, t),
    )


class LegendreMemory(nn.Module):
    """The Legendre memory unit (Voelker et al., 2019): a window's polynomial coefficients beside a hidden state."""

    def __init__(self, inputs: int, hidden: int, order: int, theta: float) -> None:
        super().__init__()
        q = torch.arange(order, dtype=torch.float64)
        r = (2 * q + 1)[:, None] / theta
        i, j = q[:, None], q[None, :]
        a = torch.where(i < j, -1.0, (-1.0) ** (i - j + 1)) * r
        b = (-1.0) ** q[:, None] * r
        eye = torch.eye(order, dtype=torch.float64)
        discrete = torch.linalg.matrix_exp(a)
        self.register_buffer("a", discrete.float())
        self.register_buffer("b", (torch.linalg.solve(a, discrete - eye) @ b).float())
        self.e_x, self.e_h = nn.Parameter(torch.randn(1, inputs)), nn.Parameter(torch.randn(1, hidden) / hidden**0.5)
        self.e_m = nn.Parameter(torch.zeros(1, order))
        self.w_x, self.w_h = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.w_m = nn.Linear(order, hidden, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.zeros(x.size(0), self.w_h.weight.size(0), dtype=x.dtype, device=x.device)
        m = torch.zeros(x.size(0), self.a.size(0), dtype=x.dtype, device=x.device)
        for t in range(x.size(1)):
            x_t = x[:, t, :]
            u = F.linear(x_t, self.e_x) + F.linear(h, self.e_h) + F.linear(m, self.e_m)
            m = F.linear(m, self.a) + F.linear(u, self.b)
            h = torch.tanh(self.w_x(x_t) + self.w_h(h) + self.w_m(m))
        return h, m


def legendre_memory(place: Place) -> Made:
    model = LegendreMemory(1, place.size(24, 212), place.size(16, 256), float(place.size(12, 60)))
    return model.to(place.device), (place.rand(place.size(4, 100), place.size(12, 60), 1),)


def addressed(
    controls: Tensor, memory: Tensor, w: Tensor, key_w: Tensor, gate_w: Tensor, erase_w: Tensor, add_w: Tensor
) -> tuple[Tensor, Tensor]:
    """A neural Turing machine's head (Graves et al., 2014): by content, by gates, by shifts, sharpened; then writes."""
    n = memory.size(1)
    reads = []
    for c in controls.unbind(1):
        k = torch.tanh(c @ key_w)
        beta, g, s0, s1, s2, gamma = (c @ gate_w).split(1, dim=1)
        s = torch.softmax(torch.cat([s0, s1, s2], dim=1), dim=1)
        similarity = F.cosine_similarity(memory + 1e-16, k.unsqueeze(1) + 1e-16, dim=-1)
        wc = F.softmax(F.softplus(beta) * similarity, dim=1)
        wg = torch.sigmoid(g) * wc + (1 - torch.sigmoid(g)) * w
        wrapped = torch.cat([wg[:, -1:], wg, wg[:, :1]], dim=1)
        shifted = torch.zeros_like(wg)
        for i in range(3):
            shifted = shifted + wrapped[:, i : i + n] * s[:, i : i + 1]
        w = shifted ** (1 + F.softplus(gamma))
        w = w / (w.sum(dim=1, keepdim=True) + 1e-16)
        reads.append(torch.bmm(w.unsqueeze(1), memory).squeeze(1))
        e, a = torch.sigmoid(c @ erase_w), torch.tanh(c @ add_w)
        memory = memory * (1 - torch.einsum("bn,bm->bnm", w, e)) + torch.einsum("bn,bm->bnm", w, a)
    return torch.stack(reads, dim=1), memory


def tape_memory(place: Place) -> Made:
    b, t, n, m, c = place.size(4, 64), place.size(5, 8), place.size(16, 128), place.size(8, 20), place.size(16, 100)

    def weight(columns: int) -> Tensor:
        return (place.randn(c, columns) / c**0.5).requires_grad_()

    controls = place.randn(b, t, c)
    start = torch.softmax(place.randn(b, n), dim=1)
    return addressed, (controls, 0.1 * place.randn(b, n, m), start, weight(m), weight(6), weight(m), weight(m))


class GatedResidual(nn.Module):
    """A gated residual network, with an optional context."""

    def __init__(self, inputs: int, hidden: int, outputs: int, context: int = 0) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.context = nn.Linear(context, hidden, bias=False) if context else None
        self.glu = nn.Linear(hidden, 2 * outputs)
        self.skip = nn.Linear(inputs, outputs) if inputs != outputs else nn.Identity()
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        y = self.fc1(x)
        if self.context is not None and context is not None:
            y = y + self.context(context)
        return self.norm(self.skip(x) + F.glu(self.glu(self.fc2(F.elu(y)))))


class VariableSelection(nn.Module):
    """The temporal fusion transformer's front (Lim et al., 2019): embedded variables, each weighed step by step."""

    def __init__(self, reals: int, cards: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.prescalers = nn.ModuleList(nn.Linear(1, width) for _ in range(reals))
        self.embeddings = nn.ModuleList(nn.Embedding(c, width, padding_idx=0) for c in cards)
        n = reals + len(cards)
        self.flattened = GatedResidual(n * width, width, n, context=width)
        self.single = nn.ModuleList(GatedResidual(width, width // 2, width) for _ in range(n))
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.quantiles = nn.Linear(width, 3)

    def forward(self, reals: Tensor, cats: Tensor, static: Tensor, target: Tensor) -> Tensor:
        variables: list[Tensor] = [layer(reals[..., i : i + 1]) for i, layer in enumerate(self.prescalers)]
        variables += [emb(cats[..., i]) for i, emb in enumerate(self.embeddings)]
        context = static.unsqueeze(1).expand(-1, reals.size(1), -1)
        weights = torch.softmax(self.flattened(torch.cat(variables, dim=-1), context), dim=-1).unsqueeze(-2)
        outs = torch.stack([grn(v) for grn, v in zip(self.single, variables, strict=True)], dim=-1)
        hidden: Any = self.lstm((outs * weights).sum(-1))[0]
        errors = target[..., None] - self.quantiles(hidden)
        q = errors.new_tensor([0.1, 0.5, 0.9])
        return torch.max((q - 1) * errors, q * errors).sum(-1).mean()


def variable_selection(place: Place) -> Made:
    b, t, width = place.size(4, 64), place.size(8, 48), place.size(16, 160)
    cards = (8, 25, 32, 13)
    cats = torch.stack([torch.randint(c, (b, t)) for c in cards], dim=-1).to(place.device)
    model = VariableSelection(5, cards, width).to(place.device)
    return model, (place.randn(b, t, 5), cats, place.randn(b, width), place.randn(b, t))


ROWS: tuple[Row, ...] = (
    Row("program/matrix_memory_parallel", matrix_memory, "training"),
    Row("program/conditional_action_unet", action_unet, "training", autocast=torch.bfloat16),
    Row("program/inception_time_blocks", inception_time, dtype=torch.float16),
    Row("program/dense_time_encoder", dense_time, "training"),
    Row("program/periods_as_pictures", periods),
    Row("program/controlled_differential_paths", controlled_paths, "training"),
    Row("program/liquid_time_constants", liquid_cells, "training"),
    Row("program/legendre_memory", legendre_memory),
    Row("program/addressed_tape_memory", tape_memory, "training"),
    Row("program/variable_selection_network", variable_selection, "training"),
)
