from pathlib import Path

import pytest
import torch

from jitney.cli import main
from jitney.commands.target import load
from jitney.debug.compiled_as import compiled_as
from jitney_tools.commands.memory import compared

PROGRAM = """
import torch

def step(x):
    for _ in range(8):
        x = torch.sin(x) * 2
    return x

def example_inputs():
    return torch.randn(300, 300, requires_grad=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program_of_memory.py"
    file.write_text(PROGRAM)
    return file


def test_the_table_compares_with_eager(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", f"{program}:step", "--backend", "llvm_cpu", "--backward"]) == 0
    out = capsys.readouterr().out
    for text in ("eager", "1.00", "jitney llvm_cpu, activation_memory_budget=0.5", "peak of a call", "MB"):
        assert text in out


def test_fused_forwards_keep_less_and_smaller_budgets_never_more(program: Path) -> None:
    found = load(f"{program}:step", "memory")
    eager, *ours = [
        most for _, most, _ in compared(compiled_as(found.function, "llvm_cpu"), found.inputs(), backward=True)
    ]
    size = 300 * 300 * 4
    assert eager > 8 * size  # what autograd saves
    assert ours == sorted(ours, reverse=True) and ours[0] < eager / 2


def test_inference_has_one_row_for_us(program: Path) -> None:
    found = load(f"{program}:step", "memory")
    rows = compared(compiled_as(found.function, "eager"), (torch.randn(10),), backward=False)
    assert [name for name, _, _ in rows] == ["eager", "jitney eager"]
