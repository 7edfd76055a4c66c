from __future__ import annotations

import pytest

from jitney_c_loops import library


@pytest.fixture(autouse=True)
def compiler(request: pytest.FixtureRequest) -> None:
    """Without a C compiler there is nothing to test but that ``lacks`` says so."""
    if library.lacks() and request.node.name != "test_without_a_compiler_it_says_so":
        pytest.skip(library.lacks()[0])
