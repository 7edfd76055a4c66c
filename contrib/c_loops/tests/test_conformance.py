"""The quick level of the conformance suite."""

from __future__ import annotations

from jitney_testing import conformance_tests

test_conformance = conformance_tests("c_loops")
