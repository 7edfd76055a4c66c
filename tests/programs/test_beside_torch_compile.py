"""torch.compile around compiled code, and inside of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import jitney

# What TorchDynamo itself warns of.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _forget():
    yield
    torch.compiler.reset()


def test_torch_compile_around_a_compiled_module() -> None:
    torch.manual_seed(0)
    module = nn.Linear(8, 8)
    inner = jitney.compile(module, backend="eager")
    outer = torch.compile(lambda x: inner(x) * 2, backend="eager")
    for rows in (2, 3):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(outer(x), module(x) * 2)


def test_a_function_compiled_by_torch_inside() -> None:
    inner = torch.compile(lambda x: x + 1, backend="eager")
    for fn in (inner, lambda x: inner(x) * 2):
        compiled = jitney.compile(fn, backend="eager")
        for rows in (2, 3):
            x = torch.randn(rows)
            torch.testing.assert_close(compiled(x), fn(x))


def test_a_module_compiled_in_place_by_torch() -> None:
    module = nn.Linear(4, 4)
    module.compile(backend="eager")
    module.register_forward_hook(lambda module, args, result: result + 1)
    x = torch.randn(2, 4)
    torch.testing.assert_close(jitney.compile(module, backend="eager")(x), module(x))


def test_the_original_has_the_name_that_torch_compile_gives_it() -> None:
    module = nn.Linear(4, 4)
    assert jitney.compile(module, backend="eager")._orig_mod is module
