"""Backends that are wrong on purpose: each kind of difference must be found."""

import pytest
import torch

from jitney.backends import Backend
from jitney_testing.opinfo.case import Outcome, try_case
from jitney_testing.opinfo.compare import difference, sharing
from jitney_testing.opinfo.known_failures import Known, read_known, stale, unexpected
from jitney_testing.opinfo.samples import Case, Choice, calls
from jitney_testing.opinfo.tally import percent, tallies
from jitney_tools.compare.copies import copied

pytestmark = pytest.mark.filterwarnings("default")


def spoiling(spoil, kinds=("inference", "forward")):
    """A backend whose graphs of these kinds return ``spoil(outputs)``."""

    def compile_graph(graph, inputs, request):
        if request.kind not in kinds:
            return graph.forward
        return lambda *args: spoil(list(graph.forward(*args)))

    return Backend(name="spoiling", compile=compile_graph, level="aten")


def fail(*outputs):
    raise RuntimeError("a kernel that fails")


def first(change):
    return lambda outputs: [change(outputs[0]), *outputs[1:]]


def outcome(op, spoil, kinds=("inference", "forward"), variant="call"):
    for call in calls(op, "float32", Choice(variants=(variant,))):
        if call.args[0].dim() > 1:
            return try_case(call, spoiling(spoil, kinds))
    raise AssertionError("no sample of two dimensions")


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (first(lambda x: x + 1), "values"),
        (first(lambda x: torch.full_like(x, torch.nan)), "values"),
        (first(lambda x: x.t().contiguous().t()), "strides"),
        (fail, "graph raises"),
    ],
)
def test_a_wrong_forward_is_found(spoil, kind):
    found = outcome("sin", spoil)
    assert (found.forward, found.failure.stage, found.failure.kind) == (False, "forward", kind)


@pytest.mark.parametrize(("spoil", "kind"), [(first(lambda x: x * 2), "values"), (fail, "raises")])
def test_a_wrong_backward_is_found(spoil, kind):
    found = outcome("sin", spoil, ("backward",))
    assert (found.forward, found.backward) == (True, False)
    assert (found.failure.stage, found.failure.kind) == ("backward", kind)


@pytest.mark.parametrize("variant", ["inplace", "out"])
def test_a_wrong_write_is_found(variant):
    found = outcome("sin", first(lambda x: x + 1), variant=variant)
    assert (found.failure.stage, found.failure.kind) == ("forward", "values")


def test_drawing_more_than_eager_is_found():
    found = outcome("bernoulli", first(lambda x: (torch.rand(3), x)[1]))
    assert found.failure.kind == "random state"


def test_a_right_backend_passes():
    found = outcome("sin", list)
    assert (found.forward, found.backward, found.exact, found.failure) == (True, True, True, None)
    assert found.coverage.halves == ["forward", "backward"]


@pytest.mark.parametrize(
    ("expected", "found", "kind"),
    [
        (torch.ones(2), torch.ones(3), "shape"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype"),
        (torch.ones(2), torch.ones(2, requires_grad=True), "requires_grad"),
        (torch.ones(2), torch.ones(2).to_sparse(), "layout"),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64).conj(), "lazy bits"),
        ([torch.ones(2)], (torch.ones(2),), "structure"),
        ([1], [1, 2], "structure"),
        ({"a": 1}, {"b": 1}, "structure"),
        (1, 1.0, "structure"),
        (1, 2, "values"),
        (None, torch.ones(2), "structure"),
    ],
)
def test_differences_have_a_kind(expected, found, kind):
    assert difference(expected, found, "result").kind == kind


def test_nan_is_equal_to_nan():
    assert (
        difference([torch.tensor([torch.nan, 1]), float("nan")], [torch.tensor([torch.nan, 1]), float("nan")], "")
        is None
    )


def test_strides_of_single_elements_do_not_count():
    assert difference(torch.ones(1, 3), torch.ones(3, 1).t().contiguous().as_strided((1, 3), (7, 1)), "") is None


def test_copies_share_memory_as_their_originals_do():
    base = torch.arange(6.0)
    args = (base, {"view": base[2:], "pair": [base, slice(base[0], None)]}, torch.ones(2, requires_grad=True).t())
    made = copied(args)
    assert difference(args, made, "") is None
    assert made[1]["pair"][0] is made[0] is not base
    assert sharing(made[1], made[:1]) == sharing(args[1], args[:1])
    assert sharing(made, args) == [(), (0,), (0, 1), ()]
    assert not copied(args, grad=False)[2].requires_grad


def made_outcome(op="sin", failure=None, index=0, **facts):
    return Outcome(Case(op, "float32", "call", index), True, failure=failure, **facts)


def test_known_failures_cover_what_they_say(tmp_path):
    from jitney_testing.opinfo.case import Failure

    path = tmp_path / "known.toml"
    path.write_text('[[known]]\nop = "s.n"\nfailure = "strides"\nreason = "r"\n[[known]]\nop = "cos"\nreason = "r"\n')
    known = read_known(path)
    failed = made_outcome(failure=Failure("forward", "strides", "result: ..."))
    other = made_outcome(failure=Failure("forward", "values", "result: ..."), index=1)
    assert unexpected([failed, other, made_outcome("cos")], known) == [other]
    assert stale([failed, other, made_outcome("cos")], known) == [Known("cos", "r")]
    assert stale([failed], known) == []


@pytest.mark.parametrize("text", ['op = "x"', 'op = "x"\nreason = ""', 'op = "x"\nreason = "r"\nsamples = "1"'])
def test_a_malformed_entry_is_refused(tmp_path, text):
    path = tmp_path / "known.toml"
    path.write_text(f"[[known]]\n{text}\n")
    with pytest.raises(Exception, match=r"known.toml: an entry with op and reason"):
        read_known(path)


def test_rates_are_rounded_down():
    assert (percent(19_999, 20_000), percent(1, 1), percent(0, 0)) == ("99.99%", "100.00%", "-")
    found = tallies([made_outcome(), Outcome(Case("sin", "float32", "call", 1), None)])
    assert (found["float32", "call"].cases, found["float32", "call"].forward) == (2, 1)
