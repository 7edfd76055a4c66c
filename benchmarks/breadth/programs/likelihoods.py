"""Models with a likelihood or a score, and waves: flows, pixels, styles, relations, filters, speakers, percussion."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Glow(nn.Module):
    """Kingma and Dhariwal, 2018: squeezed images, normalised activations, invertible convolutions, affine couplings."""

    def __init__(self, channels: int, hidden: int, depth: int) -> None:
        super().__init__()
        c = 4 * channels
        self.scale, self.shift = nn.Parameter(0.1 * torch.randn(depth, c)), nn.Parameter(0.1 * torch.randn(depth, c))
        self.mix = nn.Parameter(torch.eye(c) + 0.1 * torch.randn(depth, c, c))
        self.nets = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(c // 2, hidden, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(hidden, hidden, 1),
                nn.ReLU(),
                nn.Conv2d(hidden, c, 3, padding=1),
            )
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.pixel_unshuffle(x, 2)
        area = x.size(-1) * x.size(-2)
        log_det = torch.zeros(len(x), device=x.device, dtype=x.dtype)
        for i, net in enumerate(self.nets):
            x = (x + self.shift[i, :, None, None]) * self.scale[i, :, None, None].exp()
            x = F.conv2d(x, self.mix[i, :, :, None, None])
            log_det = log_det + area * (self.scale[i].sum() + torch.linalg.slogdet(self.mix[i])[1])
            a, b = x.chunk(2, 1)
            log_s, t = net(a).chunk(2, 1)
            s = torch.sigmoid(log_s + 2)
            x = torch.cat([a, (b + t) * s], 1)
            log_det = log_det + s.log().sum((1, 2, 3))
        prior = -0.5 * (x.square() + math.log(2 * math.pi)).sum((1, 2, 3))
        return -(prior + log_det) / x[0].numel()


def glow(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(16, 64)
    return Glow(3, place.size(16, 128), 4).to(place.device), (place.rand(b, 3, n, n),)


class MaskedAutoregression(nn.Module):
    """Germain et al., 2015, stacked by Papamakarios et al., 2017: masked layers, orders reversed between flows."""

    def __init__(self, d: int, hidden: int, depth: int = 4) -> None:
        super().__init__()
        degree = torch.arange(hidden) % (d - 1)
        self.register_buffer("mask_in", (degree[:, None] >= torch.arange(d)).float())
        self.register_buffer("mask_out", (torch.arange(d)[:, None] > degree).float().repeat(2, 1))
        self.w1 = nn.Parameter(torch.randn(depth, hidden, d) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(depth, 2 * d, hidden) * hidden**-0.5)
        self.b1, self.b2 = nn.Parameter(torch.zeros(depth, hidden)), nn.Parameter(torch.zeros(depth, 2 * d))

    def forward(self, x: Tensor) -> Tensor:
        log_det = torch.zeros_like(x[:, 0])
        for i in range(len(self.w1)):
            h = torch.relu(F.linear(x, self.w1[i] * self.get_buffer("mask_in"), self.b1[i]))
            mean, log_scale = F.linear(h, self.w2[i] * self.get_buffer("mask_out"), self.b2[i]).chunk(2, -1)
            log_scale = 2 * torch.tanh(log_scale / 2)
            x = ((x - mean) * torch.exp(-log_scale)).flip(-1)
            log_det = log_det - log_scale.sum(-1)
        return 0.5 * x.square().sum(-1) - log_det


def autoregression(place: Place) -> Made:
    n, d = place.size(512, 16_384), place.size(12, 64)
    return MaskedAutoregression(d, place.size(64, 512)).to(place.device), (place.randn(n, d),)


class GatedPixels(nn.Module):
    """Van den Oord et al., 2016, with Salimans et al., 2017: masked convolutions, mixtures of logistics."""

    def __init__(self, width: int, parts: int = 5) -> None:
        super().__init__()
        mask = torch.ones(5, 5)
        mask[2, 2:] = 0
        mask[3:] = 0
        after = mask.clone()
        after[2, 2] = 1
        self.register_buffer("first_mask", mask)
        self.register_buffer("mask", after)
        self.first = nn.Parameter(torch.randn(2 * width, 1, 5, 5) / 4)
        self.rest = nn.Parameter(torch.randn(3, 2 * width, width, 5, 5) / (4 * width**0.5))
        self.head = nn.Conv2d(width, 3 * parts, 1)

    def forward(self, image: Tensor) -> Tensor:
        x = image.to(self.first.dtype) / 127.5 - 1
        h = F.glu(F.conv2d(x, self.first * self.get_buffer("first_mask"), padding=2), 1)
        for weight in self.rest:
            a, b = F.conv2d(h, weight * self.get_buffer("mask"), padding=2).chunk(2, 1)
            h = h + torch.tanh(a) * torch.sigmoid(b)
        logit, mean, log_scale = self.head(F.elu(h)).chunk(3, 1)
        inverse = torch.exp(-log_scale.clamp(min=-3) + 1)
        gap = x - mean
        up, down = inverse * (gap + 1 / 255), inverse * (gap - 1 / 255)
        inside = (torch.sigmoid(up) - torch.sigmoid(down)).clamp(min=1e-5).log()
        log_p = torch.where(image < 1, F.logsigmoid(up), torch.where(image > 254, -F.softplus(down), inside))
        return -torch.logsumexp(log_p + logit.log_softmax(1), 1).mean((1, 2))


def pixels(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(20, 64)
    return GatedPixels(place.size(12, 64)).to(place.device), (place.randint(256, b, 1, n, n).to(torch.uint8),)


class StyledSynthesis(nn.Module):
    """Karras et al., 2020: weights scaled by a style and demodulated, grouped over the batch, blurred upsampling."""

    def __init__(self, width: int, style: int, blocks: int = 3) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, width, 4, 4))
        self.mapping = nn.Sequential(nn.Linear(style, style), nn.LeakyReLU(0.2), nn.Linear(style, style))
        self.affine = nn.ModuleList(nn.Linear(style, width) for _ in range(blocks))
        self.weight = nn.Parameter(torch.randn(blocks, width, width, 3, 3) * (9 * width) ** -0.5)
        self.strength = nn.Parameter(0.1 * torch.ones(blocks))
        self.rgb = nn.ModuleList(nn.Conv2d(width, 3, 1) for _ in range(blocks))
        blur = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 4
        self.register_buffer("blur", blur[:, None] * blur)

    def up(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = F.pad(x.view(b, c, h, 1, w, 1), (0, 1, 0, 0, 0, 1)).view(b * c, 1, 2 * h, 2 * w)
        return F.conv2d(F.pad(x, (2, 1, 2, 1)), self.get_buffer("blur")[None, None]).view(b, c, 2 * h, 2 * w)

    def forward(self, z: Tensor, noise: list[Tensor]) -> Tensor:
        style = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8))
        b = len(z)
        x = self.start.expand(b, -1, -1, -1)
        image = torch.zeros(b, 3, 4, 4, device=z.device, dtype=z.dtype)
        for i, (affine, to_rgb) in enumerate(zip(self.affine, self.rgb, strict=True)):
            weight = self.weight[i] * (1 + affine(style))[:, None, :, None, None]
            weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
            x = self.up(x)
            y = F.conv2d(x.flatten(0, 1)[None], weight.flatten(0, 1), padding=1, groups=b).view_as(x)
            x = F.leaky_relu(y + self.strength[i] * noise[i], 0.2) * math.sqrt(2)
            image = self.up(image) + to_rgb(x)
        return F.softplus(image).square()


def styles(place: Place) -> Made:
    b, width, style = place.size(2, 16), place.size(12, 128), place.size(16, 256)
    noise = [place.randn(b, 1, 4 * 2**i, 4 * 2**i) for i in (1, 2, 3)]
    return StyledSynthesis(width, style).to(place.device), (place.randn(b, style), noise)


class Rotations(nn.Module):
    """Sun et al., 2019 (RotatE): relations turn complex entities; self-adversarial negatives of either side."""

    def __init__(self, entities: int, relations: int, d: int) -> None:
        super().__init__()
        self.entity = nn.Parameter(torch.randn(entities, d, 2))
        self.phase = nn.Parameter((2 * torch.rand(relations, d) - 1) * math.pi)

    def forward(self, triple: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        entity = torch.view_as_complex(self.entity)
        head, relation, tail = triple.unbind(1)
        turn = torch.polar(torch.ones_like(self.phase[relation]), self.phase[relation])
        h, t, other = entity[head], entity[tail], entity[negative]

        def distance(x: Tensor) -> Tensor:
            return (torch.view_as_real(x).square().sum(-1) + 1e-6).sqrt().sum(-1)

        margin = 1.5 * self.entity.size(1)
        positive = F.logsigmoid(margin - distance(h * turn - t))
        scores = margin - distance((h * turn)[:, None] - other)
        weight = (0.1 * scores).softmax(1).detach()
        return -positive.mean(), -(weight * F.logsigmoid(-scores)).sum(1).mean()


def rotations(place: Place) -> Made:
    entities, relations, d, b = place.size(500, 40_000), 20, place.size(16, 200), place.size(128, 1024)
    head, tail, relation = place.randint(entities, b), place.randint(entities, b), place.randint(relations, b)
    model = Rotations(entities, relations, d).to(place.device)
    return model, (torch.stack([head, relation, tail], 1), place.randint(entities, b, place.size(16, 128)))


class SincFilters(nn.Module):
    """Ravanelli and Bengio, 2018: band passes with learnt edges, energies by channel, normalised with smoothed ones."""

    def __init__(self, filters: int, width: int = 129) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.linspace(0.01, 0.35, filters))
        self.band = nn.Parameter(torch.full((filters,), 0.04))
        self.smooth = nn.Parameter(torch.full((filters, 1), -2.0))
        self.power = nn.Parameter(torch.zeros(filters, 1))
        n = torch.arange(width) - width // 2
        self.register_buffer("n", n.float())
        self.register_buffer("window", torch.hamming_window(width, periodic=False))

    def forward(self, wave: Tensor) -> Tensor:
        n = self.get_buffer("n")
        low = self.low.abs()
        high = (low + self.band.abs()).clamp(max=0.5)
        taps = 2 * high[:, None] * torch.sinc(2 * high[:, None] * n) - 2 * low[:, None] * torch.sinc(
            2 * low[:, None] * n
        )
        y = F.conv1d(wave[:, None], (taps * self.get_buffer("window"))[:, None], padding=n.numel() // 2)
        energy = F.avg_pool1d(y.square(), 160)
        s = torch.sigmoid(self.smooth)
        state = energy[..., :1]
        states = [state]
        for t in range(1, min(energy.size(-1), 30)):
            state = (1 - s) * state + s * energy[..., t : t + 1]
            states.append(state)
        smooth = torch.cat(states, -1)
        r = torch.sigmoid(self.power)
        return (energy[..., : smooth.size(-1)] / (smooth + 1e-2) ** 0.9 + 2) ** r - 2**r


def sinc(place: Place) -> Made:
    b, n = place.size(2, 64), place.size(3200, 4800)
    return SincFilters(place.size(16, 80)).to(place.device), (place.randn(b, n),)


def permuted_speakers(estimate: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Yu et al., 2017, with Le Roux et al., 2019: scale-invariant ratios of all pairs, the best order of speakers."""
    estimate = estimate - estimate.mean(-1, keepdim=True)
    source = source - source.mean(-1, keepdim=True)
    dots = estimate @ source.mT
    target = (dots / (source.square().sum(-1)[:, None] + 1e-6))[..., None] * source[:, None]
    noise = estimate[:, :, None] - target
    ratio = 10 * torch.log10((target.square().sum(-1) + 1e-3) / (noise.square().sum(-1) + 1e-3))
    speakers = source.size(1)
    orders = torch.tensor(list(itertools.permutations(range(speakers))), device=source.device)
    scores = ratio[:, torch.arange(speakers, device=source.device), orders].mean(-1)
    best, order = scores.max(1)
    return -best, orders[order]


