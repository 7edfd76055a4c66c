"""Flags and modes of torch that captured code reads as values: guarded one by one, or with all of the state."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, t

import jitney

B: Any = torch.backends


def attribute(owner: Any, name: str, *values: Any) -> Any:
    """Read and set an attribute; read inside the compiled function by ``getattr``."""
    return lambda: getattr(owner, name), functools.partial(setattr, owner, name), values


# name -> (what the compiled function calls, what sets it, two values)
FLAGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], tuple[Any, ...]]] = {
    "mkldnn.enabled": (lambda: torch.backends.mkldnn.enabled, lambda v: setattr(B.mkldnn, "enabled", v), (True, False)),
    "cudnn.enabled": (lambda: torch.backends.cudnn.enabled, lambda v: setattr(B.cudnn, "enabled", v), (True, False)),
    "mkldnn.deterministic": attribute(B.mkldnn, "deterministic", False, True),
    "mkldnn.fp32_precision": attribute(B.mkldnn, "fp32_precision", "none", "ieee"),
    "mkldnn.matmul.fp32_precision": attribute(B.mkldnn.matmul, "fp32_precision", "none", "ieee"),
    "cudnn.benchmark": attribute(B.cudnn, "benchmark", False, True),
    "cudnn.benchmark_limit": attribute(B.cudnn, "benchmark_limit", 10, 5),
    "cudnn.deterministic": attribute(B.cudnn, "deterministic", False, True),
    "cudnn.allow_tf32": attribute(B.cudnn, "allow_tf32", True, False),
    "cudnn.conv.fp32_precision": attribute(B.cudnn.conv, "fp32_precision", "tf32", "ieee"),
    "cuda.matmul.allow_tf32": attribute(B.cuda.matmul, "allow_tf32", False, True),
    "cuda.matmul.allow_fp16_accumulation": attribute(B.cuda.matmul, "allow_fp16_accumulation", False, True),
    "cuda.matmul.bf16": attribute(B.cuda.matmul, "allow_bf16_reduced_precision_reduction", True, False),
    "cuda.flash_sdp_enabled": (B.cuda.flash_sdp_enabled, B.cuda.enable_flash_sdp, (True, False)),
    "cuda.math_sdp_enabled": (B.cuda.math_sdp_enabled, B.cuda.enable_math_sdp, (True, False)),
    "opt_einsum.enabled": attribute(B.opt_einsum, "enabled", True, False),
    "opt_einsum.strategy": attribute(B.opt_einsum, "strategy", "auto", "greedy"),
    "mha.fastpath": (B.mha.get_fastpath_enabled, B.mha.set_fastpath_enabled, (True, False)),
    "fp32_precision": attribute(B, "fp32_precision", "none", "ieee"),
    "float32_matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, ("highest", "high")),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, (False, True)),
    "debug_mode": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, (0, 1)),
    "warn_only": (
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda v: torch.use_deterministic_algorithms(v, warn_only=v),
        (False, True),
    ),
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype, (torch.float32, torch.float64)),
    "fill_memory": attribute(torch.utils.deterministic, "fill_uninitialized_memory", True, False),
    "grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled, (True, False)),
    "overwrite_params": (
        torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion,
        (False, True),
    ),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_read_at_each_call(name: str) -> None:
    read, put, (first, second) = FLAGS[name]

    def fn(x: torch.Tensor) -> Any:
        return x + 1, read()

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    before = read()
    x = torch.zeros(1)
    found = []
    try:
        for value in (first, second, first, second):
            with warnings.catch_warnings():  # of the older of two ways to set a precision
                warnings.simplefilter("ignore")
                put(value)
            found.append((compiled(x)[1], read()))
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            put(before)
    assert all(type(a) is type(b) and a == b for a, b in found)
    assert len({value for _, value in found}) == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("enabled", [False, True])
def test_autocast_by_its_older_name(enabled: bool) -> None:
    layer = torch.nn.Linear(3, 3)

    def computes(x: torch.Tensor) -> Any:
        with torch.cuda.amp.autocast(enabled=enabled):
            return layer(x.float()), torch.is_autocast_enabled("cuda")

    check(computes, t(2, 3), breaks=0, graphs=1)
    check(torch.cuda.amp.autocast(enabled=enabled)(computes), t(2, 3), breaks=0, graphs=1)
