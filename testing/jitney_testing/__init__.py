"""For who writes a backend: programs, generated and given, on it and in eager; and a suite that says what is wrong.

Needs ``pip install jitney[testing]``. Names are imported when they are asked for: those of graphs and programs that
Hypothesis draws and the suite need ``hypothesis``, ``conformance_tests`` needs ``pytest``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitney_testing.compiled_mark import compiled
    from jitney_testing.conformance import run_conformance
    from jitney_testing.drawn.graphs import graphs
    from jitney_testing.drawn.programs import python_programs
    from jitney_testing.examples import example
    from jitney_testing.opinfo.compare import Difference
    from jitney_testing.program import Program
    from jitney_testing.pytest_plugin import conformance_tests
    from jitney_testing.report import Finding, Report, Xfail, read_xfails
    from jitney_testing.same import NotSame, assert_same

# name -> the module that has it
_PLACES = {
    "Difference": "opinfo.compare",
    "Finding": "report",
    "NotSame": "same",
    "Program": "program",
    "Report": "report",
    "Xfail": "report",
    "assert_same": "same",
    "compiled": "compiled_mark",
    "conformance_tests": "pytest_plugin",
    "example": "examples",
    "graphs": "drawn.graphs",
    "python_programs": "drawn.programs",
    "read_xfails": "report",
    "run_conformance": "conformance",
}

__all__ = [
    "Difference",
    "Finding",
    "NotSame",
    "Program",
    "Report",
    "Xfail",
    "assert_same",
    "compiled",
    "conformance_tests",
    "example",
    "graphs",
    "python_programs",
    "read_xfails",
    "run_conformance",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
