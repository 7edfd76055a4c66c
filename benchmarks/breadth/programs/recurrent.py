"""Recurrent cells in Python."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..row import Made, Place, Row


class GRUCell(nn.Module):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.x2h = nn.Linear(d, 3 * hidden)
        self.h2h = nn.Linear(hidden, 3 * hidden)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        x_r, x_z, x_n = self.x2h(x).chunk(3, 1)
        h_r, h_z, h_n = self.h2h(h).chunk(3, 1)
        r = torch.sigmoid(x_r + h_r)
        z = torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return n + z * (h - n)


class GRU(nn.Module):
    """Layers of cells over time, time outside."""

    def __init__(self, d: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cells = nn.ModuleList([GRUCell(d if i == 0 else hidden, hidden) for i in range(layers)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = [torch.zeros(x.size(1), self.hidden, device=x.device, dtype=x.dtype) for _ in self.cells]
        outputs = []
        for t in range(x.size(0)):
            inp = x[t]
            for i, cell in enumerate(self.cells):
                h[i] = cell(inp, h[i])
                inp = h[i]
            outputs.append(inp)
        return torch.stack(outputs), torch.stack(h)


def gru(place: Place) -> Made:
    d = place.size(64, 512)
    return GRU(d, d, 2).to(place.device), (place.randn(12, place.size(16, 256), d),)


class LayerNormLSTM(nn.Module):
    """Ba et al., 2016: layer norms on the gates and on the cell; unpacked from one product."""

    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.w_x = nn.Parameter(torch.randn(d, 4 * hidden) * d**-0.5)
        self.w_h = nn.Parameter(torch.randn(hidden, 4 * hidden) * hidden**-0.5)
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        self.norm_x, self.norm_h = nn.LayerNorm(4 * hidden), nn.LayerNorm(4 * hidden)
        self.norm_c = nn.LayerNorm(hidden)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        h = c = x.new_zeros(b, self.hidden)
        from_x = self.norm_x(x @ self.w_x)
        states = []
        for step in range(t):
            gates = from_x[:, step] + self.norm_h(h @ self.w_h) + self.bias
            i, f, g, o = gates.view(b, 4, self.hidden).unbind(1)
            c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.norm_c(c).tanh()
            states.append(h)
        return torch.stack(states, dim=1)


def layer_norm_lstm(place: Place) -> Made:
    d = place.size(64, 512)
    return LayerNormLSTM(d, d).to(place.device), (place.randn(place.size(16, 256), 12, d),)


class MinimalGatedUnit(nn.Module):
    """One gate (Zhou et al., 2016); a padded step keeps its state."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.forget = nn.Linear(2 * d, d)
        self.candidate = nn.Linear(2 * d, d)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        h = torch.zeros_like(x[:, 0])
        for t, x_t in enumerate(x.unbind(1)):
            f = torch.sigmoid(self.forget(torch.cat([x_t, h], 1)))
            new = (1 - f) * h + f * torch.tanh(self.candidate(torch.cat([x_t, f * h], 1)))
            h = torch.where((t < lengths).unsqueeze(1), new, h)
        return h


def minimal_gated_unit(place: Place) -> Made:
    b, d = place.size(64, 1024), place.size(96, 512)
    return MinimalGatedUnit(d).to(place.device), (place.randn(b, 20, d), place.randint(20, b) + 1)


class ConvLSTMCell(nn.Module):
    """Shi et al., 2015, with peepholes."""

    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(d + hidden, 4 * hidden, 3, padding=1)
        self.peephole = nn.Parameter(torch.randn(3, hidden, 1, 1) * 0.1)

    def forward(self, frames: Tensor) -> Tensor:
        b, t, _, height, width = frames.shape
        hidden = self.peephole.shape[1]
        h = torch.zeros(b, hidden, height, width, dtype=frames.dtype, device=frames.device)
        c = h.clone()
        for k in range(t):
            i, f, g, o = torch.split(self.conv(torch.cat((frames[:, k], h), dim=1)), hidden, dim=1)
            i, f = torch.sigmoid(i + self.peephole[0] * c), torch.sigmoid(f + self.peephole[1] * c)
            c = f * c + i * torch.tanh(g)
            h = torch.sigmoid(o + self.peephole[2] * c) * torch.tanh(c)
        return h


def conv_lstm(place: Place) -> Made:
    n = place.size(24, 128)
    return ConvLSTMCell(3, place.size(8, 32)).to(place.device), (place.randn(place.size(2, 8), 4, 3, n, n),)


def leaky_integrate_and_fire(current: Tensor, decay: float = 0.9, threshold: float = 1.0) -> Tensor:
    """Spiking neurones over time: reset by subtraction, four refractory steps; rates per step."""
    v = torch.zeros_like(current[0])
    wait = torch.zeros_like(v)
    spikes = []
    for i in current:
        active = wait <= 0
        v = torch.where(active, decay * v + i, v)
        fired = v > threshold
        v = v - threshold * fired
        wait = torch.where(fired, torch.full_like(wait, 4.0), wait - 1)
        spikes.append(fired)
    return torch.stack(spikes).to(current.dtype).mean(1)


def spiking_neurons(place: Place) -> Made:
    return leaky_integrate_and_fire, (0.4 * place.rand(24, place.size(20_000, 2_000_000)),)


ROWS: tuple[Row, ...] = (
    Row("program/gru_cells", gru, "training"),
    Row("program/layer_norm_lstm", layer_norm_lstm, "training"),
    Row("program/minimal_gated_unit", minimal_gated_unit),
    Row("program/conv_lstm", conv_lstm, "training"),
    Row("program/spiking_neurons", spiking_neurons),
)
