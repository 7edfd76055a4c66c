"""Build the source archive and the wheel of every distribution that is released: ``python .ci/wheels.py [FOLDER]``.

As ``python -m build`` does, each wheel is made from the unpacked source archive: what that lacks, no wheel has, and
nothing that an earlier build has left behind gets into one. Nothing is fetched; setuptools is the only tool.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys, setuptools.build_meta as build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def distributions() -> list[Path]:
    """The folders of what is released together: all but contrib/, whose packages are as third parties ship them."""
    found = [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    return sorted(path.parent for path in found)


def build(folder: Path, results: Path) -> tuple[Path, Path]:
    """The source archive and the wheel of the distribution in ``folder``, written to ``results``."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Path(scratch, "setup.cfg")  # setuptools writes beside the sources else
        settings.write_text(f"[egg_info]\negg_base = {scratch}\n")
        archive = _setuptools("build_sdist", folder, results, settings)
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        return archive, _setuptools("build_wheel", Path(scratch, archive.name.removesuffix(".tar.gz")), results)


def _setuptools(hook: str, folder: Path, results: Path, settings: Path | None = None) -> Path:
    """One of setuptools' PEP 517 hooks; settings are a file that distutils reads last."""
    extra = {} if settings is None else {"DIST_EXTRA_CONFIG": str(settings)}
    command = [sys.executable, "-c", BUILD, hook, str(results)]
    done = subprocess.run(command, cwd=folder, env=os.environ | extra, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{folder}: {hook} fails\n{done.stdout}{done.stderr}")
    return results / done.stdout.splitlines()[-1]


def main() -> None:
    """Build everything into the folder that is named, ``dist`` by default."""
    results = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    results.mkdir(parents=True, exist_ok=True)
    for folder in distributions():
        for path in build(folder, results):
            print(path)


if __name__ == "__main__":
    main()
