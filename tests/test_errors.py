import inspect
from traceback import FrameSummary

import pytest
import torch

from jitney import errors
from jitney.errors import BackendFailed, JitneyError, Unsupported, describe_frame, nearest

OUTER = FrameSummary("train.py", 3, "main", line="  loss = step(x)")
INNER = FrameSummary("model.py", 12, "forward", line="y = x.item()")


def test_the_message_begins_with_the_users_line_then_reason_then_fix():
    error = Unsupported("Tensor.item() needs data", user_stack=[OUTER, INNER], hint="keep it a tensor")
    assert str(error) == (
        "model.py:12, in forward: y = x.item()\n"
        "capture: Tensor.item() needs data\n"
        "try: keep it a tensor\n"
        "from user code:\n"
        "  train.py:3, in main: loss = step(x)\n"
        "  model.py:12, in forward: y = x.item()"
    )


def test_a_line_of_torchs_does_not_lead_the_message():
    inside = FrameSummary(torch.nn.functional.__file__, 7, "embedding", line="return torch.embedding(weight, input)")
    lines = str(Unsupported("no", user_stack=[OUTER, INNER, inside])).splitlines()
    assert lines[0] == "model.py:12, in forward: y = x.item()"
    assert lines[-1].endswith("in embedding: return torch.embedding(weight, input)")


def test_one_frame_is_not_repeated_and_no_hint_leaves_no_line():
    assert str(Unsupported("no", user_stack=[INNER])) == "model.py:12, in forward: y = x.item()\ncapture: no"


def test_without_a_place_the_phase_leads():
    assert str(BackendFailed("broken", phase="backend llvm_cpu")) == "backend llvm_cpu: broken"


def test_a_frame_without_source_is_still_described():
    assert describe_frame(FrameSummary("<string>", 1, "f", lookup_line=False, line="")) == "<string>:1, in f"


def test_every_error_is_in_the_tree_documented_and_has_a_phase():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    assert len(classes) > 5
    for cls in classes:
        assert issubclass(cls, JitneyError)
        assert cls.__doc__
        assert str(cls("why")) == f"{cls.phase}: why"


def test_a_phase_given_to_one_error_stays_with_it():
    BackendFailed("x", phase="backend y")
    assert BackendFailed.phase == "backend"


@pytest.mark.parametrize(
    ("name", "hint"), [("egaer", "did you mean 'eager'?"), ("guard", "did you mean 'guards' or 'gruard'?"), ("zzz", "")]
)
def test_the_nearest_names(name, hint):
    assert nearest(name, ["eager", "guards", "gruard"]) in (hint, "did you mean 'gruard' or 'guards'?" if hint else "")
