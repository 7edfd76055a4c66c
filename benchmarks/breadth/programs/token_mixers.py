"""Layers that mix tokens: retention, latents, landmarks, Fourier, feature maps, softmaxes, experts, memories."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class ChunkedRetention(nn.Module):
    """Sun et al., 2023: decays of each head's own, quadratic inside chunks, a state from chunk to chunk."""

    def __init__(self, d: int, heads: int, chunk: int = 32) -> None:
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.qkvg = nn.Linear(d, 4 * d, bias=False)
        self.norm = nn.GroupNorm(heads, d)
        self.out = nn.Linear(d, d, bias=False)
        self.register_buffer("log_decay", torch.log(1 - 2.0 ** (-5 - torch.arange(heads).float())))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v, g = self.qkvg(x).chunk(4, -1)
        q, k, v = (y.view(b, t // self.chunk, self.chunk, self.heads, -1).transpose(2, 3) for y in (q, k, v))
        log_decay = self.get_buffer("log_decay")
        i = torch.arange(self.chunk, device=x.device)
        apart = i[:, None] - i
        inside = torch.where(apart >= 0, torch.exp(apart.clamp(min=0) * log_decay[:, None, None]), 0.0)
        since = torch.exp((i + 1) * log_decay[:, None])[..., None]
        until = torch.exp((self.chunk - 1 - i) * log_decay[:, None])[..., None]
        whole = torch.exp(self.chunk * log_decay)[:, None, None]
        k = k * k.size(-1) ** -0.5
        state = torch.zeros(b, self.heads, k.size(-1), v.size(-1), dtype=x.dtype, device=x.device)
        outputs = []
        for c in range(t // self.chunk):
            qc, kc, vc = q[:, c], k[:, c], v[:, c]
            outputs.append((qc @ kc.mT * inside) @ vc + (qc @ state) * since)
            state = state * whole + (kc * until).mT @ vc
        y = torch.stack(outputs, 1).transpose(2, 3).reshape(b * t, d)
        return self.out(self.norm(y).view(b, t, d) * F.silu(g))


def chunked_retention(place: Place) -> Made:
    d = place.size(64, 1024)
    return ChunkedRetention(d, place.size(4, 8)).to(place.device), (
        place.randn(place.size(2, 8), place.size(128, 1024), d),
    )


class Perceiver(nn.Module):
    """Jaegle et al., 2021: Fourier positions of pixels, a few latents that read them again and again."""

    def __init__(self, channels: int, latents: int, d: int, bands: int = 6, rounds: int = 3) -> None:
        super().__init__()
        self.bands, self.rounds = bands, rounds
        self.latents = nn.Parameter(0.1 * torch.randn(latents, d))
        self.to_kv = nn.Linear(channels + 2 * (2 * bands + 1), 2 * d)
        self.to_q, self.merge = nn.Linear(d, d), nn.Linear(d, d)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.mix = nn.MultiheadAttention(d, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, image: Tensor) -> Tensor:
        b, _, h, w = image.shape
        y, x = (torch.linspace(-1, 1, n, device=image.device, dtype=image.dtype) for n in (h, w))
        place = torch.stack(torch.meshgrid(y, x, indexing="ij"), -1)
        scales = torch.linspace(1, 16, self.bands, device=image.device, dtype=image.dtype) * math.pi
        angle = place[..., None] * scales
        position = torch.cat([place, angle.sin().flatten(-2), angle.cos().flatten(-2)], -1)
        tokens = torch.cat([image.permute(0, 2, 3, 1), position.expand(b, -1, -1, -1)], -1).flatten(1, 2)
        k, v = self.to_kv(tokens).chunk(2, -1)
        z = self.latents.expand(b, -1, -1)
        for _ in range(self.rounds):
            weights = (self.to_q(self.norm1(z)) @ k.mT * k.size(-1) ** -0.5).softmax(-1)
            z = z + self.merge(weights @ v)
            u = self.norm2(z)
            z = z + self.mix(u, u, u, need_weights=False)[0]
            z = z + self.mlp(self.norm3(z))
        return z.mean(1)


def perceiver(place: Place) -> Made:
    n = place.size(24, 112)
    return Perceiver(3, place.size(16, 128), place.size(32, 256)).to(place.device), (
        place.randn(place.size(2, 16), 3, n, n),
    )


def nystrom(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor, landmarks: int) -> Tensor:
    """Xiong et al., 2021: landmarks as means of segments, a pseudo-inverse by iteration, a convolution of values."""
    b, h, n, d = q.shape
    q = q * d**-0.5
    ql = q.view(b, h, landmarks, n // landmarks, d).mean(-2)
    kl = k.view(b, h, landmarks, n // landmarks, d).mean(-2)
    left, middle, right = ((x @ y.mT).softmax(-1) for x, y in ((q, kl), (ql, kl), (ql, k)))
    eye = torch.eye(landmarks, device=q.device, dtype=q.dtype)
    middle = middle + 0.5 * eye
    inverse = middle.mT / (middle.sum(-2).amax(-1)[..., None, None] * middle.sum(-1).amax(-1)[..., None, None])
    for _ in range(6):
        product = middle @ inverse
        inverse = 0.25 * inverse @ (13 * eye - product @ (15 * eye - product @ (7 * eye - product)))
    return (left @ inverse) @ (right @ v) + F.conv2d(v, kernel, padding=(kernel.size(2) // 2, 0), groups=h)


def landmarks(place: Place) -> Made:
    b, h, n, d, m = place.size(1, 4), place.size(2, 8), place.size(256, 4096), place.size(16, 64), place.size(16, 64)
    q, k, v = (place.randn(b, h, n, d).requires_grad_() for _ in range(3))
    return nystrom, (q, k, v, 0.1 * place.randn(h, 1, 33, 1), m)


class FourierMixer(nn.Module):
    """Lee-Thorp et al., 2021: the real part of a transform over tokens and channels in place of attention."""

    def __init__(self, d: int, depth: int = 3) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for i, mlp in enumerate(self.mlps):
            x = self.norms[2 * i](x + torch.fft.fft(torch.fft.fft(x, dim=-1, norm="ortho"), dim=-2, norm="ortho").real)
            x = self.norms[2 * i + 1](x + mlp(x))
        return x.square()


def fourier_mixer(place: Place) -> Made:
    d = place.size(64, 512)
    return FourierMixer(d).to(place.device), (place.randn(place.size(4, 16), place.size(64, 512), d),)


def taylor_attention(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    """Arora et al., 2024: exp's Taylor series as features, cumulated over chunks, exact inside of them."""
    t, d = q.shape[-2:]
    q = q * d**-0.5
    v = F.pad(v, (0, 1), value=1.0)

    def expand(x: Tensor) -> Tensor:
        second = (x[..., :, None] * x[..., None, :]).flatten(-2) / math.sqrt(2)
        return torch.cat([torch.ones_like(x[..., :1]), x, second], -1)

    qc, kc, vc = (x.unflatten(2, (t // chunk, chunk)) for x in (q, k, v))
    states = torch.einsum("bhcif,bhcie->bhcfe", expand(kc), vc)
    before = states.cumsum(2) - states
    scores = qc @ kc.mT
    near = (1 + scores + scores**2 / 2).tril() @ vc
    y = near + expand(qc) @ before
    return (y[..., :-1] / y[..., -1:]).flatten(2, 3)


def taylor(place: Place) -> Made:
    b, h, t, d = place.size(1, 4), place.size(2, 8), place.size(128, 2048), place.size(8, 16)
    q, k = (place.randn(b, h, t, d).requires_grad_() for _ in range(2))
    return taylor_attention, (q, k, place.randn(b, h, t, 4 * d).requires_grad_(), place.size(32, 128))


class MixtureOfSoftmaxes(nn.Module):
    """Yang et al., 2018: several softmaxes over one embedding, mixed by the context in probabilities."""

    def __init__(self, d: int, vocabulary: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.embedding = nn.Parameter(torch.randn(vocabulary, d) * d**-0.5)
        self.prior, self.latent = nn.Linear(d, parts, bias=False), nn.Linear(d, parts * d)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        prior = self.prior(x).log_softmax(-1)
        context = torch.tanh(self.latent(x)).unflatten(-1, (self.parts, -1))
        log_p = torch.log_softmax(context @ self.embedding.T, -1)
        return F.nll_loss(torch.logsumexp(prior[..., None] + log_p, 1), y)


def mixture_of_softmaxes(place: Place) -> Made:
    n, d, vocabulary = place.size(64, 1024), place.size(32, 256), place.size(1000, 16_384)
    model = MixtureOfSoftmaxes(d, vocabulary, place.size(4, 5)).to(place.device)
    return model, (place.randn(n, d), place.randint(vocabulary, n))


class ExpertChoice(nn.Module):
    """Zhou et al., 2022: every expert takes the tokens that it scores highest; what none took passes by."""

    def __init__(self, d: int, experts: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, d, hidden) * d**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, d) * hidden**-0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n = len(x)
        scores = self.gate(x).softmax(-1)
        weight, token = scores.T.topk(2 * n // scores.size(1), -1)
        taken = x[token]
        y = torch.bmm(F.gelu(torch.bmm(taken, self.up)), self.down) * weight[..., None]
        out = x.index_add(0, token.flatten(), y.flatten(0, 1))
        load = torch.zeros(n, device=x.device, dtype=x.dtype).scatter_add(0, token.flatten(), weight.flatten())
        return out, load.square()


def expert_choice(place: Place) -> Made:
    n, d = place.size(256, 8192), place.size(48, 512)
    return ExpertChoice(d, 8, 2 * d).to(place.device), (place.randn(n, d).requires_grad_(),)


def associative_memory(state: Tensor, patterns: Tensor, values: Tensor, beta: float = 4.0) -> tuple[Tensor, Tensor]:
    """Ramsauer et al., 2020: a continuous Hopfield network's updates until rest, its energy on the way."""
    patterns = F.normalize(patterns, dim=-1)
    energies = []
    for _ in range(5):
        match = beta * F.normalize(state, dim=-1) @ patterns.mT
        energies.append(0.5 * state.square().sum(-1) - torch.logsumexp(match, -1) / beta)
        state = 0.5 * state + 0.5 * match.softmax(-1) @ patterns
    return match.softmax(-1) @ values, torch.stack(energies)


def hopfield(place: Place) -> Made:
    n, m, d = place.size(128, 8192), place.size(256, 4096), place.size(32, 64)
    return associative_memory, (place.randn(n, d), place.randn(m, d), place.randn(m, 10))


ROWS: tuple[Row, ...] = (
    Row("program/chunked_multi_scale_retention", chunked_retention, "training"),
    Row("program/perceiver_latents", perceiver, "training"),
    Row("program/nystrom_landmarks", landmarks, "training"),
    Row("program/fourier_token_mixer", fourier_mixer, "training"),
    Row("program/taylor_feature_attention", taylor, "training"),
    Row("program/mixture_of_softmaxes", mixture_of_softmaxes, "training"),
    Row("program/expert_choice_routing", expert_choice, "training"),
    Row("program/hopfield_retrieval", hopfield),
)
