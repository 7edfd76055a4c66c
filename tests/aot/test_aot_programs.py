"""Generated programs of views, writes and reads: values, aliasing and gradients as in eager.

``JITNEY_TEST_EXAMPLES``, ``JITNEY_TEST_PROFILE`` and ``JITNEY_TEST_SEED`` as in ``tests/programs``.
"""

from __future__ import annotations

import linecache
import os
import warnings
from typing import Any

import torch
from aot.sides import same
from aot.view_programs import view_programs
from helpers import reset, t
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st
from programs.test_programs import run

from jitney_testing.drawn.programs import functions

SEED = int(os.environ.get("JITNEY_TEST_SEED", "0"))


def load(lines: list[str]) -> Any:
    """The function of these lines."""
    source = "def program(x, y, z):\n" + "".join(f"    {line}\n" for line in lines)
    filename = f"<generated program {abs(hash(source))}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["program"]


def arguments(kind: str) -> tuple[torch.Tensor, ...]:
    """Three tensors: leaves, results of operators, views of one another."""
    # Leaves that are no views: of those, views are views of what they are views of, which does not require grad.
    a, b, c = t(3, 4).clone().requires_grad_(), t(4, 3).clone(), t(3, 4).clone().requires_grad_()
    match kind:
        case "plain":
            return t(3, 4), t(4, 3), t(3, 4) + 1
        case "leaves":
            return a, t(4), c
        case "results":
            return a * 1, t(4), b.t() * a
        case "views":
            return (a * 1)[1:], b[1:].t(), t(2, 4)
        case _:
            base = a * 1
            return base, base[1:], t(4)


def runs(lines: list[str], kind: str) -> list[str]:
    """The program without the lines that raise; what does not fit is known only when it runs."""
    lines = list(lines)
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(lines)(*arguments(kind))
            return lines
        except SyntaxError:
            at = next(i for i, line in enumerate(lines) if line.startswith("with") and not lines[i + 1].startswith(" "))
            del lines[at]
        except Exception as error:
            trace = error.__traceback__
            assert trace is not None and trace.tb_next is not None
            at = trace.tb_next.tb_lineno - 2
            if lines[at].startswith("return"):
                raise
            name = (
                lines[at].split(" = ")[0].strip() if " = " in lines[at] and "[" not in lines[at].split(" = ")[0] else ""
            )
            lines[at] = lines[at].replace(lines[at].strip(), f"{name} = x" if name else "pass")


KINDS = ("plain", "leaves", "results", "views", "shared")


@seed(SEED)
@given(lines=view_programs(), kind=st.sampled_from(KINDS))
def test_programs_of_views_and_writes(lines: list[str], kind: str) -> None:
    check(runs(lines, kind), kind)


@seed(SEED + 1)
@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(lines=view_programs(), kind=st.sampled_from(KINDS))
def test_programs_of_views_and_writes_with_symbolic_sizes(lines: list[str], kind: str) -> None:
    check(runs(lines, kind), kind, dynamic=True)


@seed(SEED + 2)
@settings(max_examples=max(1, settings.default.max_examples // 2))
@given(source=functions(), grad=st.booleans())
def test_python_programs(source: str, grad: bool) -> None:
    run(source, n=2, grad=grad, backend="aot_eager")


def check(lines: list[str], kind: str, **options: Any) -> None:
    note("\n".join([kind, *lines]))
    reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(load(lines), lambda: arguments(kind), calls=1, kept=..., breaks=None, close=True, **options)
