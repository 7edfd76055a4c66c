"""Twenty steps of training: model and optimizer compiled, against eager, dropout and all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe
from torch import nn, optim

STEPS = 20
VOCABULARY = 50


def bert() -> nn.Module:
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return transformers.BertForMaskedLM(config)


def gpt() -> nn.Module:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=1
    )
    return transformers.GPT2LMHeadModel(config)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu_(self.norm1(self.conv1(x)))
        h = self.norm2(self.conv2(h))
        h += x
        return nn.functional.relu(h, inplace=True)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Residual(8), nn.MaxPool2d(2), Residual(8))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.head(self.blocks(self.stem(x))), labels)}


def text_batch() -> dict[str, torch.Tensor]:
    tokens = torch.randint(2, VOCABULARY, (2, 12))
    return {"input_ids": tokens, "labels": tokens}


def image_batch() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(4, 3, 16, 16), "labels": torch.randint(0, 5, (4,))}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, torch.Tensor]]]] = {
    "BERT": (bert, text_batch),
    "GPT": (gpt, text_batch),
    "residual CNN": (Images, image_batch),
}
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, 0.05, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, 1e-3, foreach=True),
    "AdamW": lambda p: optim.AdamW(p, 1e-3),
    "Adagrad": lambda p: optim.Adagrad(p, 1e-2),
    "RMSprop": lambda p: optim.RMSprop(p, 1e-3),
}


def run(model: nn.Module, make: Callable[[Any], optim.Optimizer], batch: Any, compiled: bool) -> list[torch.Tensor]:
    torch.manual_seed(11)
    model.train()
    optimizer = make(model.parameters())
    call, step = model, optimizer.step
    if compiled:
        call, step = compile_fn(model, backend="aot_eager"), compile_fn(optimizer.step, backend="aot_eager")
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = call(**batch())["loss"]
        loss.backward()
        step()
        losses.append(loss.detach())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_twenty_steps(name: str, optimizer: str) -> None:
    make_model, batch = MODELS[name]
    torch.manual_seed(5)
    eager, ours = make_model(), make_model()
    ours.load_state_dict(eager.state_dict())
    wanted = run(eager, OPTIMIZERS[optimizer], batch, compiled=False)
    with observe() as seen:
        got = run(ours, OPTIMIZERS[optimizer], batch, compiled=True)
    assert not seen.kept and not seen.skips
    assert not [b for b in seen.breaks if "warning_once" not in b]  # pytest listens to the logs
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.state_dict(), eager.state_dict(), rtol=1e-3, atol=1e-4)
    assert torch.equal(got[0], wanted[0])
