"""What the tables of library models share: reading them, models without chance, libraries that may not be there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .row import Mode

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
VISION_OPERATORS = ("nms", "qnms")


class NotInstalled(Exception):
    """A library that a row is about is not here, or does not have the model yet."""


def entries(table: str) -> Iterator[list[str]]:
    """The words of each line, but for comments and empty lines."""
    for line in table.splitlines():
        if words := line.partition("#")[0].split():
            yield words


def numbers(text: str) -> tuple[int, ...]:
    """``2x3x224`` as (2, 3, 224)."""
    return tuple(map(int, text.split("x")))


def kinds(word: str, device: str) -> dict[str, Any]:
    """What a table's word for a type on GPUs means for a row there; on CPUs all is float32.

    Args:
        word: ``float32``, ``bfloat16``, ``float16``, or ``auto:bfloat16``, which is autocast.
        device: where the row runs.
    """
    name = word.removeprefix("auto:")
    if device == "cpu" or name == "float32":
        return {}
    return {"autocast" if word.startswith("auto:") else "dtype": DTYPES[name]}


def mode_of(word: str) -> Mode:
    """``train`` or ``infer``, as the tables have it."""
    return {"train": "training", "infer": "inference"}[word]  # type: ignore[return-value]


def steady(model: nn.Module, mode: Mode) -> nn.Module:
    """The model in its mode, but what drops at random does not, and layers that begin as zeros do not hide others."""
    model.train(mode == "training")
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1 and not weight.count_nonzero():
                weight.normal_(0, 0.02)
    for part in model.modules():
        if "drop" in type(part).__name__.lower() or "StochasticDepth" in type(part).__name__:
            part.eval()
    return model


def library(name: str) -> Any:
    """Import a library; ``NotInstalled`` if it is not there."""
    try:
        _vision(needed=name != "transformers")
        return importlib.import_module(name)
    except ImportError as error:
        raise NotInstalled(f"{name}: {error}") from error


def _vision(needed: bool) -> None:
    """torchvision's Python, also where its operators do not fit this torch: a CPU build's wheel has none."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        if needed:
            raise
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in VISION_OPERATORS:
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        importlib.import_module("torchvision")
