"""Triton and triton_gpu ask TRITON_INTERPRET when they are imported: so it is set here, while tests are collected."""

from __future__ import annotations

import importlib.util
import os

import torch

if importlib.util.find_spec("triton") is not None and not torch.cuda.is_available():
    from differential.backends import interpret_triton

    before = os.environ.get("TRITON_INTERPRET")
    interpret_triton()
    if before is None:
        del os.environ["TRITON_INTERPRET"]  # programs that tests start do not inherit it
