from __future__ import annotations

import os
import select

import pytest
import torch
from odd_numbers import run, same
from torch import nn

import jitney
import jitney_onnxruntime
from jitney import events
from jitney.backends import HOOK_API_VERSION, registry
from jitney.errors import InvalidOption


def test_pip_made_it_known_by_name_and_it_lacks_nothing():
    assert registry.get("onnxruntime") is jitney_onnxruntime.backend
    assert jitney_onnxruntime.jitney_hook_api == HOOK_API_VERSION
    assert jitney_onnxruntime.lacks() == []


def test_what_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert jitney_onnxruntime.lacks() == [
        "the package onnx is not installed",
        "the package onnxruntime is not installed",
    ]


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="threads"):
        jitney.compile(torch.sin, backend="onnxruntime", options={"fast": True})
    with pytest.raises(InvalidOption, match="threads"):
        jitney.compile(torch.sin, backend="onnxruntime", options={"threads": -1})


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_every_level_of_optimization_gives_eagers_numbers(level):
    def program(x, w):
        y = torch.nn.functional.layer_norm(x @ w, (6,)) + 0.0
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) + x
        y = 0.5 * y * (1 + torch.erf(y / 2**0.5)) + y * torch.sigmoid(1.702 * y)
        return 0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y.pow(3))))

    x, w = torch.arange(24.0).view(4, 6).sin() + 500, torch.arange(36.0).view(6, 6).cos()
    made, shares = run(program, x, w, options={"graph_optimization_level": level, "threads": 1})
    torch.testing.assert_close(made, program(x, w))
    assert set(shares) == {"onnxruntime"}


def test_a_training_step_is_eagers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(5, 6)
    net(x).square().sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    made = jitney.compile(net, backend="onnxruntime", fullgraph=True)(x)
    torch.testing.assert_close(made, net(x))
    made.square().sum().backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], expected)


def test_one_graph_for_many_sizes():
    def program(x, n):
        y = (x.t() * n + x.shape[0]).softmax(0)
        return y.reshape(-1), torch.arange(x.shape[0]) + n, y[:, 1:], x.new_zeros(n, x.shape[1]), x.shape[0] * 2

    graphs = []
    compiled = jitney.compile(program, backend="onnxruntime", dynamic=True, fullgraph=True)
    with events.listen(lambda e: graphs.append(e) if isinstance(e, events.GraphCaptured) else None):
        for rows, n in ((3, 4), (8, 7), (64, 2), (3, 5)):
            x = torch.arange(rows * 5.0).view(rows, 5).sin()
            torch.testing.assert_close(compiled(x, n), program(x, n))
    assert len(graphs) == 2  # the number becomes symbolic when it changes


def test_results_lie_in_memory_as_eagers():
    def program(x):
        y = x * 2
        return y.t(), y.expand(3, 4, 6), y[:, ::2], (x.t() + 1), y.view(2, 2, 6).permute(1, 2, 0), y.diagonal()

    for x in (torch.arange(24.0).view(4, 6), torch.arange(24.0).view(6, 4).t(), torch.arange(48.0).view(4, 12)[:, ::2]):
        made, _ = run(program, x)
        same(made, program(x))


def test_a_stand_in_of_another_dtype_than_the_tensor_is_seen():
    """torch's stand-ins of these running statistics are bfloat16, the tensors float32."""

    def program(x, ones, mean, variance):
        return torch.ops.aten._batch_norm_with_update(x, ones, ones, mean, variance, 0.5, 0.6)

    x, ones = torch.arange(24.0).view(4, 6).sin().bfloat16(), torch.ones(6, dtype=torch.bfloat16)
    found, expected = ([x, ones, torch.arange(6).bfloat16(), ones.clone()] for _ in range(2))
    _, shares = run(program, *found)
    program(*expected)
    same(found, expected)
    assert shares["onnxruntime"]


def test_results_of_an_operator_that_another_piece_takes_apart():
    def program(x, y):
        one, other = (x * 2).split(2)
        return torch.logcumsumexp(one, 0) @ y + other.sin(), x * torch.logcumsumexp(y, 0)[:2, :1].sum()

    x, y = torch.arange(12.0).view(4, 3).sin(), torch.arange(9.0).view(3, 3).cos()
    made, shares = run(program, x, y)
    torch.testing.assert_close(made, program(x, y))
    assert shares["eagerly"] and shares["onnxruntime"]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's, if another package's tests have imported it
def test_a_forked_process_makes_sessions_of_its_own():
    compiled = jitney.compile(lambda x: (x @ x).sum(-1), backend="onnxruntime", options={"threads": 2})
    x = torch.arange(90_000.0).view(300, 300).sin()
    expected = compiled(x).tolist()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(compiled(x).tolist() == expected).encode())
        finally:
            os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], 20)
    text = os.read(read, 100) if ready else b"the child hangs"
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(read)
    assert text == b"True"


def test_the_model_can_be_read():
    texts = []
    with events.details(), events.listen(lambda e: texts.append(e.text) if isinstance(e, events.Artefact) else None):
        jitney.compile(lambda x: x.sin() + 1, backend="onnxruntime")(torch.ones(3))
    assert any('op_type: "Sin"' in text for text in texts)
