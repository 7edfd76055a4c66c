from __future__ import annotations

import math
import re

import pytest

from jitney.cache.store import DiskCache
from jitney_llvm_cpu import math_trial
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.math_trial import Candidate, passes, trial, trial_values
from jitney_llvm_cpu.target import Target

HOST = Target.host()
ENGINE = Engine(HOST)


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(math_trial, "_verdicts", {})


def candidate(name, *lines, element="float", arguments=1):
    """A function of vectors of 4, written in LLVM IR."""
    type_ = f"<4 x {element}>"
    body = "\n".join(lines).replace("TYPE", type_)
    parameters = ", ".join(f"{type_} %x{k}" for k in range(arguments))
    text = f"define internal {type_} @made({parameters}) {{\n{body}\nret {type_} %r\n}}\n"
    return Candidate(name, element, 4, arguments, "made", text)


ROOT = "%s = call TYPE @llvm.sqrt.v4f32(TYPE %x0)"
WRONG = {
    "another function": candidate("sqrt", "%r = call TYPE @llvm.fabs.v4f32(TYPE %x0)"),
    "no nan": candidate(
        "sqrt", "%a = call TYPE @llvm.fabs.v4f32(TYPE %x0)", "%r = call TYPE @llvm.sqrt.v4f32(TYPE %a)"
    ),
    "sixteen units off": candidate("sqrt", ROOT, "%r = fmul TYPE %s, splat (float 0x3FF0000200000000)"),
    "always zero": candidate("sqrt", ROOT, "%r = fmul TYPE %s, zeroinitializer"),
    "arguments swapped": candidate("fmod", "%r = frem TYPE %x1, %x0", arguments=2),
}


@pytest.mark.parametrize(
    "right",
    [
        candidate("sqrt", "%r = call TYPE @llvm.sqrt.v4f32(TYPE %x0)"),
        candidate("sqrt", "%r = call TYPE @llvm.sqrt.v4f64(TYPE %x0)", element="double"),
        candidate("fmod", "%r = frem TYPE %x0, %x1", arguments=2),
    ],
    ids=lambda right: f"{right.name} of {right.element}",
)
def test_a_function_that_does_what_its_name_says_passes(right):
    assert trial(right, ENGINE) == ""
    assert passes(right, ENGINE) and math_trial.problems() == {}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_function_that_does_otherwise_fails_and_the_value_is_named(wrong):
    assert not passes(wrong, ENGINE)
    problem = math_trial.problems()["made"]
    assert re.fullmatch(rf"{wrong.name}\(.+\) is \S+, torch says \S+", problem)


def test_a_verdict_is_kept_for_other_processes(tmp_path, monkeypatch):
    wrong, right = WRONG["always zero"], candidate("sqrt", "%r = call TYPE @llvm.sqrt.v4f32(TYPE %x0)")
    verdicts = [passes(tried, Engine(HOST, DiskCache(tmp_path))) for tried in (wrong, right)]
    problems = math_trial.problems()
    monkeypatch.setattr(math_trial, "_verdicts", {})
    monkeypatch.setattr(math_trial, "trial", lambda *arguments: pytest.fail("tried again"))
    assert [passes(tried, Engine(HOST, DiskCache(tmp_path))) for tried in (wrong, right)] == verdicts == [False, True]
    assert math_trial.problems() == problems and len(problems) == 1


def test_values_are_many_and_odd_ones_are_among_them():
    for element in ("float", "double"):
        first, second = trial_values("atan2", element, 2)
        numbers = first.tolist()
        assert len(numbers) == len(second) > 400
        assert any(math.isnan(x) for x in numbers) and {math.inf, -math.inf, 0.0, 1.0} <= set(numbers)
        assert sum(a != b for a, b in zip(numbers, second.tolist(), strict=True)) > 400
