"""Operators with a symmetry, or on functions: tensor products, rotations, Clifford algebra, spheres, operators."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class TensorProduct(nn.Module):
    """Geiger and Smidt's e3nn by hand: degrees 0, 1 and 2 of neighbours times those of directions, summed at nodes."""

    def __init__(self, channels: int, hidden: int = 16) -> None:
        super().__init__()
        self.radial = nn.Sequential(nn.Linear(8, hidden), nn.SiLU(), nn.Linear(hidden, 6 * channels))
        self.out0, self.out1 = nn.Linear(2 * channels, channels), nn.Linear(4 * channels, channels, bias=False)

    def forward(self, s: Tensor, v: Tensor, position: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        source, target = edges.unbind(0)
        r = position[source] - position[target]
        length = (r.square().sum(-1, keepdim=True) + 1e-4).sqrt()
        y1 = r / length
        y2 = y1[:, :, None] * y1[:, None, :] - torch.eye(3, device=r.device, dtype=r.dtype) / 3
        centres = torch.linspace(0, 3, 8, device=r.device, dtype=r.dtype)
        w = self.radial(torch.exp(-4 * (length - centres) ** 2)).unflatten(-1, (6, -1))
        a, b = s[source], v[source]
        zero = torch.cat([w[:, 0] * a, w[:, 1] * (b * y1[:, None]).sum(-1)], 1)
        parts = [
            (w[:, 2] * a)[..., None] * y1[:, None],
            w[:, 3, :, None] * b,
            w[:, 4, :, None] * torch.linalg.cross(b, y1[:, None].expand_as(b)),
            w[:, 5, :, None] * torch.einsum("eij,ecj->eci", y2, b),
        ]
        one = torch.cat(parts, 1)
        s0 = torch.zeros(len(s), zero.size(1), device=s.device, dtype=s.dtype).index_add(0, target, zero)
        v0 = torch.zeros(len(s), one.size(1), 3, device=s.device, dtype=s.dtype).index_add(0, target, one)
        gate = self.out0(s0)
        return s + F.silu(gate), v + torch.sigmoid(gate)[..., None] * self.out1(v0.mT).mT


def tensor_product(place: Place) -> Made:
    n, degree, c = place.size(200, 8192), 16, place.size(8, 32)
    edges = torch.stack([torch.randint(n, (n * degree,)), torch.arange(n).repeat_interleave(degree)]).to(place.device)
    model = TensorProduct(c).to(place.device)
    return model, (place.randn(n, c), place.randn(n, c, 3).requires_grad_(), place.randn(n, 3).requires_grad_(), edges)


class RotationConvolution(nn.Module):
    """Cohen and Welling, 2016: filters in four rotations, shifted over the group's axis; the largest is invariant."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.lift = nn.Parameter(torch.randn(width, channels, 3, 3) * 0.2)
        self.group = nn.Parameter(torch.randn(width, width, 4, 3, 3) * (9 * width) ** -0.5 / 2)
        self.norm = nn.BatchNorm3d(width)

    def forward(self, x: Tensor) -> Tensor:
        lift = torch.stack([torch.rot90(self.lift, r, (-2, -1)) for r in range(4)], 1)
        y = F.relu(F.conv2d(x, lift.flatten(0, 1), padding=1))
        turned = [torch.rot90(self.group, r, (-2, -1)).roll(r, 2) for r in range(4)]
        weight = torch.stack(turned, 1).flatten(2, 3).flatten(0, 1)
        y = F.conv2d(y, weight, padding=1).unflatten(1, (-1, 4))
        return F.relu(self.norm(y)).amax(2).mean((-2, -1))


def rotation_convolution(place: Place) -> Made:
    n = place.size(20, 64)
    return RotationConvolution(3, place.size(8, 32)).to(place.device), (place.randn(place.size(4, 64), 3, n, n),)


def legendre(degrees: int, nodes: Tensor) -> Tensor:
    """Normalised associated Legendre functions (order, degree, node) by their recurrences."""
    p = torch.zeros(degrees, degrees, len(nodes), dtype=torch.float64)
    sine = (1 - nodes**2).sqrt()
    p[0, 0] = math.sqrt(1 / (4 * math.pi))
    for m in range(1, degrees):
        p[m, m] = -math.sqrt((2 * m + 1) / (2 * m)) * sine * p[m - 1, m - 1]
    for m in range(degrees - 1):
        p[m, m + 1] = math.sqrt(2 * m + 3) * nodes * p[m, m]
        for n in range(m + 2, degrees):
            a = math.sqrt((4 * n * n - 1) / (n * n - m * m))
            b = math.sqrt(((n - 1) ** 2 - m * m) / (4 * (n - 1) ** 2 - 1))
            p[m, n] = a * (nodes * p[m, n - 1] - b * p[m, n - 2])
    return p


class SphereDiffusion(nn.Module):
    """Bonev et al., 2023 (torch-harmonics): a transform on the sphere by FFT and Legendre sums, steps in degrees."""

    def __init__(self, latitudes: int, degrees: int) -> None:
        super().__init__()
        theta = (torch.arange(latitudes, dtype=torch.float64) + 0.5) * math.pi / latitudes
        p = legendre(degrees, theta.cos())
        self.register_buffer("p", p.float())
        self.register_buffer("weight", (theta.sin() * math.pi / latitudes).float())
        self.degrees = degrees

    def forward(self, field: Tensor, forcing: Tensor) -> tuple[Tensor, Tensor]:
        p, weight = self.get_buffer("p"), self.get_buffer("weight")
        longitudes = field.size(-1)

        def analyse(x: Tensor) -> Tensor:
            waves = 2 * math.pi * torch.fft.rfft(x, norm="forward")[..., : self.degrees] * weight[:, None]
            real = torch.einsum("...jm,mnj->...nm", waves.real, p)
            return torch.complex(real, torch.einsum("...jm,mnj->...nm", waves.imag, p))

        n = torch.arange(self.degrees, device=field.device, dtype=field.dtype)
        decay = torch.exp(-0.002 * n * (n + 1))[:, None]
        u, f = analyse(field), analyse(forcing)
        for _ in range(6):
            u = (u + 0.1 * f) * decay
        power = (u.abs() ** 2).sum(-1)
        waves = torch.complex(torch.einsum("...nm,mnj->...jm", u.real, p), torch.einsum("...nm,mnj->...jm", u.imag, p))
        return torch.fft.irfft(waves, n=longitudes, norm="forward"), power


def sphere(place: Place) -> Made:
    b, latitudes, degrees = place.size(2, 32), place.size(32, 180), place.size(16, 90)
    model = SphereDiffusion(latitudes, degrees).to(place.device)
    return model, (place.randn(b, latitudes, 2 * latitudes), place.randn(b, latitudes, 2 * latitudes))


class SpectralOperator(nn.Module):
    """Li et al., 2021: lowest Fourier modes mixed by complex weights, beside a pointwise layer; relative errors."""

    def __init__(self, width: int, modes: int, depth: int = 3) -> None:
        super().__init__()
        self.modes = modes
        self.lift, self.project = nn.Linear(3, width), nn.Linear(width, 1)
        self.weights = nn.Parameter(torch.randn(depth, 2, width, width, modes, modes, 2) / width)
        self.pointwise = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))

    def forward(self, a: Tensor, y: Tensor) -> Tensor:
        n, m = a.size(-1), self.modes
        line = torch.linspace(0, 1, n, device=a.device, dtype=a.dtype).expand(len(a), n, n)
        x = self.lift(torch.stack([a, line, line.mT], -1)).permute(0, 3, 1, 2)
        for weight, pointwise in zip(torch.view_as_complex(self.weights), self.pointwise, strict=True):
            f = torch.fft.rfft2(x, norm="ortho")
            out = torch.zeros_like(f)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], weight[0])
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], weight[1])
            x = F.gelu(torch.fft.irfft2(out, s=(n, n), norm="ortho") + pointwise(x))
        u = self.project(x.permute(0, 2, 3, 1))[..., 0]
        return (u - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)


def spectral_operator(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(32, 128)
    model = SpectralOperator(place.size(8, 32), place.size(6, 16)).to(place.device)
    return model, (place.randn(b, n, n), place.randn(b, n, n))


class BranchTrunk(nn.Module):
    """Lu et al., 2021 (DeepONet): functions at sensors times a basis at queries; its derivative by forward products."""

    def __init__(self, sensors: int, d: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(sensors, d), nn.Tanh(), nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d))
        self.first, self.second, self.third = nn.Linear(1, d), nn.Linear(d, d), nn.Linear(d, d)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, function: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h, dh = self.first(x), self.first.weight[:, 0].expand(len(x), -1)
        for layer in (self.second, self.third):
            h = torch.tanh(h)
            h, dh = layer(h), ((1 - h**2) * dh) @ layer.weight.T
        coefficients = self.branch(function)
        u, slope = coefficients @ h.T + self.bias, coefficients @ dh.T
        at_sensors = F.interpolate(function[:, None], size=len(x), mode="linear", align_corners=True)[:, 0]
        return (slope - at_sensors).square().mean(), u[:, 0].square().mean()


def branch_trunk(place: Place) -> Made:
    b, sensors, d, n = place.size(32, 1024), place.size(40, 100), place.size(32, 256), place.size(128, 4096)
    model = BranchTrunk(sensors, d).to(place.device)
    return model, (place.randn(b, sensors), torch.linspace(0, 1, n)[:, None].to(place.device))


class VectorNeurons(nn.Module):
    """Deng et al., 2021: channels are vectors; halves of space by learnt directions; an invariant frame at the end."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(a, width, bias=False) for a in (3, width, 2 * width))
        self.directions = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.frame = nn.Linear(width, 3, bias=False)

    def forward(self, points: Tensor) -> Tensor:
        shifted = points - points.mean(1, keepdim=True)
        x = torch.stack([shifted, shifted.roll(1, 1), torch.linalg.cross(shifted, shifted.roll(1, 1))], 2)
        for i, (linear, to_direction) in enumerate(zip(self.maps, self.directions, strict=True)):
            if i == 2:
                x = torch.cat([x, x.mean(1, keepdim=True).expand_as(x)], 2)
            q = linear(x.mT).mT
            k = F.normalize(to_direction(q.mT).mT, dim=-1, eps=1e-4)
            along = (q * k).sum(-1, keepdim=True)
            x = q - 0.8 * along.clamp(max=0) * k
        frame = self.frame(x.mT)
        return (x @ frame).flatten(2).mean(1)


def vector_neurons(place: Place) -> Made:
    return VectorNeurons(place.size(12, 64)).to(place.device), (
        place.randn(place.size(4, 32), place.size(64, 1024), 3),
    )


def cayley_table() -> Tensor:
    """Signs of products of the eight basis blades of three dimensions: (left, right, result)."""
    table = torch.zeros(8, 8, 8)
    for a in range(8):
        for b in range(8):
            swaps = sum((a >> i).bit_count() for i in range(1, 4) for _ in range(b >> (i - 1) & 1))
            table[a, b, a ^ b] = -1.0 if swaps % 2 else 1.0
    return table


class CliffordLayer(nn.Module):
    """Ruhe et al., 2023: multivectors through grade-wise linear maps, geometric products, norms of grades."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", cayley_table())
        self.register_buffer("grade", torch.tensor([i.bit_count() for i in range(8)]))
        self.left = nn.Parameter(torch.randn(width, inputs, 4) * inputs**-0.5)
        self.right = nn.Parameter(torch.randn(width, inputs, 4) * inputs**-0.5)
        self.mix = nn.Parameter(torch.randn(width, 4, 4, 4) / 4)
        self.shift = nn.Parameter(torch.zeros(width, 4))

    def forward(self, x: Tensor) -> Tensor:
        grade = self.get_buffer("grade")
        left = torch.einsum("bid,oid->bod", x, self.left[..., grade])
        right = torch.einsum("bid,oid->bod", x, self.right[..., grade])
        paths = self.mix[:, grade][:, :, grade][:, :, :, grade] * self.get_buffer("table")
        product = left + torch.einsum("boi,oijk,boj->bok", left, paths, right)
        size = torch.zeros_like(product[..., :4]).index_add(-1, grade, product.square())
        return product / (1 + F.softplus(size + self.shift).sqrt())[..., grade]


def clifford(place: Place) -> Made:
    n, inputs, width = place.size(512, 16_384), place.size(6, 16), place.size(8, 32)
    return CliffordLayer(inputs, width).to(place.device), (place.randn(n, inputs, 8).requires_grad_(),)


ROWS: tuple[Row, ...] = (
    Row("program/spherical_tensor_product", tensor_product, "training"),
    Row("program/rotation_group_convolution", rotation_convolution, "training"),
    Row("program/sphere_transform_diffusion", sphere),
    Row("program/fourier_neural_operator", spectral_operator, "training"),
    Row("program/branch_trunk_operator", branch_trunk, "training"),
    Row("program/vector_neurons", vector_neurons, "training"),
    Row("program/clifford_products", clifford, "training"),
)
