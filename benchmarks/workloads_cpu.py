"""What speed_cpu.py runs: float32 workloads that make their own data, the same numbers every time.

A workload is a function that makes a `Job`: what the front end compiles, and one step that calls it. Sizes are beyond
the last cache where memory is the limit, and small enough that eager takes less than half a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Target = Callable[..., Any]


@dataclass
class Job:
    """A workload with its data.

    Args:
        target: the function or module to compile.
        step: one step with the compiled target (or the target itself); its result is what is compared.
        inputs: the tensors that a step has to read.
        exact: the step's result in a wider type, where rounding makes up much of what the step gives.
    """

    target: Target
    step: Callable[[Target], Any]
    inputs: list[Tensor]
    exact: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Workload:
    """A name, how to make it, whether memory is its limit (rather than arithmetic), and whether it has a backward."""

    name: str
    make: Callable[[], Job]
    bandwidth: bool
    trains: bool

    def job(self) -> Job:
        torch.manual_seed(0)
        return self.make()


WORKLOADS: dict[str, Workload] = {}


def workload(bandwidth: bool = False, trains: bool = False) -> Callable[[Callable[[], Job]], Callable[[], Job]]:
    def register(make: Callable[[], Job]) -> Callable[[], Job]:
        WORKLOADS[make.__name__] = Workload(make.__name__, make, bandwidth, trains)
        return make

    return register


def bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def tensors_in(result: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


# --- kinds of steps ------------------------------------------------------------------------------------------------


def inference(target: Target, *args: Any) -> Job:
    """A call without gradients."""

    def step(compiled: Target) -> Any:
        with torch.no_grad():
            return compiled(*args)

    return Job(target, step, tensors_in(args))


def gradients(target: Target, *args: Any) -> Job:
    """A call that returns one tensor, and the gradients of all floating-point arguments and parameters."""
    wanted = [a.requires_grad_() for a in args if a.is_floating_point()]
    if isinstance(target, nn.Module):
        wanted += target.parameters()
    with torch.no_grad():
        result = target(*args)
    # A constant would do away with much of a normalisation's backward.
    tangent = torch.randn_like(result) if result.dim() else torch.ones_like(result)

    def step(compiled: Target) -> Any:
        out = compiled(*args)
        return [out, *torch.autograd.grad(out, wanted, tangent)]

    return Job(target, step, [*args, tangent])


def training(model: nn.Module, *args: Tensor) -> Job:
    """Forward to a loss, backward, a step of SGD; the model, which returns the loss, is what is compiled."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def step(compiled: Target) -> Any:
        optimizer.zero_grad()
        loss = compiled(*args)
        loss.backward()
        optimizer.step()
        # The gradients too: a wrong one hardly shows in parameters after a step this small.
        return [loss, *(p.grad for p in parameters), *parameters]

    return Job(model, step, [*args, *parameters])


# --- element by element, and along a dimension ---------------------------------------------------------------------


