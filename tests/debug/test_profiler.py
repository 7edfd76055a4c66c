import re
import sys
from pathlib import Path

import pytest
import torch

import jitney
from jitney import CompileProfiler, events
from jitney.errors import RecompileError

sys.path.insert(0, str(Path(__file__).parent))
from samples import LIMIT, RECOMPILED, SKIPPED, captured  # noqa: E402


def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(end="")
    return y * 2


def test_causes_are_counted() -> None:
    with jitney.config.patch(automatic_dynamic_shapes=False), CompileProfiler() as prof:
        compiled = jitney.compile(scaled, backend=prof, dynamic=False)
        for n in range(4):
            assert torch.equal(compiled(torch.ones(2), n), torch.ones(2) * n)
    assert (prof.captures, prof.graphs, prof.recompiles, prof.graph_breaks) == (4, 4, 3, 0)
    assert sum(count for _, count in prof.causes()) == 3
    assert "4 frames captured, 4 graphs, 3 recompiles, 0 graph breaks" in prof.report()
    assert re.search(r"1 times: n == \d \(read at .*test_profiler.py:\d+\)", prof.report())


def test_breaks_are_counted_with_any_backend() -> None:
    with CompileProfiler() as prof:
        jitney.compile(broken, backend="aot_eager")(torch.ones(2))
    assert (prof.captures, prof.graphs, prof.graph_breaks) == (2, 2, 1)
    assert 'print(end="")' in prof.report()


def test_only_what_happens_in_the_block_counts() -> None:
    prof = CompileProfiler()
    assert prof.report() == "nothing was compiled"
    compiled = jitney.compile(broken, backend=prof)
    compiled(torch.ones(2))
    assert not prof.captures
    with prof:
        compiled(torch.ones(2))
    events.emit(SKIPPED)
    assert prof.report() == "nothing was compiled"


def test_a_report_has_every_section_that_has_rows() -> None:
    with CompileProfiler() as prof:
        for event in (captured(), RECOMPILED, SKIPPED, LIMIT, events.FrameLoaded("step", "model.py", 4, 0.5)):
            events.emit(event)
        for n in range(12):
            events.emit(events.FrameSkipped(f"f{n}", "other.py", n, f"reason {n}"))
    assert prof.report() == (
        "1 frames captured, 1 graphs, 1 recompiles, 1 graph breaks\n\n"
        "By function:\n"
        "  step (model.py:4): 1 captures, 1 graphs, 3 operations, 0.75 s, 1 from disk\n"
        "  helper (util.py:9): 0 captures, 0 graphs, 0 operations, 0.00 s\n"
        + "".join(f"  f{n} (other.py:{n}): 0 captures, 0 graphs, 0 operations, 0.00 s\n" for n in range(8))
        + "  and 4 more\n\n"
        "Compiled again because this guard failed:\n"
        "  1 times: L['n'] == 3 (read at x * n)\n\n"
        "At the limit of forms:\n"
        "  step (model.py:4) runs eagerly from now on where no form fits: L['n'] == 3, found 4\n"
        "    try: mark what changes as dynamic, pass it as a tensor, or raise config.cache_size_limit\n\n"
        "Graph breaks:\n"
        '  1 times: model.py:5, in step: print("woo"): print() writes to a file\n\n'
        "Left eager:\n"
        "  1 times: it is an async generator\n" + "".join(f"  1 times: reason {n}\n" for n in range(9)) + "  and 3 more"
    )


def test_a_recompile_can_be_an_error() -> None:
    compiled = jitney.compile(scaled, backend="eager")
    with jitney.config.patch(error_on_recompile=True):
        compiled(torch.ones(2), 3)
        compiled(torch.ones(2), 3)
        with pytest.raises(RecompileError, match=r"test_profiler.py:\d+, in scaled, would be compiled again: .*n == 3"):
            compiled(torch.ones(2), 4)
    assert compiled(torch.ones(2), 4).tolist() == [4, 4]


def test_explain_says_why_what_is_compiled_does_not_fit() -> None:
    compiled = jitney.compile(scaled, backend="eager")
    compiled(torch.ones(2), 3)
    assert not jitney.explain(compiled)(torch.ones(2), 3).recompile_reasons
    output = jitney.explain(compiled)(torch.ones(2), 4)
    ((guard, found, line),) = output.recompile_reasons
    with pytest.warns(DeprecationWarning, match="use recompile_reasons"):
        assert output.misfits is output.recompile_reasons
    assert (guard, found) == ("n == 3", "4") and line.partition(":")[0].endswith("test_profiler.py")
    assert "Would be compiled again, none of what is there fits:\n  n == 3 (found 4), read at" in str(output)


def test_explain_of_what_is_no_function_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match=r"a Tensor is not callable; write explain\(fn\)\(\*args\)"):
        jitney.explain(torch.ones(2))


def test_explain_asks_compiled_modules_and_methods_too() -> None:
    class Model(torch.nn.Linear):
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = Model(2, 2)
    for compiled in (jitney.compile(model, backend="eager"), jitney.compile(model.scaled, backend="eager")):
        compiled(torch.ones(1, 2))
        assert "(3, 2)" in jitney.explain(compiled)(torch.ones(3, 2)).recompile_reasons[0][1]
