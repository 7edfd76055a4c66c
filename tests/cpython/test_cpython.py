"""A slice of CPython's own tests passes compiled: make cpython runs all of them."""

from pathlib import Path

import pytest

from cpython.run import main


@pytest.mark.slow
def test_super_of_cpython(tmp_path: Path) -> None:
    pytest.importorskip("test.test_super")
    assert main(["--modules", "test_super", "--out", str(tmp_path / "results.json")]) == 0