@workload(bandwidth=True)
def bias_gelu_residual() -> Job:
    def target(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return F.gelu(x + bias) + residual

    return inference(target, torch.randn(4096, 3072), torch.randn(3072), torch.randn(4096, 3072))


@workload(bandwidth=True)
def transposed_sum() -> Job:
    def target(x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x) + y.t()

    return inference(target, torch.randn(3072, 4096), torch.randn(4096, 3072))


@workload(bandwidth=True)
def softmax() -> Job:
    return inference(lambda x: F.softmax(x, dim=-1), torch.randn(8192, 2048))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def layer_norm_data() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(12288, 768), torch.randn(768), torch.randn(768)


@workload(bandwidth=True)
def layer_norm_forward() -> Job:
    return inference(layer_norm, *layer_norm_data())


@workload(bandwidth=True)
def layer_norm_backward() -> Job:
    return gradients(layer_norm, *layer_norm_data())


@workload(bandwidth=True)
def rms_norm_swiglu() -> Job:
    def target(x: Tensor, weight: Tensor) -> Tensor:
        normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
        gate, value = normal.chunk(2, dim=-1)
        return F.silu(gate) * value

    return inference(target, torch.randn(3072, 4096), torch.randn(4096))


@workload(bandwidth=True)
def cross_entropy_backward() -> Job:
    def target(scores: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(scores, classes)

    classes, rows = 32000, 1024
    return gradients(target, torch.randn(rows, classes), torch.randint(classes, (rows,)))


@workload(bandwidth=True)
def batch_norm_relu() -> Job:
    def target(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.relu(F.batch_norm(x, mean, variance, weight, bias, training=False))

    channels = 64
    statistics = torch.randn(channels), torch.rand(channels) + 0.5
    return inference(
        target, torch.randn(32, channels, 64, 64), *statistics, torch.randn(channels), torch.randn(channels)
    )


@workload(bandwidth=True)
def cube_statistics() -> Job:
    def target(x: Tensor) -> list[Tensor]:
        return [found for dim in range(3) for found in (x.sum(dim), x.mean(dim), x.var(dim))]

    return inference(target, torch.randn(240, 240, 240))


@workload()
def outer_product_sum() -> Job:
    def target(x: Tensor, y: Tensor) -> Tensor:
        return (x.unsqueeze(2) * y.unsqueeze(1)).sum((1, 2))

    return inference(target, torch.randn(2048, 48), torch.randn(2048, 48))


@workload(bandwidth=True)
def adam_50_tensors() -> Job:
    shapes = [(384, 768), (768,), (768, 384), (384,), (384, 384)] * 10
    parameters, grads = ([torch.randn(shape) for shape in shapes] for _ in range(2))
    means, squares = ([torch.zeros(shape) for shape in shapes] for _ in range(2))

    def target(
        parameters: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], rate: float = 1e-3
    ) -> None:
        for p, grad, mean, square in zip(parameters, grads, means, squares, strict=True):
            mean.lerp_(grad, 0.1)
            square.mul_(0.999).addcmul_(grad, grad, value=0.001)
            p.addcdiv_(mean, square.sqrt().add_(1e-8), value=-rate)

    job = inference(target, parameters, grads, means, squares)

    def step(compiled: Target) -> Any:
        job.step(compiled)
        return [parameters, means, squares]

    return Job(target, step, job.inputs)


# --- NumPy ---------------------------------------------------------------------------------------------------------


@workload()
def numpy_pairs() -> Job:
    """NumPy's sum over the products of all pairs in each row: 4 million products, of which none is stored."""

    def pairs(x: Tensor, y: Tensor) -> Tensor:
        a, b = x.numpy(), y.numpy()
        return torch.from_numpy(np.sum(a[:, :, None] * b[:, None, :], axis=(-2, -1)))

    return inference(pairs, torch.randn(1024, 64), torch.randn(1024, 64))


# --- models --------------------------------------------------------------------------------------------------------


class Regression(nn.Module):
    """Four linear layers, three of them with GELU, to a mean squared error."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.GELU())]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, width))

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(self.layers(x), wanted)


@workload(trains=True)
def mlp_training() -> Job:
    return training(Regression(768), torch.randn(384, 768), torch.randn(384, 768))


class Block(nn.Module):
    """A transformer block, norms first: causal attention and an MLP of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project_in, self.project_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        projected = self.project_in(self.before_attention(x))
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in projected.chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project_out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


@workload()
def transformer_block_forward() -> Job:
    return inference(Block(256, 8), torch.randn(8, 128, 256))


@workload(trains=True)
def transformer_block_backward() -> Job:
    return gradients(Block(256, 8), torch.randn(8, 128, 256))


class Encoder(nn.Module):
    """transformers' BERT with random weights, from token ids to the last hidden state."""

    def __init__(self, width: int = 128, layers: int = 2, heads: int = 4) -> None:
        import transformers

        super().__init__()
        size = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        self.model = transformers.BertModel(transformers.BertConfig(**size, intermediate_size=4 * width)).eval()

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.model(input_ids=ids).last_hidden_state
        return hidden


@workload()
def bert_inference() -> Job:
    return inference(Encoder().eval(), torch.randint(30000, (8, 128)))


@workload()
def bert_base_inference() -> Job:
    return inference(Encoder(768, 12, 12).eval(), torch.randint(30000, (1, 128)))


class LanguageModel(nn.Module):
    """transformers' GPT-2 with random weights and no dropout, to its loss."""

    def __init__(self) -> None:
        import transformers

        super().__init__()
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        size = {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 8192}
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, **quiet)).train()

    def forward(self, ids: Tensor) -> Tensor:
        loss: Tensor = self.model(input_ids=ids, labels=ids, use_cache=False).loss
        return loss


@workload(trains=True)
def gpt2_training() -> Job:
    return training(LanguageModel(), torch.randint(8192, (4, 128)))


# --- models called with many batch sizes ---------------------------------------------------------------------------


BATCHES = (2, 3, 4, 7, 8, 16, 31, 32, 64)

# A module, and its argument for a batch size.
BATCHED: dict[str, Callable[[], tuple[nn.Module, Callable[[int], Tensor]]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)), lambda n: torch.randn(n, 64)),
    "transformer_block": lambda: (Block(64, 4), lambda n: torch.randn(n, 32, 64)),
    "bert": lambda: (Encoder(64).eval(), lambda n: torch.randint(30000, (n, 32))),
}
