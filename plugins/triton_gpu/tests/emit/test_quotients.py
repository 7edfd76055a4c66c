"""Division of float32: as eager's bits, the divisor shared by many or not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from fork_server import run_python
from machine_code import described

import jitney
from jitney_lowering.index import index
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.emit import scalars, writer

COUNT = 1 << 20
SPECIAL = [0.0, -0.0, 1.0, -3.0, float("inf"), -float("inf"), float("nan"), 3e38, 1e-37, 5.0, 7e-30, 1e-40]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Divisions that are spelled as on a GPU."""
    found: list[str] = []

    def spelled(dtype: torch.dtype, result: torch.dtype, a: str, b: str) -> str:
        found.append(f"helpers.shared_quotient({a}, {b})")
        return found[-1]

    monkeypatch.setattr(writer, "SHARED", {"div": spelled})
    return found


def any_bits(count: int, device: torch.device) -> torch.Tensor:
    bits = torch.randint(-(2**31), 2**31, (count,), generator=torch.Generator().manual_seed(count))
    return torch.cat([bits.to(torch.int32).view(torch.float32), torch.tensor(SPECIAL)]).to(device)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit() | found.isnan(), wanted.signbit() | wanted.isnan())


def test_quotients_of_any_bits(device: torch.device) -> None:
    a, b = any_bits(COUNT, device), any_bits(COUNT + 1, device)[1:]
    special = torch.tensor(SPECIAL, device=device)
    pairs = torch.cartesian_prod(special, special)
    a, b = torch.cat([a, pairs[:, 0]]), torch.cat([b, pairs[:, 1]])
    same(jitney.compile(torch.div, backend="triton_gpu")(a, b), a / b)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_rows_divided_by_what_they_share(on_gpu: bool, request: pytest.FixtureRequest, device: torch.device) -> None:
    spelled = request.getfixturevalue("shared") if on_gpu else []
    a, b = any_bits(500, device).expand(400, -1).contiguous(), any_bits(400 - len(SPECIAL), device)

    def fn(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a / b[:, None], a.nan_to_num(0, 1, -1).clamp(-1, 1).sum(1)  # a kernel of rows

    found, wanted = jitney.compile(fn, backend="triton_gpu", dynamic=False)(a, b)[0], a / b[:, None]
    assert len(spelled) == on_gpu
    fine = (a.abs() >= 1e-30) | (a == 0) | ~a.isfinite()
    fine &= (wanted.abs() >= 1e-30) | (wanted == 0) | wanted.isnan()
    if on_gpu and not torch.cuda.is_available():  # the interpreter rounds products
        torch.testing.assert_close(found, wanted, rtol=3e-7, atol=1e-38, equal_nan=True)
        fine &= (wanted == 0) | ~wanted.isfinite()
    same(found[fine], wanted[fine])


def test_halves(device: torch.device) -> None:
    some = torch.tensor([*SPECIAL, 3e-39, 65504.0, -1e38], device=device)
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.cartesian_prod(some.to(dtype), some.to(dtype)).unbind(1)
        same(jitney.compile(torch.div, backend="triton_gpu", dynamic=False)(a, b), a / b)


def test_no_thread_waits_for_others(tmp_path: Path) -> None:
    lines = ["x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)"]
    lines += ["tl.store(c + x, helpers.shared_quotient(tl.load(a + x), tl.load(b)))"]
    parameters = tuple(Parameter(name, "buffer", name, torch.float32) for name in "abc")
    body = "".join(f"    {line}\n" for line in lines)
    asked = tmp_path / "functions.json"
    asked.write_text(described([Function("divided", parameters, body, {"XBLOCK": 256}, index(100), 4)]))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = run_python(Path(__file__).parents[1] / "machine_code.py", asked, env=environment, check=True)
    (outcome,) = json.loads(ran.stdout)
    assert outcome["ptx"].count("div.rn.f32") == 1, "one reciprocal, of the divisor"
    assert outcome["ptx"].count("fma.rn.f32") == 4, "two for each of a thread's elements"


def test_the_interpreter_divides() -> None:
    assert scalars.SPELLINGS["div"](torch.float32, torch.float32, "a", "b") == "tl.div_rn(a, b)"
    assert scalars.SPELLINGS["div"](torch.float64, torch.float64, "a", "b") == "a / b"
