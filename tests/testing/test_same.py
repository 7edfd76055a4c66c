"""``assert_same``: every difference that a program can see has its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_python

from jitney.backends import Backend
from jitney_testing import NotSame, Program, assert_same, compiled, example
from jitney_testing.same import compare
from jitney_testing.suite.check import Subject, whole
from jitney_testing.suite.generated import minimal

pytestmark = pytest.mark.filterwarnings("ignore")


def spoiled(change: Any, level: Any = "torch") -> Backend:
    """A backend whose graphs return ``change(results)``."""
    return Backend("spoiled", lambda graph, inputs, request: lambda *args: change(graph.forward(*args)), level=level)


PLAIN = whole(
    """
    def program(x, y):
        return x.sin() * 2, y + 1

    def inputs():
        return [example((3, 4), grad=True), example((4,), "int64")]
    """
)
SEEN = whole(
    """
    seen = []

    def program(x):
        seen.append(x * 2)
        x.add_(1)
        print("at", seen[-1].sum().item())
        return seen[-1], x

    ARGUMENTS = [example((3,))]
    SIZES = (0, 1)

    def inputs(call):
        return ARGUMENTS
    """
)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("source", [PLAIN, SEEN], ids=["plain", "state"])
def test_right_backends_pass(backend: str, source: str) -> None:
    assert_same(source, backends=[backend])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda r: (r[0] * 1.001, r[1]), "values"),
        (lambda r: (r[0], r[1] + 1), "values"),
        (lambda r: (r[0].double(), r[1]), "dtype"),
        (lambda r: (r[0][:2], r[1]), "shape"),
        (lambda r: (r[0].t().contiguous().t(), r[1]), "strides"),
        (lambda r: (r[0].detach(), r[1]), "requires_grad"),
        (lambda r: (r[0], r[0]), "structure"),
        (lambda r: (torch.rand(1), r)[1], "random state"),
        (lambda r: (torch.set_default_dtype(torch.float64), r)[1], "global state"),
        (lambda r: 1 / 0, "graph raises"),
    ],
)
def test_a_difference_has_a_kind(change: Any, kind: str) -> None:
    found = compare(PLAIN, spoiled(change))
    assert found is not None and found.kind == kind
    assert torch.get_default_dtype() is torch.float32


def test_gradients_are_compared() -> None:
    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        if request.kind != "backward":
            return graph.forward
        return lambda *args: [r if r is None else r * 1.001 for r in graph.forward(*args)]

    found = compare(PLAIN, Backend("spoiled", compile_graph, level="aten"))
    assert found is not None and found.kind == "gradients"


def test_what_is_thrown_away_is_missed() -> None:
    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        return lambda *args: graph.forward(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))

    found = compare(SEEN.replace("return seen[-1], x", "return None"), Backend("spoiled", compile_graph))
    assert found is not None and (found.kind, "argument[0]" in found.detail) == ("writes", True)


def test_functions_and_modules_are_programs_too() -> None:
    net = torch.nn.BatchNorm1d(4)
    assert_same(net, [torch.randn(3, 4)], backends=["eager", "aot_eager"])
    assert_same(lambda x: x * 2, lambda: [torch.ones(3)], backends=["eager"])
    assert int(net.num_batches_tracked) == 0
    with pytest.raises(NotSame, match="backend 'spoiled' differs from eager: values"):
        assert_same(net, [torch.randn(3, 4)], backends=[spoiled(lambda r: [i * 2 for i in r])])
    with pytest.raises(TypeError, match="inputs"):
        assert_same(net, backends=["eager"])


def rounding(dtype: str, factor: float) -> Any:
    """A program that magnifies roundings, and a backend that rounds less and is off by a factor."""
    source = whole(
        f"""
        def program(x):
            for _ in range(12):
                x = (x + 100) * 1.01 - 101
            return x, torch.floor(x), x.argmax(), x > x.mean()

        def inputs():
            return [example((50,), "{dtype}")]
        """
    )

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        def run(*args: torch.Tensor) -> Any:
            made = graph.forward(*(a.double() for a in args))
            kinds = [node.meta["val"].dtype for node in graph.graph.find_nodes(op="output")[0].args[0]]
            return [(m * factor if m.is_floating_point() else m).to(kind) for m, kind in zip(made, kinds, strict=True)]

        return run

    return compare(source, Backend("wide", compile_graph, level="aten"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fewer_roundings_are_no_fault(dtype: str) -> None:
    assert rounding(dtype, 1.0) is None


def test_a_factor_is_a_fault_for_all_that() -> None:
    found = rounding("float32", 1.01)
    assert found is not None and found.kind == "values"


UNIQUE = """
def program(x):
    return torch.cat([x / 3 * 3, x]).{cast}().unique()

