"""PTX that NVIDIA's assembler translates wrongly is repaired."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from fork_server import run_python
from triton import language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

import jitney
from jitney_lowering.index import index
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.launch import compiled, image
from jitney_triton_gpu.ptx import assembled, repaired

TARGET = GPUTarget("cuda", 90, 32)
NVDISASM = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
# The upper half of a pair, 32 more: ptxas makes ``VIADD.16x2 R0, R0, 0x0`` of it.
PTX = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry shifted(.param .u64 to) {
    .reg .b16 %rs<4>; .reg .b32 %r<8>; .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [to];
    mov.u32 %r1, %tid.x;
    mad.lo.s32 %r2, %r1, 7, 3;
    mad.lo.s32 %r3, %r1, 5, 1;
    cvt.u16.u32 %rs1, %r2;
    cvt.u16.u32 %rs2, %r3;
    mov.b32 %r4, {%rs1, %rs2};
    mov.b32 %r5, 2097184;
    add.s16x2 \t%r6, %r4, %r5;
    mov.b32 {_, %rs3}, %r6;
    cvt.s32.s16 %r7, %rs3;
    st.global.b32 [%rd1], %r7;
    ret;
}
"""


def windows(x, to, XBLOCK: tl.constexpr):
    places = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    row, column = places // 64 % 64, places % 64
    at = row * 64 + column
    first = tl.load(x + (at + 32) % 2080, at % 65 < 33, 0.0)
    second = tl.load(x + at, ((at + 32) % 65 < 32) & ((at + 32) // 2080 == 0), 0.0)
    tl.store(to + places, first + second)


def kernel() -> Function:
    parameters = tuple(Parameter(name, "buffer", name, torch.float32) for name in ("x", "to"))
    return Function("windows", parameters, "", {"XBLOCK": 512}, index(100), 4)


def main(folder: Path) -> None:
    """Compile the kernel: in a process of its own, since Triton may compile nothing in one that has interpreted."""
    function: Any = JITFunction(windows)
    (folder / "ptx").write_text(compiled(kernel(), function, TARGET, aligned=True).ptx)
    (folder / "image").write_bytes(image(kernel(), function, TARGET, aligned=True, relaxed=False).code)


def instructions(machine_code: bytes, folder: Path) -> str:
    if not NVDISASM.exists() and not shutil.which("nvdisasm"):
        pytest.skip("nothing here reads machine code")
    (folder / "code.cubin").write_bytes(machine_code)
    command = [str(NVDISASM) if NVDISASM.exists() else "nvdisasm", "-c", str(folder / "code.cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_sums_of_pairs_are_two_sums(tmp_path: Path) -> None:
    options = {"num_warps": 4}
    before, after = (instructions(assembled(ptx, TARGET, options), tmp_path) for ptx in (PTX, repaired(PTX)))
    assert ", 0x20" not in before, "this ptxas is right: the repair can go"
    assert ", 0x20," in after and "16x2" not in after


def test_kernels_are_repaired(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    run_python(__file__, tmp_path, env=environment, check=True)
    ptx = (tmp_path / "ptx").read_text()
    assert "%half" in ptx and "add.s16x2" not in ptx, "Triton has come to no sum of pairs: the test shows nothing"
    text = instructions((tmp_path / "image").read_bytes(), tmp_path)
    assert "EXIT" in text and "VIADD.16x2" not in text


def test_other_kernels_are_as_they_were() -> None:
    text = PTX.replace("add.s16x2", "min.s16x2")
    assert repaired(text) == text


def test_places_after_a_shift(device: torch.device) -> None:
    def crop(x: torch.Tensor) -> torch.Tensor:
        wide = torch.nn.functional.pad(x[:, 32:], (0, 32))
        return torch.nn.functional.pad(wide.view(-1, 65, 64), (0, 0, 0, -1)) + x.view(-1, 65, 64)[:, 1:]

    x = torch.randn(50, 64 * 65, device=device)
    torch.testing.assert_close(jitney.compile(crop, backend="triton_gpu")(x), crop(x), rtol=0, atol=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
