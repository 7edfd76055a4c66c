"""Where code lies tells whose it is, not the names that it goes by."""

from __future__ import annotations

import functools
import sys
import types
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import jitney
from jitney._util.ownership import trusted, trusted_file, trusted_module

MINE = "def softmax(x): return x\nclass Linear:\n    def forward(self): pass\n"


@pytest.fixture
def user_wave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of the user's that is named as one of the standard library."""
    module = types.ModuleType("wave")
    module.__file__ = str(tmp_path / "wave.py")
    exec(compile(MINE, module.__file__, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "wave", module)
    yield module


def test_a_user_module_with_a_name_of_the_standard_library_is_not_trusted(user_wave: Any) -> None:
    assert not trusted_module("wave")
    for value in (user_wave, user_wave.__dict__, user_wave.softmax, user_wave.Linear):
        assert not trusted(value)


def test_the_module_of_the_standard_library_is_trusted_again_when_it_is_back() -> None:
    assert trusted_module("wave")
    assert trusted(wave) and trusted(wave.open) and trusted(wave.Wave_read)


def test_a_module_without_a_file_is_not_trusted_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch.nn.mine")
    exec(MINE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for value in (module, module.__dict__, module.Linear):
        assert not trusted(value)


@pytest.mark.parametrize(
    "value",
    [
        torch, torch.nn.functional, torch.nn.functional.softmax, nn.Linear, nn.Linear.forward, torch.Tensor,
        torch.backends.cudnn, torch.ops, vars(torch.nn.functional), vars(functools), functools, functools.partial, sys,
        type(sys.flags), int, jitney.compile, torch.nn.utils.clip_grad_norm, torch.distributions.Normal,
    ],
    ids=lambda value: getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__)),
)  # fmt: skip
def test_what_torch_python_and_jitney_have_written_is_trusted(value: Any) -> None:
    assert trusted(value)


def test_other_packages_within_the_same_folders_are_not_trusted() -> None:
    assert "site-packages" in np.__file__ or "dist-packages" in np.__file__
    assert not trusted_file(np.__file__)
    assert trusted_file(torch.__file__)
    assert not trusted_file("<string>")
    assert not trusted_file("<frozen mine>")


def test_a_function_that_says_it_is_torchs_is_not_trusted() -> None:
    @functools.wraps(torch.nn.functional.softmax)
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x

    assert mine.__module__ == "torch.nn.functional"
    assert not trusted(mine)


def test_a_class_that_says_it_is_torchs_is_not_trusted() -> None:
    class Mine(nn.Module):
        __module__ = "torch.nn"

    Mine.__qualname__ = "Linear"
    assert not trusted(Mine)


def test_the_classes_of_torchs_results_are_trusted() -> None:
    assert trusted(type(torch.ones(2, 2).max(0)))