def inputs():
    return [torch.arange(1.0, 20.0)]
"""


def first_is_larger(results: Any) -> Any:
    """The graph's result with one element changed by one rounding, or, of integers, by a hundred."""
    changed = results[0].clone()
    if changed.is_floating_point():
        changed[0] = torch.nextafter(changed[0], changed[0] + 1)
    else:
        changed[0] += 100
    return (changed,)


def test_a_size_that_rounding_decides_is_no_fault() -> None:
    assert_same(whole(UNIQUE.format(cast="float")), backends=[spoiled(first_is_larger)])
    with pytest.raises(NotSame, match="shape"):
        assert_same(whole(UNIQUE.format(cast="round().int")), backends=[spoiled(first_is_larger)])


def test_what_eager_raises_must_be_raised() -> None:
    source = whole(
        """
        def program(x):
            x.add_(1)
            raise ValueError("stop")

        def inputs():
            return [example((3,))]
        """
    )
    assert_same(source, backends=["eager", "aot_eager"])


def test_a_program_is_a_file_that_fails_alone(tmp_path: Path) -> None:
    wrong = "spoiled"
    lines = ["from jitney.backends import Backend", "def half(graph, inputs, request):"]
    lines += ["    return lambda *args: [r / 2 for r in graph.forward(*args)]", f"{wrong} = Backend('half', half)"]
    path = tmp_path / "failing.py"
    path.write_text(Program(PLAIN).runnable([wrong], lines, "What fails."))
    assert Program.read(path).source.endswith(PLAIN)
    done = run_python(path)
    assert done.returncode == 1 and "NotSame: backend 'half' differs from eager: " in done.stderr


def test_a_program_lacks_nothing() -> None:
    with pytest.raises(ValueError, match=r"a text that defines inputs\(\)"):
        Program("def program():\n    pass\n").load()


def test_compiled_marks_nothing_in_eager() -> None:
    def function() -> None: ...

    assert compiled(function) is function and compiled(fullgraph=True)(function) is function


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "gaps", "offset", "expanded"])
def test_examples_differ_in_layout_only(layout: str) -> None:
    plain, made = example((2, 3, 4)), example((2, 3, 4), layout=layout)
    assert made.shape == plain.shape and (layout == "expanded" or torch.equal(made, plain))
    facts = (made.is_contiguous(), made.storage_offset(), 0 in made.stride())
    wanted = {"contiguous": (True, 0, False), "transposed": (False, 0, False), "gaps": (False, 0, False)}
    assert facts == {**wanted, "offset": (True, 3, False), "expanded": (False, 0, True)}[layout]


def test_what_a_backward_has_freed_is_no_fault_of_a_backend() -> None:
    """Results that a program keeps for its next call: compiled, they are of one autograd function."""
    kept = """
import torch
from jitney_testing import example

KEPT = []

def program(x, y):
    a, b = x.sin(), y.cos()
    KEPT.append(b)
    return a if len(KEPT) == 1 else (a, KEPT[0])

def inputs(call):
    return [example((3,), "float32", seed=call, grad=True), example((3,), "float32", seed=call + 1, grad=True)]

SIZES = (0, 1)
"""
    assert_same(kept, backends=["aot_eager"])


def test_shrinking_does_not_wait_for_loops_without_an_end() -> None:
    endless = """
import torch

def program(x):
    i = 0
    while i < 2:
        y = x
        i += 1
    return y + 1

def inputs():
    return [torch.ones(2)]
"""
    subject = Subject(spoiled(lambda results: [r + 1 for r in results]))
    program = Program(endless)
    difference = subject.differs(program)
    assert difference is not None
    least = minimal(program, subject, difference, seconds=1.0)
    assert len(least.source) <= len(endless) and subject.differs(least) is not None
