"""Small generative models with their losses."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class VAE(nn.Module):
    """Kingma and Welling's: binary cross entropy and KL; the noise is an argument."""

    def __init__(self, d: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(d, hidden), nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.fc3, self.fc4 = nn.Linear(latent, hidden), nn.Linear(hidden, d)

    def forward(self, x: Tensor, eps: Tensor) -> Tensor:
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + eps * torch.exp(0.5 * logvar)
        reconstruction = torch.sigmoid(self.fc4(F.relu(self.fc3(z))))
        bce = F.binary_cross_entropy(reconstruction, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return (bce + kld) / x.shape[0]


def vae(place: Place) -> Made:
    n, d = place.size(64, 4096), 784
    return VAE(d, place.size(256, 1024), 20).to(place.device), (place.rand(n, d), place.randn(n, 20))


class DoubleConv(nn.Sequential):
    """Twice convolution, group norm and SiLU."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(
            nn.Conv2d(a, b, 3, padding=1, bias=False),
            nn.GroupNorm(4, b),
            nn.SiLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1, bias=False),
            nn.GroupNorm(4, b),
            nn.SiLU(inplace=True),
        )


class UNet(nn.Module):
    """Two levels with skips, conditioned on the time step; the loss of a denoiser (DDPM with cosine schedule)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1, self.down2 = DoubleConv(3, width), DoubleConv(width, 2 * width)
        self.time = nn.Sequential(nn.Linear(32, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge, self.out = DoubleConv(2 * width, width), nn.Conv2d(width, 3, 1)

    def predict(self, x: Tensor, t: Tensor) -> Tensor:
        frequency = torch.exp(-math.log(1e4) * torch.arange(16, device=x.device, dtype=x.dtype) / 16)
        phase = 1000 * t[:, None] * frequency
        embedding = self.time(torch.cat([phase.sin(), phase.cos()], dim=-1))
        skip = self.down1(x)
        deep = self.down2(F.max_pool2d(skip, 2)) + embedding[:, :, None, None]
        return self.out(self.merge(torch.cat([self.up(deep), skip], dim=1)))

    def forward(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        alpha_bar = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square().clamp(1e-4, 0.9999).view(-1, 1, 1, 1)
        noisy = alpha_bar.sqrt() * x + (1 - alpha_bar).sqrt() * noise
        signal = alpha_bar / (1 - alpha_bar)
        weight = torch.minimum(signal, torch.full_like(signal, 5.0)) / signal
        return (weight * (self.predict(noisy, t) - noise) ** 2).mean()


def diffusion_training(place: Place) -> Made:
    n, side = place.size(2, 32), place.size(32, 64)
    model = UNet(place.size(16, 64)).to(place.device)
    return model, (place.rand(n, 3, side, side), place.randn(n, 3, side, side), place.rand(n))


def ddim_update(x: Tensor, cond: Tensor, uncond: Tensor, guidance: float = 5.0) -> Tensor:
    """Five DDIM updates with classifier-free guidance, rescaling and dynamic thresholding; eps drifts by hand."""
    betas = torch.linspace(1e-4**0.5, 0.02**0.5, 1000, dtype=x.dtype, device=x.device) ** 2
    alphas = torch.cumprod(1 - betas, dim=0)
    for t in range(900, 400, -100):
        a, previous = alphas[t], alphas[t - 100]
        eps = uncond + guidance * (cond - uncond)
        eps = 0.7 * eps * cond.std((1, 2, 3), keepdim=True) / eps.std((1, 2, 3), keepdim=True) + 0.3 * eps
        x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
        limit = x0.abs().flatten(1).mean(1).mul(3).clamp(min=1)[:, None, None, None]
        x0 = torch.max(torch.min(x0, limit), -limit) / limit
        eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
        x = previous.sqrt() * x0 + (1 - previous).sqrt() * eps
        uncond = 0.9 * uncond + 0.1 * eps
    return x


def ddim(place: Place) -> Made:
    shape = place.size(2, 32), 4, place.size(64, 128), place.size(64, 128)
    return ddim_update, (place.randn(*shape), place.randn(*shape), place.randn(*shape))


class TinyNeRF(nn.Module):
    """Mildenhall et al., 2020: samples on rays, positional encoding, an MLP, volume rendering by cumprod."""

    def __init__(self, width: int, octaves: int = 3) -> None:
        super().__init__()
        self.octaves = octaves
        d = 3 + 6 * octaves
        self.layer1, self.layer2, self.layer3 = nn.Linear(d, width), nn.Linear(width, width), nn.Linear(width, 4)

    def encode(self, p: Tensor) -> Tensor:
        parts = [p]
        for i in range(self.octaves):
            parts += [torch.sin(2.0**i * p), torch.cos(2.0**i * p)]
        return torch.cat(parts, -1)

    def forward(self, origin: Tensor, direction: Tensor, jitter: Tensor, target: Tensor) -> Tensor:
        samples = jitter.shape[1]
        z = torch.linspace(2.0, 6.0, samples, dtype=origin.dtype, device=origin.device) + jitter * 4 / samples
        points = origin[:, None] + direction[:, None] * z[..., None]
        h = F.relu(self.layer2(F.relu(self.layer1(self.encode(points)))))
        raw = self.layer3(h)
        sigma, rgb = F.softplus(raw[..., 3] - 1), torch.sigmoid(raw[..., :3])
        gaps = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], -1)
        alpha = 1 - torch.exp(-sigma * gaps)
        shifted = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1)
        weights = alpha * torch.cumprod(shifted, -1)[:, :-1]
        image = (weights[..., None] * rgb).sum(-2)
        depth = (weights * z).sum(-1)
        return ((image - target) ** 2).mean() + 1e-3 * depth.mean()


def nerf(place: Place) -> Made:
    rays, samples = place.size(64, 4096), place.size(32, 64)
    model = TinyNeRF(place.size(64, 256)).to(place.device)
    args = place.randn(rays, 3), place.randn(rays, 3) / 3, place.rand(rays, samples), place.rand(rays, 3)
    return model, args


def spectral_norm(weight: Tensor, u: Tensor) -> Tensor:
    """Miyato et al., 2018: one power iteration, gradient through sigma only."""
    w = weight.flatten(1)
    with torch.no_grad():
        v = F.normalize(w.t() @ u, dim=0)
        u = F.normalize(w @ v, dim=0)
    return weight / torch.dot(u, w @ v)


class Discriminator(nn.Module):
    """The logistic loss with spectral norm over strided convolutions, and a minibatch-deviation feature."""

    u1: Tensor
    u2: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(width, 3, 4, 4) * 0.05)
        self.w2 = nn.Parameter(torch.randn(2 * width, width, 4, 4) * 0.05)
        self.head = nn.Linear(2 * width + 1, 1)
        self.register_buffer("u1", F.normalize(torch.randn(width), dim=0))
        self.register_buffer("u2", F.normalize(torch.randn(2 * width), dim=0))

    def score(self, x: Tensor) -> Tensor:
        h = F.leaky_relu(F.conv2d(x, spectral_norm(self.w1, self.u1), stride=2, padding=1), 0.1)
        h = F.leaky_relu(F.conv2d(h, spectral_norm(self.w2, self.u2), stride=2, padding=1), 0.1)
        deviation = h.var(0, unbiased=False).add(1e-8).sqrt().mean().expand(len(h), 1)
        return self.head(torch.cat([h.sum((2, 3)) / 16, deviation], 1))

    def forward(self, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        real_score, fake_score = self.score(real), self.score(fake)
        loss = F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
        return loss, (real_score > 0).to(real.dtype).mean().detach()


def gan(place: Place) -> Made:
    n, side = place.size(8, 64), place.size(32, 64)
    return Discriminator(place.size(16, 64)).to(place.device), (
        place.rand(n, 3, side, side),
        place.randn(n, 3, side, side),
    )


class Coupling(nn.Module):
    """RealNVP's affine coupling of alternate halves, actnorm before each; the negative log-likelihood."""

    def __init__(self, d: int, hidden: int, layers: int = 4) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(d) * 0.1) for _ in range(layers)])
        self.nets = nn.ModuleList(
            [nn.Sequential(nn.Linear(d // 2, hidden), nn.GELU(), nn.Linear(hidden, d)) for _ in range(layers)]
        )

    def forward(self, x: Tensor) -> Tensor:
        log_det = x.new_zeros(x.shape[0])
        for scale, net in zip(self.scales, self.nets, strict=True):
            x = x * scale.exp()
            a, b = x.chunk(2, dim=1)
            s, t = net(a).chunk(2, dim=1)
            s = torch.tanh(s)
            x = torch.cat([b * s.exp() + t, a], dim=1)
            log_det = log_det + s.sum(1) + scale.sum()
        return 0.5 * (x * x).sum(1) - log_det


def normalizing_flow(place: Place) -> Made:
    d = place.size(32, 64)
    return Coupling(d, place.size(128, 1024)).to(place.device), (place.randn(place.size(512, 65_536), d),)


ROWS: tuple[Row, ...] = (
    Row("program/vae", vae, "training"),
    Row("program/unet_denoiser", diffusion_training, "training"),
    Row("program/ddim_update", ddim),
    Row("program/nerf", nerf, "training"),
    Row("program/spectral_norm_gan", gan, "training"),
    Row("program/coupling_flow", normalizing_flow, "training"),
)
