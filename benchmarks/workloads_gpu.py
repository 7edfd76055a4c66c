"""What speed_gpu.py runs: workloads on a CUDA device that make their own data, the same numbers every time.

bfloat16, but for optimizer states, rotation angles and ResNet-50, which runs under autocast. Most are limited by the
memory of the device; the others by its arithmetic, or by how fast kernels can be launched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from workloads_cpu import Job, Target, Workload, inference, tensors_in

DEVICE = "cuda"
WORKLOADS: dict[str, Workload] = {}


def workload(bandwidth: bool = False, trains: bool = False) -> Callable[[Callable[[], Job]], Callable[[], Job]]:
    def register(make: Callable[[], Job]) -> Callable[[], Job]:
        WORKLOADS[make.__name__] = Workload(make.__name__, make, bandwidth, trains)
        return make

    return register


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def summed(result: Tensor) -> Tensor:
    """The sum in float32."""
    return result.float().sum() if result.dim() else result


def trained(target: Target, *args: Tensor, of_inputs: bool = True, loss: Callable[[Tensor], Tensor] = summed) -> Job:
    """Forward, a loss of the result, and backward.

    Gradients are those of the parameters and, unless ``of_inputs`` is false, of the floating-point arguments.
    """
    wanted = [a.requires_grad_() for a in args if of_inputs and a.is_floating_point()]
    parameters = list(target.parameters()) if isinstance(target, nn.Module) else []
    wanted += parameters

    def step(compiled: Target) -> Any:
        for tensor in wanted:
            tensor.grad = None
        result = compiled(*args)
        loss(result).backward()
        return [result, *(tensor.grad for tensor in wanted)]

    return Job(target, step, [*args, *parameters])


# --- limited by memory ---------------------------------------------------------------------------------------------


@workload(bandwidth=True)
def bias_gelu_residual() -> Job:
    def target(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return F.gelu(x + bias, approximate="tanh") + residual

    return inference(target, random(8192, 8192), random(8192), random(8192, 8192))


@workload(bandwidth=True)
def softmax_rows() -> Job:
    def target(scores: Tensor) -> Tensor:
        return torch.softmax(scores.float() * 0.125, dim=-1).to(scores.dtype)

    return inference(target, random(16384, 4096))


@workload(bandwidth=True)
def layernorm() -> Job:
    def target(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (4096,), weight, bias)

    return inference(target, random(16384, 4096), random(4096), random(4096))


@workload(trains=True)
def layernorm_train() -> Job:
    def target(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (4096,), weight, bias)

    return trained(target, random(8192, 4096), random(4096), random(4096))


@workload(bandwidth=True)
def rmsnorm_swiglu() -> Job:
    def target(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return F.silu(gate) * ((wide * scale).to(x.dtype) * weight)

    return inference(target, random(16384, 4096), random(16384, 4096), random(4096))


@workload(trains=True)
def cross_entropy_train() -> Job:
    words = torch.randint(0, 50304, (8192,), device=DEVICE)

    def target(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), words)

    return trained(target, random(8192, 50304))


@workload(bandwidth=True)
def column_sum() -> Job:
    def target(x: Tensor) -> Tensor:
        return (x.float() ** 2).sum(0)

    return inference(target, random(65536, 1024))


@workload(bandwidth=True)
def rope() -> Job:
    def target(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        turned = torch.cat((-x[..., 64:], x[..., :64]), dim=-1)
        return (x * cosine + turned * sine).to(x.dtype)

    angles = (random(2048, 128, dtype=torch.float32) for _ in range(2))
    return inference(target, random(8, 32, 2048, 128), *angles)


@workload(bandwidth=True)
def adam_update() -> Job:
    """64 parameters of a million elements each, new values in new memory."""
    states = [[random(1024, 1024, dtype=torch.float32) for _ in range(64)] for _ in range(3)]
    squares = [torch.rand_like(p) for p in states[0]]

    def target(
        parameters: Sequence[Tensor], gradients: Sequence[Tensor], means: Sequence[Tensor], squares: Sequence[Tensor]
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        made = []
        for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
            m_next = 0.9 * m + 0.1 * g
            v_next = 0.999 * v + 0.001 * g * g
            made.append((p - 1e-3 * m_next / (v_next.sqrt() + 1e-8), m_next, v_next))
        return made

    return inference(target, *states, squares)


# --- limited by arithmetic, or by launches -------------------------------------------------------------------------


@workload()
def matmul_bias_gelu() -> Job:
    def target(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.gelu(F.linear(x, weight, bias), approximate="tanh")

    return inference(target, random(8192, 4096), random(4096, 4096), random(4096))


class Block(nn.Module):
    """A transformer block, norms first: causal attention and an MLP of four times the width."""

    def __init__(self, width: int = 1024, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project_in, self.project_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.project_in(self.before_attention(x))
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in projected.chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project_out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.before_mlp(x)), approximate="tanh"))


def blocks() -> nn.Module:
    return nn.Sequential(*[Block() for _ in range(4)]).to(DEVICE, torch.bfloat16)


@workload()
def transformer_blocks() -> Job:
    return inference(blocks().eval(), random(8, 1024, 1024))


@workload(trains=True)
def transformer_blocks_train() -> Job:
    return trained(blocks(), random(8, 1024, 1024))


@workload()
def small_batch_mlp() -> Job:
    layers = [layer for _ in range(16) for layer in (nn.Linear(512, 512), nn.LayerNorm(512), nn.SiLU())]
    return inference(nn.Sequential(*layers).to(DEVICE, torch.bfloat16).eval(), random(4, 512))


@workload(trains=True)
def gpt2_train() -> Job:
    from transformers import GPT2Config, GPT2LMHeadModel

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = GPT2Config(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, use_cache=False)
            self.model = GPT2LMHeadModel(config)

        def forward(self, words: Tensor) -> Tensor:
            loss: Tensor = self.model(input_ids=words, labels=words).loss
            return loss

    return trained(LanguageModel().to(DEVICE, torch.bfloat16), torch.randint(0, 50257, (8, 1024), device=DEVICE))


@workload(trains=True)
def resnet50_train() -> Job:
    from torchvision.models import resnet50

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = resnet50()
            self.rounding = True

        def forward(self, images: Tensor) -> Tensor:
            with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=self.rounding):
                scores: Tensor = self.model(images)
                return scores

    def exact() -> Any:
        model.rounding = False
        try:
            with torch.backends.cudnn.flags(allow_tf32=False):
                return job.step(model)
        finally:
            model.rounding = True

    images = random(64, 3, 224, 224, dtype=torch.float32).to(memory_format=torch.channels_last)
    model = Classifier().to(DEVICE, memory_format=torch.channels_last)
    kinds = torch.randint(0, 1000, (64,), device=DEVICE)
    # Of a sum of scores, batch norms leave only roundings as gradients. Nobody trains pictures.
    job = trained(model, images, of_inputs=False, loss=lambda scores: F.cross_entropy(scores.float(), kinds))
    return dataclasses.replace(job, exact=exact)


def bytes_moved(job: Job, results: Sequence[Tensor]) -> int:
    """What a step has to read and write at least."""
    return sum(t.numel() * t.element_size() for t in (*tensors_in(job.inputs), *results))
