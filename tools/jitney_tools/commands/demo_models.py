"""The models of the demo: transformers' BERT and GPT-2 where it is installed, else transformers of torch.nn alone."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 64  # of the model in training

TITLE = "transformers BERT and GPT-2" if importlib.util.find_spec("transformers") else "an encoder and a decoder"


def models() -> list[tuple[str, nn.Module, tuple[Any, ...]]]:
    """The name, the model (4 layers, random weights, not in training) and the inputs of each."""
    ids = torch.randint(0, 1000, (2, 32))
    if importlib.util.find_spec("transformers") is None:
        encoder, decoder = (Transformer(1000, 128, 4, 32, causal=causal) for causal in (False, True))
        return [("encoder", encoder.eval(), (ids,)), ("decoder", decoder.eval(), (ids,))]
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
    bert = BertModel(BertConfig(vocab_size=1000, **sizes)).eval()
    tokens = {"vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    gpt = GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=4, n_head=4, **tokens)).eval()
    return [("BERT", bert, (ids,)), ("GPT-2", gpt, (ids,))]


def model_in_training() -> tuple[str, nn.Module]:
    """A name, and a model of 2 layers with random weights that learns by heart."""
    if importlib.util.find_spec("transformers") is None:
        return "A decoder", Transformer(VOCABULARY, 128, 2, 64, causal=True)
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # it has something to say of the loss that it takes by default
    tokens = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    return "GPT-2", GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=2, n_head=4, n_positions=64, **tokens))


@dataclass
class Output:
    """What a model in training returns."""

    loss: torch.Tensor
    logits: torch.Tensor


class Transformer(nn.Module):
    """Tokens of shape (batch, length), int64, to logits of shape (batch, length, vocabulary), float32.

    Args:
        vocabulary: how many tokens there are.
        width: of the hidden states.
        layers: how many blocks of attention and feed-forward there are.
        length: of the longest input.
        causal: may a token see those after it?
    """

    def __init__(self, vocabulary: int, width: int, layers: int, length: int, *, causal: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        """The logits; with labels of the same shape as the input an ``Output`` with the loss of the next tokens."""
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        if labels is None:
            return logits
        return Output(F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits)


class Block(nn.Module):
    """Attention and feed-forward with residual connections, normalised before each."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before_attention, self.before_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` and the result have the shape (batch, length, width)."""
        q, k, v = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(attention.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.before_forward(x)))))
