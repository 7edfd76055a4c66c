"""torch.compile as the front end: our backends run its graphs, forward and backward, beside eager."""

from __future__ import annotations

import copy
import importlib.metadata
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import jitney
from jitney import events
from jitney.backends import registry
from jitney.torch_compile import backend_for

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + self.inner(x, x, x, need_weights=False)[0])


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, x):
        return nn.functional.relu(self.norm(self.conv(x)) + x).mean((2, 3))


class Branches(nn.Module):
    """With a graph break, an in-place write and two results."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x).softmax(-1)
        y = y * 2 if y.sum().item() > 0 else y - 1
        z = y.clone()
        z[:, 0] = 0
        return z, y.sum(-1)


MODELS = {
    "perceptron": (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)), (3, 4)),
    "attention": (Attention(), (2, 3, 8)),
    "residual": (Residual(), (2, 2, 4, 4)),
    "branches": (Branches(), (3, 4)),
}
# A backend for captured graphs gets one model, those for ATen graphs all of them.
CASES = [("branches", "eager"), *((name, backend) for backend in ("aot_eager", "llvm_cpu") for name in MODELS)]


@pytest.fixture(autouse=True)
def afresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def steps(run, model, shape):
    """What two calls without gradients and a training step come to, sizes of the batch apart."""
    found = []
    for batch in (shape[0], shape[0] + 2):
        size = (batch, *shape[1:])
        device = next(model.parameters()).device
        x = torch.linspace(-1, 1, torch.Size(size).numel(), dtype=torch.float64, device=device).reshape(size)
        with torch.no_grad():
            found.append(run(x))
        x.requires_grad_()
        model.zero_grad()
        results = run(x)
        sum(result.square().sum() for result in (results if isinstance(results, tuple) else (results,))).backward()
        found += [x.grad, *(p.grad.clone() for p in model.parameters())]
        found += [b.clone() for b in model.buffers()]
    return found


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_a_model_trains_and_infers_under_torch_compile(name, backend):
    model, shape = MODELS[name]
    wanted_of, model = copy.deepcopy(model).double(), copy.deepcopy(model).double()  # roundings are no matter here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own front end
        compiled = torch.compile(model, backend=backend_for(backend))
        torch.testing.assert_close(steps(compiled, model, shape), steps(wanted_of, wanted_of, shape))


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize("name", ["residual", "branches"])
def test_triton_gpu_runs_the_graphs_of_torch_compile(name):
    """By its name; in Triton's interpreter where there is no GPU."""
    device = registry.get("triton_gpu").device_types[0]
    model, shape = MODELS[name]
    wanted_of, model = (copy.deepcopy(model).double().to(device) for _ in range(2))
    told = []
    with warnings.catch_warnings(), events.listen(told.append):
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend="jitney_triton_gpu")
        torch.testing.assert_close(steps(compiled, model, shape), steps(wanted_of, wanted_of, shape))
    lowered = [event for event in told if isinstance(event, events.Lowered) and event.kernels]
    assert {event.kind for event in lowered} == {"inference", "forward", "backward"}
    assert {event.backend for event in lowered} == {"triton_gpu"}


@pytest.mark.parametrize("name", ["jitney_llvm_cpu", "jitney_triton_gpu"])
def test_torch_compile_finds_our_backends_by_name(name):
    (point,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name=name)
    assert name in torch.compiler.list_backends(exclude_tags=None)
    assert point.value.startswith(f"{name}.torch_backend:")


def test_what_jitney_compiled_is_its_original_under_torch_compile():
    function, linear = jitney.compile(lambda x: x.sin() + 1, backend="eager"), nn.Linear(4, 3)
    both = nn.Sequential(jitney.compile(linear, backend="eager"), nn.ReLU())
    x = torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own front end
        torch.testing.assert_close(torch.compile(function, backend="eager", fullgraph=True)(x), x.sin() + 1)
        torch.testing.assert_close(torch.compile(both, backend="eager")(x), linear(x).relu())
