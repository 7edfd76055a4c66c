"""Generated programs: what is drawn runs, covers its grammar, and shrinks to something that people can read."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import seed as seeded

from jitney.backends import Backend
from jitney_testing import Program, assert_same, graphs, python_programs
from jitney_testing.drawn import field_grammar
from jitney_testing.drawn.fields import fields
from jitney_testing.drawn.grammar import TABLES
from jitney_testing.same import compare
from jitney_testing.shrink import smaller
from jitney_testing.suite.generated import drawn

SEED = int(os.environ.get("JITNEY_TEST_SEED", "0"))
pytestmark = pytest.mark.filterwarnings("ignore")


def negative_sums(graph: Any, inputs: Any, request: Any) -> Any:
    if any("sum" in str(node.target) for node in graph.graph.nodes):
        return lambda *args: [-r if r.is_floating_point() else r for r in graph.forward(*args)]
    return graph.forward


WRONG = Backend("negative_sums", negative_sums, level="aten")


def run(program: Program) -> set[str]:
    """Run all calls of a program as it is; the words in it."""
    loaded = program.load()
    for arguments in loaded.calls():
        loaded.program(*arguments)
    return set(re.findall(r"\w+=?", program.source))


def test_what_is_drawn_covers_the_grammar_and_runs() -> None:
    words: Counter[str] = Counter()
    for program in drawn(graphs(), 200, 1):
        words.update(run(program))
        words["empty"] += bool(re.search(r"example\(\(.*\b0\b.*\), \"", program.source))
        words["zero"] += "example((), " in program.source
    for word in ("grad=", "layout=", "special=", "SIZES", "dynamic", "bfloat16", "int64", "bool", "empty", "zero"):
        assert words[word] > 2, word
    rows = " ".join(row for table, _ in TABLES.values() for row in table)
    called = {word for word in words if f".{word}(" in rows}
    assert len(called) > 60, called


def test_programs_that_write_to_fields_cover_their_grammar_and_run() -> None:
    words: Counter[str] = Counter()
    for program in drawn(fields(), 60, 1):
        words.update(run(program))
        words["views"] += " = x0" in program.source.partition("def inputs")[2]
    for word in ("grad=", "layout=", "views", "dynamic", "bfloat16", "int64", "bool", "for"):
        assert words[word] > 2, word
    rows = " ".join(row for table in field_grammar.TABLES.values() for row in table)
    assert len({word for word in words if f".{word}(" in rows}) > 60
    assert {name for theme in field_grammar.THEMES for name in theme} == field_grammar.TABLES.keys()


def test_a_graph_shrinks_to_few_lines() -> None:
    """As small as it goes, if not from wherever Hypothesis begins: shrinking may stop at an idle argument."""
    quick = settings(max_examples=2000, database=None, suppress_health_check=list(HealthCheck), deadline=None)
    wanted = ["(x0):", "v0 = x0.mean(0, keepdim=True)", "return v0"]
    bodies = []
    for seed in range(3):
        dice = random.Random(seed)
        program = find(graphs(most=2, train=False), lambda p: ".mean(" in p.source, settings=quick, random=dice)
        body = program.source.partition("def program")[2].partition("def inputs")[0].strip().splitlines()
        bodies.append([line.strip() for line in body])
        if bodies[-1] == wanted:
            assert 'example((3,), "float32", seed=0),' in program.source and "SIZES" not in program.source
            return
    raise AssertionError(bodies)


def test_a_failing_program_gets_smaller() -> None:
    lines = ["import torch", "kept = 1", "def program(x):", "    a = x + 1", "    if kept:", "        b = a * 2"]
    lines += ["    c = x.sum()", "    return c", "def inputs():", "    return [torch.ones(3)]", ""]
    source = "\n".join(lines)

    def fails(program: Program) -> bool:
        try:
            return compare(program, WRONG) is not None
        except Exception:
            return False

    assert smaller(Program(source), fails).source.splitlines() == [lines[0], lines[2], *lines[6:10]]
    assert smaller(Program(source), fails, seconds=0).source == source


@seeded(SEED)
@settings(max_examples=max(1, settings.default.max_examples // 2))
@given(program=graphs())
def test_generated_graphs(program: Program) -> None:
    assert_same(program, backends=["aot_eager"])


@seeded(SEED)
@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(program=python_programs())
def test_generated_programs(program: Program) -> None:
    assert_same(program, backends=["aot_eager"])


@seeded(SEED)
@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(program=fields())
def test_generated_programs_that_write_to_fields(program: Program) -> None:
    assert_same(program, backends=["llvm_cpu"])
