"""The programs that the benchmarks compile: small configurations, random weights, nothing is downloaded."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("JITNEY_CACHE", "0")  # what is measured is not to come from disk

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclasses.dataclass
class Program:
    """What to compile, and the arguments of its calls."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)


TOKENS = {"vocab_size": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = TOKENS | {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
GROUPED = TEXT | {"num_key_value_heads": 2}


def transformer(name: str, inputs: dict[str, Any], **config: Any) -> Program:
    import transformers

    transformers.logging.set_verbosity_error()
    model = getattr(transformers, name)
    return Program(model(model.config_class(**config)).eval(), kwargs=inputs)


def tokens(length: int = 32, batch: int = 2) -> Tensor:
    return torch.randint(5, TOKENS["vocab_size"], (batch, length))


def padded() -> dict[str, Any]:
    mask = torch.ones(2, 32, dtype=torch.long)
    mask[-1, -8:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


def bert(layers: int = 2) -> Program:
    return transformer("BertForMaskedLM", padded(), **TEXT | {"num_hidden_layers": layers})


def bert_base() -> Program:
    """BERT-base but for a short vocabulary: 12 layers, hidden size 768, 12 heads."""
    return transformer(
        "BertModel",
        {"input_ids": tokens(8, 1), "attention_mask": torch.ones(1, 8, dtype=torch.long)},
        vocab_size=TOKENS["vocab_size"],
    )


def gpt2() -> Program:
    return transformer(
        "GPT2LMHeadModel", {"input_ids": tokens()}, **TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=128
    )


def llama() -> Program:
    return transformer("LlamaForCausalLM", {"input_ids": tokens()}, **GROUPED)


def mixtral() -> Program:
    return transformer("MixtralForCausalLM", {"input_ids": tokens()}, **GROUPED, num_local_experts=4)


def t5() -> Program:
    inputs = {"input_ids": tokens(24), "decoder_input_ids": tokens(16)}
    return transformer(
        "T5ForConditionalGeneration",
        inputs,
        **TOKENS,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )


def vit() -> Program:
    return transformer(
        "ViTForImageClassification",
        {"pixel_values": torch.randn(2, 3, 32, 32)},
        image_size=32,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )


class Residual(nn.Module):
    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(narrow, wide, 3, padding=1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.skip = nn.Identity() if narrow == wide else nn.Conv2d(narrow, wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y += self.skip(x)
        return F.relu(y)


def resnet() -> Program:
    widths = [8, 8, 16, 16, 32, 32]
    blocks = [Residual(a, b) for a, b in pairwise(widths)]
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))
    return Program(net.eval(), (torch.randn(2, 3, 16, 16),))


@dataclasses.dataclass
class Trace:
    scale: float
    names: list[str] = dataclasses.field(default_factory=list)

    def note(self, name: str) -> None:
        self.names.append(f"{len(self.names)}:{name}")


class Pipeline(nn.Module):
    """Few tensor operations among much Python: closures, generators, exceptions, containers, formatting, sorting."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(8, 8) for name in "abcdef"})

    def steps(self, x: Tensor, trace: Trace) -> Iterator[tuple[str, Tensor]]:
        for i, (name, layer) in enumerate(self.layers.items()):
            try:
                activation = getattr(torch, ("tanh", "no_such_operator", "sin")[i % 3])
            except AttributeError as error:
                trace.note(type(error).__name__)
                activation = functools.partial(torch.clamp, min=-1.0, max=1.0)
            x = activation(layer(x)) / trace.scale
            yield name, x

    def forward(self, x: Tensor, **options: Any) -> dict[str, Any]:
        trace, calls = Trace(scale=math.sqrt(x.shape[-1])), 0

        def keep(name: str, value: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            trace.note(f"{name}:{value.ndim}")
            return value

        kept = {name: keep(name, y) for name, y in self.steps(x, trace)}
        order = sorted(kept, key=lambda name: (-ord(name) % 3, name))
        first, *rest = (kept[name] for name in order)
        total = sum(((first * other).mean() for other in rest), start=first.mean())
        words = {word: len(word) for word in " ".join(trace.names).split() if not word.startswith("0")}
        return {"total": total, "calls": calls, "words": words, **{k: v for k, v in kept.items() if k in order[:3]}}


def python_heavy() -> Program:
    return Program(Pipeline().eval(), (torch.randn(2, 8),))


def two_arguments() -> Program:
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    return Program(add, (torch.randn(4), torch.randn(4)))


def sequential_50() -> Program:
    return Program(nn.Sequential(*(nn.Linear(16, 16) for _ in range(50))).eval(), (torch.randn(2, 16),))


OVERHEAD: dict[str, Callable[[], Program]] = {
    "function": two_arguments,
    "sequential_50": sequential_50,
    "bert_base": bert_base,
}
MODELS: dict[str, Callable[[], Program]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "vit": vit,
    "resnet": resnet,
    "mixtral": mixtral,
    "python_heavy": python_heavy,
}


def train_bert_base() -> Program:
    """BERT-base that trains, with its dropout, on 2 x 64 tokens."""
    inputs = {"input_ids": tokens(64), "attention_mask": padded_mask(64)}
    program = transformer("BertModel", inputs, vocab_size=TOKENS["vocab_size"])
    return trained(program)


def padded_mask(length: int, batch: int = 2) -> Tensor:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, -length // 4 :] = 0
    return mask


def trained(program: Program) -> Program:
    """The program in training mode."""
    assert isinstance(program.fn, nn.Module)
    program.fn.train()
    return program


class Perceptron(nn.Module):
    """Layer norm, GELU, dropout."""

    def __init__(self, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        blocks = [
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Dropout(0.1),
                nn.Linear(4 * width, width),
            )
            for _ in range(layers)
        ]
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def perceptron() -> Program:
    return Program(Perceptron(), (torch.randn(64, 64),))


def wide_gpt2() -> Program:
    size = {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": 128}
    return trained(transformer("GPT2LMHeadModel", {"input_ids": tokens(64)}, **TOKENS, **size))


def wide_llama() -> Program:
    size = {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 256}
    return trained(transformer("LlamaForCausalLM", {"input_ids": tokens(64)}, **GROUPED | size))


DEPTHS = {f"bert_{n}": n for n in (6, 12, 24)}

# Models that train: dropout and batch norm are on.
TRAINED: dict[str, Callable[[], Program]] = {
    "bert_tiny": lambda: trained(bert()),
    "bert_base": train_bert_base,
    "gpt2": wide_gpt2,
    "llama": wide_llama,
    "vit": lambda: trained(vit()),
    "resnet": lambda: trained(resnet()),
    "mlp": perceptron,
}


def build(name: str, trains: bool = False) -> Program:
    """The program of that name, from ``TRAINED`` if it ``trains``: the same weights and inputs every time."""
    torch.manual_seed(0)
    if trains:
        return TRAINED[name]()
    if name in DEPTHS:
        return bert(DEPTHS[name])
    return (OVERHEAD | MODELS)[name]()
