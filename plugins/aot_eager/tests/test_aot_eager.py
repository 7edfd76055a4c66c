from __future__ import annotations

import pytest
import torch

import jitney
import jitney_aot_eager
from jitney import events
from jitney.backends import HOOK_API_VERSION, registry
from jitney.errors import InvalidOption


def targets(options=None):
    """The operators of the forward and the backward of one program, and its gradient."""
    found = {}

    def look(event):
        if isinstance(event, events.AtenGraph):
            found[event.kind] = [str(n.target) for n in event.graph.nodes if n.op == "call_function"]

    compiled = jitney.compile(lambda x: torch.nn.functional.silu(x).sum(), backend="aot_eager", options=options)
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    with events.listen(look):
        compiled(x).backward()
    return found, x.grad


def test_pip_made_it_known_by_name():
    assert registry.get("aot_eager") is jitney_aot_eager.backend
    assert jitney_aot_eager.jitney_hook_api == HOOK_API_VERSION
    assert jitney_aot_eager.backend.level == "aten"


def test_operators_as_autograd_calls_them():
    found, gradient = targets()
    assert "aten.silu.default" in found["forward"] and "aten.silu_backward.default" in found["backward"]
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    torch.nn.functional.silu(x).sum().backward()
    assert torch.equal(gradient, x.grad)


def test_operators_taken_apart_give_the_same():
    found, gradient = targets({"decompose": "core"})
    assert not any("silu" in name for name in (*found["forward"], *found["backward"]))
    torch.testing.assert_close(gradient, targets()[1])


@pytest.mark.parametrize("asked", [True, False])
def test_code_is_saved_when_asked_for(asked):
    seen = []
    with events.listen(seen.append):
        targets({"save_code": asked})
    codes = [e.text for e in seen if isinstance(e, events.Artefact) and e.name == "output_code"]
    assert len(codes) == 2 * asked and all("aten" in code for code in codes)


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="decompose"):
        targets({"decompose": "all"})
