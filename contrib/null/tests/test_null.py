from __future__ import annotations

import pytest
import torch

import jitney
import jitney_null
from jitney.backends import HOOK_API_VERSION, registry
from jitney.errors import InvalidOption


def test_pip_made_it_known_by_name():
    assert registry.get("null") is jitney_null.backend
    assert jitney_null.jitney_hook_api == HOOK_API_VERSION


def test_only_the_first_call_computes():
    run = jitney.compile(lambda x: (x.sin(), x.sum()), backend="null")
    first = run(torch.ones(3))
    assert torch.equal(first[0], torch.ones(3).sin()) and first[1] == 3
    again = run(torch.zeros(3))
    assert torch.equal(again[0], torch.ones(3).sin()) and again[0].data_ptr() == first[0].data_ptr()


def test_guards_are_still_checked():
    run = jitney.compile(lambda x: x + 1, backend="null")
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 2.0))
    assert run(torch.ones(3, dtype=torch.int64)).dtype == torch.int64


def test_forward_and_backward_are_the_first_ones():
    net = torch.nn.Linear(3, 2)
    run = jitney.compile(net, backend="null")
    run(torch.ones(4, 3)).sum().backward()
    assert torch.equal(net.weight.grad, torch.full((2, 3), 4.0))
    net.weight.grad = None
    run(torch.zeros(4, 3)).sum().backward()
    assert torch.equal(net.weight.grad, torch.full((2, 3), 4.0))


def test_with_compute_numbers_are_right():
    run = jitney.compile(lambda x: x.sin(), backend="null", options={"compute": True})
    for x in (torch.ones(3), torch.zeros(3)):
        assert torch.equal(run(x), x.sin())


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="compute: bool = False"):
        jitney.compile(torch.sin, backend="null", options={"fast": True})
