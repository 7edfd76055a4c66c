"""Backends that end the process are minified too, each try in one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_backends import crashes_on_relu, takes_the_process_down

from jitney_tools.compare.verdict import Terms
from jitney_tools.minifier import write_case
from jitney_tools.minifier.case import bound, captured, plain_case
from jitney_tools.minifier.isolated import Isolated
from jitney_tools.minifier.run import minified
from jitney_tools.minifier.script import load


def program(x0: torch.Tensor) -> Any:
    return torch.relu(x0 * 2).exp().sum()


def test_what_takes_the_process_down_becomes_small(tmp_path: Path) -> None:
    values = [torch.linspace(-1, 1, 6)]
    module, _ = captured(program, values)
    path = write_case(
        plain_case(module, values, bound(takes_the_process_down, None, None)), None, tmp_path / "whole.py"
    )
    found, written = minified(path, isolate=True, seconds=120)
    assert found.case.op_count == 1 and found.before == 4
    assert (found.fault.kind, found.fault.reason) == ("dies", "the process was killed by SIGSEGV")
    assert "it takes the process down (results): the process was killed by SIGSEGV" in written.read_text()
    case, fault = load(written)
    assert fault is not None and fault.kind == "dies" and case.op_count == 1
    again, _ = minified(written, seconds=0)  # isolated without being asked: here we are
    assert again.fault.kind == "dies"


@pytest.mark.parametrize(("backend", "kind"), [(crashes_on_relu, "raises"), ("eager", None)])
def test_other_faults_are_what_they_are(backend: Any, kind: str | None) -> None:
    values = [torch.linspace(-1, 1, 6)]
    module, _ = captured(program, values)
    with Isolated() as isolated:
        fault = isolated.fault(plain_case(module, values, bound(backend, None, None)), Terms(seconds=30))
    assert (fault.kind if fault is not None else None) == kind
