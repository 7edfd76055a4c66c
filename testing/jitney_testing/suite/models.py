"""Models as people write them, tiny: forward, backward, and two sizes of batch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from jitney_testing.program import Program
from jitney_testing.suite.check import Case, Check, Subject, case_of, told, whole

_ENDS = """
net = net.to(example(()).device)

def program(*xs):
    return net(*xs)

SIZES = (3, 2)
"""
_X = "\ndef inputs(n):\n    return [example((n, {shape}), seed=n)]\n"
_TOKENS = "\ndef inputs(n):\n    return [example((n, 6), 'int64', seed=n).abs() * 3]\n"

# Tiny configurations of transformers, by the line that makes the model.
TRANSFORMERS = {
    "bert": "BertModel(BertConfig({}, num_hidden_layers=1, intermediate_size=32, max_position_embeddings=16))",
    "gpt2": "GPT2Model(GPT2Config(vocab_size=32, n_embd=16, n_head=2, n_layer=1, n_positions=16))",
    "llama": "LlamaModel(LlamaConfig({}, num_hidden_layers=1, intermediate_size=32, max_position_embeddings=16))",
}
_TINY = "vocab_size=32, hidden_size=16, num_attention_heads=2"


def _transformers(subject: Subject) -> Iterator[Case]:
    if importlib.util.find_spec("transformers") is None:
        return
    for name, made in TRANSFORMERS.items():
        text = f"""
from transformers import {made.partition("(")[0]}, {made.partition("(")[2].partition("(")[0]}

torch.manual_seed(0)
net = {made.format(_TINY)}.eval().to(example(()).device)

def program(tokens):
    made = net(tokens)
    return made.last_hidden_state

SIZES = (3, 2)
{_TOKENS}"""
        yield case_of(name, Program(whole(text)), subject)


CHECKS = (
    told(
        "models.perceptron",
        "Linear layers, activations, residual connections, normalization.",
        f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x)))
        return x.mean(-1), x

net = Net()
{_ENDS}{_X.format(shape="6")}""",
    ),
    told(
        "models.convolutions",
        "Convolutions, batch normalization, pooling.",
        f"""
net = nn.Sequential(
    nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1),
    nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 5))
{_ENDS}{_X.format(shape="3, 8, 8")}""",
        f"""
net = nn.Sequential(
    nn.Conv2d(4, 8, 3, stride=2, padding=2, dilation=2, groups=4), nn.SiLU(),
    nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2),
    nn.AvgPool2d(2), nn.Flatten(2), nn.Conv1d(4, 4, 3, padding="same", padding_mode="circular", bias=False))
{_ENDS}{_X.format(shape="4, 9, 7")}""",
    ),
    told(
        "models.recurrent",
        "A recurrence written as a loop, and torch's LSTM.",
        f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 5)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state

net = Net()
{_ENDS}{_X.format(shape="3, 4")}""",
        f"""
net = nn.LSTM(4, 5, batch_first=True)
{_ENDS}{_X.format(shape="3, 4")}""",
    ),
    told(
        "models.transformer",
        "Embeddings, attention with a mask, feed-forward.",
        f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(16, 8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids):
        x = self.tokens(ids % 16)
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).flatten(2)
        return F.cross_entropy(self.out(x).flatten(0, 1), ids.flatten() % 16)

net = Net()
{_ENDS}{_TOKENS}""",
        f"""
net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
{_ENDS}{_X.format(shape="3, 8")}""",
    ),
    Check("models.transformers", "Tiny models of the package transformers, if it is installed.", _transformers, "full"),
)
