"""Packages made on the spot, with metadata as pip would install it."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install("pkg", "module source", backends={"name": "pkg:attr"})`` puts a distribution on ``sys.path``."""

    def put(
        package: str,
        source: str,
        *,
        backends: dict[str, str] | None = None,
        extensions: dict[str, str] | None = None,
        requires: Sequence[str] = (),
    ) -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{package}.py").write_text(source)
        requirements = "".join(f"Requires-Dist: {text}\n" for text in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n{requirements}")
        lines = []
        for group, points in (("jitney.backends", backends), ("jitney.extensions", extensions)):
            lines += [f"[{group}]", *(f"{name} = {target}" for name, target in (points or {}).items())]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        monkeypatch.delitem(sys.modules, package, raising=False)
        importlib.invalidate_caches()

    before = set(sys.modules)
    yield put
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
