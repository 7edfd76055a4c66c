"""torch's own database of operators: each with each dtype, in quick a sample."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

from jitney_testing.opinfo.case import try_case
from jitney_testing.opinfo.compare import Difference
from jitney_testing.opinfo.known_failures import EVERYWHERE, read_known, unexpected
from jitney_testing.opinfo.samples import DTYPES, Choice, calls, operators
from jitney_testing.program import docstring
from jitney_testing.suite.check import Case, Check, Subject

# Those that most programs use: always tried.
COMMON = (
    "add index_select mul sub div_no_rounding_mode sum mean amax softmax matmul cat where clamp exp tanh "
    "nn.functional.gelu nn.functional.layer_norm nn.functional.linear floor_divide maximum cumsum masked_fill "
    "transpose var sort"
).split()
SAMPLED = {"float32": 30, "bfloat16": 8, "int64": 8, "bool": 4, "float64": 4}


def _cases(dtype: str, subject: Subject) -> Iterator[Case]:
    if subject.level == "full":
        names, choice = operators(), Choice(device=subject.device, most=3 if dtype == "float32" else 1)
    else:
        others = random.Random(f"{subject.seed} {dtype}").sample(operators(), SAMPLED[dtype])
        common = [name for name in COMMON if name in operators()] if dtype == "float32" else []
        names, choice = list(dict.fromkeys([*common, *others])), Choice(device=subject.device, most=1)
    for name in names:
        run = functools.partial(_run, name, dtype, choice, subject)
        yield Case(name, run, functools.partial(_script, name, dtype, choice, subject))


def _run(op: str, dtype: str, choice: Choice, subject: Subject) -> Difference | None:
    """The first of an operator's cases that fails in a way that is not the core's own."""
    return fails(op, dtype, subject.backend, choice, **subject.compiling)


def fails(op: str, dtype: str, backend: Any, choice: Choice, **options: Any) -> Difference | None:
    """What an operator does otherwise than in eager, for the first of the chosen samples that does; else None."""
    known = read_known(EVERYWHERE)
    for call in calls(op, dtype, choice):
        outcome = try_case(call, backend, **options)
        if outcome.failure is not None and unexpected([outcome], known):
            failure = outcome.failure
            return Difference(failure.kind, f"{outcome.case}, {failure.stage}: {failure.detail}")
    return None


def _script(op: str, dtype: str, choice: Choice, subject: Subject, headline: str) -> str:
    backend, lines = subject.naming
    given = f", options={dict(subject.options)!r}" if subject.options else ""
    parts = [docstring(headline), "", *lines, "from jitney_testing.opinfo.samples import Choice"]
    parts += ["from jitney_testing.suite.operators import fails", ""]
    parts.append(f"found = fails({op!r}, {dtype!r}, {backend}, {choice!r}{given})")
    parts += ["assert found is None, found", ""]
    return "\n".join(parts)


CHECKS = tuple(
    Check(
        f"operators.{dtype}",
        f"Operators of torch's database (OpInfo) with {dtype}: results, writes, strides, gradients.",
        functools.partial(_cases, dtype),
        budget=12.0 if dtype == "float32" else 4.0,
    )
    for dtype in DTYPES
)