def speakers(place: Place) -> Made:
    b, s, n = place.size(4, 64), 3, place.size(2000, 64_000)
    source = place.randn(b, s, n)
    return permuted_speakers, ((source.roll(1, 1) + place.randn(b, s, n)).requires_grad_(), source)


def harmonic_percussive(wave: Tensor, size: int = 512, reach: int = 8) -> tuple[Tensor, Tensor]:
    """Fitzgerald, 2010: medians along time and along frequency of a spectrogram, soft masks, two waves again."""
    window = torch.hann_window(size, device=wave.device, dtype=wave.dtype)
    spectrum = torch.stft(wave, size, size // 4, window=window, return_complex=True)
    magnitude = spectrum.abs()
    width = 2 * reach + 1
    along_time = F.pad(magnitude, (reach, reach), mode="reflect").unfold(2, width, 1).median(-1).values
    along_pitch = F.pad(magnitude.mT, (reach, reach), mode="reflect").unfold(2, width, 1).median(-1).values.mT
    h, p = along_time**2, along_pitch**2
    share = (h + 1e-4) / (h + p + 2e-4)
    n = wave.size(-1)
    waves = [torch.istft(spectrum * mask, size, size // 4, window=window, length=n) for mask in (share, 1 - share)]
    return waves[0], waves[1]


def percussion(place: Place) -> Made:
    b, n = place.size(1, 16), place.size(8000, 160_000)
    tone = torch.sin(torch.arange(n) * 0.2).to(place.device)
    return harmonic_percussive, (tone + place.randn(b, n) * (place.rand(b, n) < 0.02),)


ROWS: tuple[Row, ...] = (
    Row("program/glow_couplings", glow, "training"),
    Row("program/masked_autoregressive_flow", autoregression, "training"),
    Row("program/gated_pixel_logistics", pixels, "training"),
    Row("program/styled_synthesis", styles, "training"),
    Row("program/complex_rotation_embeddings", rotations, "training"),
    Row("program/sinc_filter_bank", sinc, "training"),
    Row("program/permuted_speakers", speakers, "training"),
    Row("program/harmonic_percussive_medians", percussion),
)
