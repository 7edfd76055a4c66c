"""What of benchmarks/ddp.py needs no other process: models, comparing, reporting; no figure of time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ddp
import pytest
import torch


@pytest.mark.parametrize("name", list(ddp.MODELS))
def test_a_model_trains_on_its_batch(name: str) -> None:
    work = ddp.MODELS[name](torch.device("cpu"), tiny=True)
    loss = work.loss(work.model(*work.batch))
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in work.model.parameters())
    assert work.parameters == sum(p.numel() for p in work.model.parameters())


def test_wrong_answers_are_seen() -> None:
    expected = torch.tensor(2.0), [torch.ones(4), torch.ones(2)]
    assert ddp.wrong(torch.tensor(2.01), [torch.ones(4), torch.ones(2) * 1.01], expected) == ""
    assert "the loss is 3" in ddp.wrong(torch.tensor(3.0), expected[1], expected)
    assert "gradients differ by" in ddp.wrong(expected[0], [torch.ones(4), torch.zeros(2)], expected)
    assert "gradients differ by nan" in ddp.wrong(expected[0], [torch.ones(4) * torch.nan, torch.ones(2)], expected)
    assert ddp.wrong(expected[0], [None, torch.ones(2)], expected) == "a parameter without a gradient"


def record() -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {v: {"seconds": [s, 2 * s], "first_seconds": 1.0} for v, s in TIMES.items()}
    rows["torch"] = {"error": "no compiler"}
    return {"parameters": 3, "variants": rows}


TIMES = {"eager": 4.0, "split": 2.0, "in_graph": 1.0}


def test_speeds_are_medians_of_ratios() -> None:
    assert ddp.speeds(record(), "eager") == {"eager": 1.0, "split": 2.0, "in_graph": 4.0, "torch": None}
    assert set(ddp.speeds(record(), "torch").values()) == {None}


def test_results_are_written_and_failures_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddp.dist, "get_backend", lambda: "gloo")
    given = SimpleNamespace(backend="llvm_cpu", rounds=2, cap=None, tiny=True, variants=ddp.VARIANTS, out=tmp_path)
    rank: Any = SimpleNamespace(size=2, device=torch.device("cpu"), arguments=given)
    ddp.show({"mlp_24": record()})
    ddp.write({"mlp_24": record()}, rank)
    assert "mlp_24, torch: no compiler" in capsys.readouterr().out
    written = json.loads((tmp_path / "ddp_cpu_2_tiny.json").read_text())
    assert written["about"]["ranks"] == 2 and written["models"]["mlp_24"]["variants"]["split"]["seconds"] == [2.0, 4.0]
    assert "<svg" in (tmp_path / "ddp_cpu_2_tiny.svg").read_text()
