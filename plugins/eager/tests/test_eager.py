import pytest
import torch

import jitney_eager
from jitney import events
from jitney.backends import HOOK_API_VERSION, registry, resolve
from jitney.errors import InvalidOption


def build(options=None):
    graph = torch.fx.symbolic_trace(lambda x: (torch.relu(x), x + 1))
    backend = resolve("eager", options)
    return backend.compile(graph, [torch.ones(2)], backend.request("inference", "f"))


def test_pip_made_it_known_by_name():
    assert registry.get("eager") is jitney_eager.backend
    assert jitney_eager.jitney_hook_api == HOOK_API_VERSION


def test_the_graph_runs_as_it_is():
    x = torch.tensor([-1.0, 2.0])
    relu, plus = build()(x)
    assert torch.equal(relu, torch.relu(x)) and torch.equal(plus, x + 1)


def test_the_graph_sees_gradients():
    x = torch.ones(2, requires_grad=True)
    build()(x)[1].sum().backward()
    assert torch.equal(x.grad, torch.ones(2))


@pytest.mark.parametrize("asked", [True, False])
def test_code_is_saved_when_asked_for(asked):
    seen = []
    with events.listen(seen.append):
        build({"save_code": asked})
    codes = [event.text for event in seen if isinstance(event, events.Artefact)]
    assert len(codes) == asked and all("torch.relu" in code for code in codes)


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="save_code: bool = False"):
        build({"fast": True})
