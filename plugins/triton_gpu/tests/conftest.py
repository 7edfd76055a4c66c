"""Tests run on a CUDA device if there is one, else in Triton's interpreter.

Triton and the plugin ask TRITON_INTERPRET when they are imported. So it is set here, while tests are collected: in this
process triton_gpu is then a backend for the CPU, also where other folders' tests use it; these take ``"auto"`` at most,
which asks llvm_cpu first. Programs that tests start do not inherit it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # machine_code

if importlib.util.find_spec("triton") is None:  # there is none but for Linux
    collect_ignore_glob = ["*"]
elif not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    import triton

    from jitney_triton_gpu import device as plugin_device

    triton.knobs.runtime.interpret = True
    del os.environ["TRITON_INTERPRET"]
    assert plugin_device.INTERPRETED, "jitney_triton_gpu was imported before the tests for it were collected"

from jitney_triton_gpu import tiles  # noqa: E402 - after TRITON_INTERPRET


@pytest.fixture(autouse=True)
def few_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter programs run one after the other, so there are fewer of them."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(tiles, "PROCESSORS", 3)


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where tensors are to be."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
