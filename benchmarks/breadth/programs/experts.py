"""Mixtures of experts: routing by einsum, by gathers, by sorting."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Top2Gate(nn.Module):
    """GShard's: two experts a token, a capacity, one-hot dispatch by einsum, the auxiliary loss of balance."""

    def __init__(self, d: int, experts: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, d, hidden) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, d) * hidden**-0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens, _ = x.shape
        experts = self.w1.shape[0]
        capacity = 2 * tokens // experts
        gates = self.gate(x).softmax(-1)
        mask1 = F.one_hot(gates.argmax(-1), experts)
        mask2 = F.one_hot(gates.masked_fill(mask1.bool(), -1.0).argmax(-1), experts)
        location1 = mask1.cumsum(0) - 1
        location2 = mask2.cumsum(0) - 1 + mask1.sum(0, keepdim=True)
        balance = (gates.mean(0) * mask1.to(x.dtype).mean(0)).sum() * experts
        mask1, mask2 = mask1 * (location1 < capacity), mask2 * (location2 < capacity)
        slot1, slot2 = (location1 * mask1).sum(1), (location2 * mask2).sum(1)
        g1, g2 = (gates * mask1).sum(1), (gates * mask2).sum(1)
        total = (g1 + g2).clamp(min=torch.finfo(x.dtype).eps)
        combine = torch.einsum("se,sc->sec", (g1 / total)[:, None] * mask1, F.one_hot(slot1, capacity).to(x.dtype))
        combine = combine + torch.einsum(
            "se,sc->sec", (g2 / total)[:, None] * mask2, F.one_hot(slot2, capacity).to(x.dtype)
        )
        dispatched = torch.einsum("sec,sm->ecm", combine.bool().to(x.dtype), x)
        out = torch.bmm(F.gelu(torch.bmm(dispatched, self.w1)), self.w2)
        return torch.einsum("sec,ecm->sm", combine, out), balance


def top2_einsum(place: Place) -> Made:
    d = place.size(64, 512)
    return Top2Gate(d, 8, 2 * d).to(place.device), (place.randn(place.size(128, 2048), d),)


class SparseMoe(nn.Module):
    """Mixtral's in transformers: a loop over experts, the tokens of each by torch.where, index_add_ back."""

    def __init__(self, d: int, experts: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(d, hidden), nn.SiLU(), nn.Linear(hidden, d)) for _ in range(experts)]
        )

    def forward(self, hidden_states: Tensor) -> Tensor:
        weights = F.softmax(self.gate(hidden_states), dim=1)
        weights, selected = torch.topk(weights, 2, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        final = torch.zeros_like(hidden_states)
        expert_mask = F.one_hot(selected, num_classes=len(self.experts)).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            index, top_x = torch.where(expert_mask[i])
            current = expert(hidden_states[top_x]) * weights[top_x, index, None]
            final.index_add_(0, top_x, current)
        return final


def index_select_experts(place: Place) -> Made:
    d = place.size(128, 1024)
    return SparseMoe(d, 4, 2 * d).to(place.device), (place.randn(place.size(128, 8192), d),)


class GatheredExperts(nn.Module):
    """gpt-fast's for few tokens: gather the chosen experts' weights, one einsum each."""

    def __init__(self, d: int, experts: int, hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(d, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, hidden, d) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, d, hidden) * hidden**-0.5)
        self.w3 = nn.Parameter(torch.randn(experts, hidden, d) * d**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.sigmoid(self.router(x))
        weights, index = torch.topk(scores, 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        x1 = F.silu(torch.einsum("ti,taoi->tao", x, self.w1[index]))
        x3 = torch.einsum("ti,taoi->tao", x, self.w3[index])
        out = torch.einsum("tao,taio->tai", x1 * x3, self.w2[index])
        return torch.einsum("tai,ta->ti", out, weights)


def gathered_experts(place: Place) -> Made:
    d = place.size(128, 1024)
    return GatheredExperts(d, 8, 2 * d).to(place.device), (place.randn(place.size(4, 8), d),)


class SoftMoE(nn.Module):
    """Puigcerver et al., 2024: slots are averages of tokens, tokens averages of slots; loss-free and dense."""

    def __init__(self, d: int, experts: int, slots: int) -> None:
        super().__init__()
        self.phi = nn.Parameter(torch.randn(d, experts, slots) * d**-0.5)
        self.scale = nn.Parameter(torch.ones(()))
        self.w = nn.Parameter(torch.randn(experts, d, d) * d**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.einsum("bnd,des->bnes", F.normalize(x, dim=-1), self.scale * F.normalize(self.phi, dim=0))
        dispatch = logits.softmax(dim=1)
        combine = logits.flatten(2).softmax(dim=-1).view_as(logits)
        slots = torch.einsum("bnd,bnes->besd", x, dispatch)
        slots = F.relu(torch.einsum("besd,edf->besf", slots, self.w)).square()
        return torch.einsum("besd,bnes->bnd", slots, combine)


def soft_moe(place: Place) -> Made:
    d = place.size(64, 512)
    return SoftMoE(d, 8, 16).to(place.device), (place.randn(place.size(4, 16), place.size(64, 1024), d),)


ROWS: tuple[Row, ...] = (
    Row("program/top2_gate_einsum", top2_einsum, "training"),
    Row("program/index_select_experts", index_select_experts),
    Row("program/gathered_experts", gathered_experts),
    Row("program/soft_moe", soft_moe, "training"),
)
