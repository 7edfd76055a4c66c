"""The conformance suite as pytest's tests, one for each check.

In a test file of a backend's package:

    from jitney_testing import conformance_tests

    test_conformance = conformance_tests("mybackend")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jitney_testing.conformance import run_check
from jitney_testing.report import Xfail, read_xfails
from jitney_testing.suite.check import Check, Level, Subject
from jitney_testing.suite.table import checks


def conformance_tests(
    backend: Any,
    level: Level = "quick",
    *,
    device: str = "cpu",
    options: Mapping[str, Any] | None = None,
    xfails: Sequence[Xfail] | str | Path = (),
    seed: int = 0,
    only: str = "",
) -> Callable[..., None]:
    """A test function with one parameter, the check. Arguments as for ``run_conformance``.

    A test fails with everything that its check finds, and a program for each that fails alone. If all of it is
    expected (``xfails``), the test is reported as an expected failure.
    """
    expected = read_xfails(xfails) if isinstance(xfails, (str, Path)) else list(xfails)
    subject = Subject(backend, device, dict(options or {}), level, seed)

    @pytest.mark.parametrize("check", checks(level, only), ids=lambda check: check.name)
    def test_conformance(check: Check) -> None:
        result = run_check(check, subject, expected)
        if result.unexpected:
            texts = [f"{finding}\n\n{finding.script}" for finding in result.unexpected]
            pytest.fail(f"{check.says}\n\n" + "\n\n".join(texts), pytrace=False)
        if result.findings:
            pytest.xfail(result.findings[0].expected)

    return test_conformance
