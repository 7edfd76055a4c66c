"""The kernels of many kinds of programs compile to machine code of sm_90, without a GPU too."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_python
from image_programs import PROGRAMS as IMAGES
from machine_code import described
from torch.nn import functional as F

import jitney
from jitney_lowering.ir import index_width
from jitney_triton_gpu import launcher, tiles
from jitney_triton_gpu.code import Function

SHARED = 227 * 1024  # bytes that a program may have on an H200
r = torch.randn
HALF = torch.bfloat16


def rotated(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return (x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s).to(x.dtype)


def moved(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = m * 0.9 + g * 0.1
    return p - 1e-3 * m / (m.abs().sqrt() + 1e-8), m


def crossed(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), torch.arange(len(x), device=x.device) % x.shape[1])


def mathematics(x: torch.Tensor) -> list[torch.Tensor]:
    functions = [
        torch.exp,
        torch.tanh,
        torch.erf,
        torch.log1p,
        torch.sin,
        torch.floor,
        torch.round,
        torch.sqrt,
        torch.rsqrt,
    ]
    more = [torch.lgamma, torch.expm1, torch.asinh, torch.erfc, torch.sign, torch.isnan, torch.signbit, torch.frac]
    return [f(x) for f in functions + more] + [x % 0.7, x // 0.3, x**2.5, torch.atan2(x, x + 1), torch.hypot(x, x)]


def integers(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    b = b.abs() + 1
    made = [a + b, a * b, a // b, a % b, torch.fmod(a, b), a < b, a & b, a | b, a ^ b, ~a, a << 1, a >> 1]
    return [*made, a.clamp(-3, 3), (a > 0).sum(), a.float() / 3, a.prod(1), a.amax(1), a.sum(0)]


def beyond_32_bits(x: torch.Tensor) -> torch.Tensor:
    n, m = x.shape
    steps = torch.arange(0, 10**11 * m, 10**11, device=x.device)
    return x * (n * n * m) + steps + (n * n + m) // 7 + n * n % m


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "gelu of halves": (
        lambda x, b, y: F.gelu(x + b, approximate="tanh") + y,
        lambda: (r(33, 64).to(HALF), r(64).to(HALF), r(33, 64).to(HALF)),
    ),
    "complex numbers": (
        lambda z, w, x: (
            z * x / w,
            (1j * z).exp().abs().sum(1),
            z.conj() * w.sum(0),
            torch.polar(x, x).t().contiguous(),
        ),
        lambda: (r(33, 70, dtype=torch.complex64), r(33, 70, dtype=torch.complex64), r(33, 70)),
    ),
    "overlapping frames": (
        lambda z, x, w: (z.real.unfold(1, 16, 4) * w, torch.ops.aten.unfold_backward(x, [2, 76], 1, 16, 4)),
        lambda: (r(2, 76, dtype=torch.complex64), r(2, 16, 16), r(16)),
    ),
    "transposition": (lambda x: x.t().contiguous() * 2, lambda: (r(70, 90),)),
    "three axes turned": (lambda x: x.permute(2, 0, 1).contiguous().exp(), lambda: (r(12, 70, 90),)),
    "softmax": (lambda x: x.softmax(-1), lambda: (r(33, 70),)),
    "softmax of columns": (lambda x: x.softmax(0), lambda: (r(33, 70),)),
    "softmax of long rows": (lambda x: x.softmax(-1), lambda: (r(2, 40000),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (64,), w, b), lambda: (r(300, 64), r(64), r(64))),
    "layer norm of halves": (
        lambda x, w, b: F.layer_norm(x, (64,), w, b),
        lambda: (r(300, 64).to(HALF), r(64).to(HALF), r(64).to(HALF)),
    ),
    "rms norm": (lambda x, w: F.rms_norm(x, (96,), w), lambda: (r(40, 96).to(HALF), r(96).to(HALF))),
    "group norm": (lambda x: F.group_norm(x, 2), lambda: (r(4, 8, 6, 6),)),
    "batch norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        lambda: (r(4, 8, 6, 6), r(8), r(8)),
    ),
    "cross entropy": (crossed, lambda: (r(17, 300).to(HALF),)),
    "column sum": (lambda x: (x.float() ** 2).sum(0), lambda: (r(500, 40).to(HALF),)),
    "sum of everything": (lambda x: (x * x).sum(), lambda: (r(500, 40),)),
    "mean and variance": (lambda x: (x.mean(0), x.var(0), x.var(), x.std(1)), lambda: (r(130, 40),)),
    "positions": (lambda x: (x.argmax(), x.argmin(0), x.argmax(1), x.max(1), x.min(0)), lambda: (r(50, 40),)),
    "integers beyond 32 bits": (beyond_32_bits, lambda: (r(20, 6),)),
    "truth values": (lambda x: ((x > 0).any(1), (x > -1).all(0), (x > 3).any(), x.isnan().all()), lambda: (r(20, 6),)),
    "rope": (rotated, lambda: (r(2, 3, 16, 8).to(HALF), r(16, 8), r(16, 8))),
    "an optimizer": (moved, lambda: (r(300), r(300), r(300))),
    "doubles": (lambda x: (x.softmax(-1), x.sum(), x.exp().sum(0)), lambda: (r(20, 33).double(),)),
    "pooling": (lambda x: F.avg_pool2d(x, 2), lambda: (r(2, 3, 8, 8),)),
    "scans": (lambda x: (x.softmax(-1).cumsum(-1) * x, x.cumprod(0)), lambda: (r(20, 33).to(HALF),)),
    "scans of long rows": (lambda x: (x.cumsum(-1), *torch.cummax(x, -1), x.logcumsumexp(-1)), lambda: (r(2, 40000),)),
    "embedding": (lambda w, i: F.embedding(i, w).sum(-1), lambda: (r(20, 6), torch.arange(7))),
    "messages along edges": (
        lambda x, e: (x[e[0]] * x[e[1]], (x[e[0]] * x[e[1]]).sum(-1)),
        lambda: (r(20, 16), torch.arange(22).view(2, 11) % 20),
    ),
    "sums of rows": (lambda w, i: (F.embedding(i, w) * 2).sum(1), lambda: (r(9, 16), torch.arange(15).view(5, 3) % 9)),
    "dropout": (lambda x: F.dropout(x.exp(), 0.5), lambda: (r(40, 5),)),
}
INFERENCE: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "pooling": (lambda x: F.max_pool2d(x, 2), lambda: (r(2, 3, 8, 8),)),
    "mathematics": (mathematics, lambda: (r(100).abs(),)),
    "mathematics of doubles": (mathematics, lambda: (r(100).abs().double(),)),
    **{
        f"{dtype}": (
            integers,
            lambda dtype=dtype: (torch.arange(60).view(6, 10).to(dtype), torch.arange(60).view(6, 10).to(dtype)),
        )
        for dtype in (torch.int64, torch.int32, torch.int16, torch.int8)
    },
    "halves": (mathematics, lambda: (r(100).abs().half(),)),
    **{
        f"{dtype}": (
            lambda x, y, dtype=dtype: (x.float() * 2, torch.cat([x, y.to(dtype)]), y.half().to(dtype).bfloat16()),
            lambda dtype=dtype: (r(40, 30).to(dtype), r(50, 30)),
        )
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    },
}

PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "a layer": (
        lambda x, w, b, y: F.gelu(F.linear(x, w, b)) + y,
        lambda: (r(200, 256).to(HALF), r(300, 256).to(HALF), r(300).to(HALF), r(200, 300).to(HALF)),
    ),
    "a small layer": (lambda x, w: (x @ w).relu(), lambda: (r(20, 33).half(), r(33, 40).half())),
    "a batch": (lambda a, b: torch.bmm(a, b).tanh(), lambda: (r(3, 70, 64).to(HALF), r(3, 64, 90).to(HALF))),
    "an outer product": (lambda a, b: (a @ b).relu(), lambda: (r(33, 1).to(HALF), r(1, 40).to(HALF))),
    "a row and a column": (lambda a, b: (a @ b).relu(), lambda: (r(1, 33).to(HALF), r(33, 1).to(HALF))),
    "rows that are one": (lambda a, b: (a.expand(40, 64) @ b).relu(), lambda: (r(1, 64).to(HALF), r(64, 1).to(HALF))),
}

# With as many programs as an H200 runs at a time, these take the interpreter long. They are not run, results are what
# memory held.
LONG = (
    "softmax of long rows",
    "scans of long rows",
    "layer norm",
    "layer norm of halves",
    "group norm",
    "batch norm",
    "column sum",
)
WIDE = (
    "gelu of halves",
    "transposition",
    "softmax",
    "softmax of long rows",
    "layer norm",
    "column sum",
    "positions",
    "scans",
)


@pytest.fixture(scope="module")
def functions(device: torch.device) -> list[Function]:
    """Every function that the programs make, forward and backward, with sizes and without."""
    found: dict[str, Function] = {}
    takes_long = False
    load = launcher.load

    def noting(source: str, name: str, functions: dict[str, Function], *rest: Any) -> Any:
        for function in functions.values():
            alone = Function(
                "kernel", function.parameters, function.body, function.blocks, function.programs, function.warps,
                function.wide, asserts=function.asserts,
            )  # fmt: skip
            found[alone.text + str(alone.warps)] = alone
        if takes_long:
            return dict.fromkeys(functions, lambda *launched: None)
        return load(source, name, functions, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "load", noting)
        patch.setattr(tiles, "PROCESSORS", 132)
        for trains, programs in ((True, PROGRAMS), (True, IMAGES), (False, INFERENCE)):
            for title, (fn, make) in programs.items():
                takes_long = title in LONG
                for dynamic in (False, True) if trains else (False,):
                    run(fn, [t.to(device) for t in make()], trains, dynamic)
        for fn, make in PRODUCTS.values():
            run(fn, [t.to(device) for t in make()], False, False, gemm="triton")
        patch.setattr(index_width, "NARROW", 10)
        for title in WIDE:
            fn, make = PROGRAMS[title]
            takes_long = title in LONG
            run(fn, [t.to(device) for t in make()], True, False)
    return list(found.values())


def run(fn: Callable[..., Any], args: list[torch.Tensor], trains: bool, dynamic: bool, **options: Any) -> None:
    args = [a.requires_grad_(trains and a.is_floating_point()) for a in args]
    results = jitney.compile(fn, backend="triton_gpu", dynamic=dynamic, fullgraph=True, options=options)(*args)
    leaves = [t for t in torch.utils._pytree.tree_leaves(results) if t.requires_grad]
    if trains and leaves:
        torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])


@pytest.mark.slow
def test_all_compile_for_sm_90(functions: list[Function], tmp_path: Path) -> None:
    assert len(functions) > 60 and sum(f.wide for f in functions) > 7
    asked = tmp_path / "functions.json"
    asked.write_text(described(functions))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = run_python(Path(__file__).with_name("machine_code.py"), asked, env=environment)
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout)
    assert len(outcomes) == len(functions)
    assert [f"{o['error']}\n{o['text']}" for o in outcomes if "error" in o] == []
    assert [o["text"] for o in outcomes if o["shared"] > SHARED] == []
    assert all(o["bytes"] > 0 for o in outcomes)
