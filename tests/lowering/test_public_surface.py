"""What kernel backends import of ``jitney_lowering`` is public: in the ``__all__`` of one of four packages."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_server import run_python

import jitney_lowering

ROOT = Path(__file__).parents[2]
BACKENDS = (
    "plugins/llvm_cpu/jitney_llvm_cpu",
    "plugins/triton_gpu/jitney_triton_gpu",
    "contrib/c_loops/jitney_c_loops",
)
PUBLIC = ("jitney_lowering", "jitney_lowering.attention", "jitney_lowering.index", "jitney_lowering.ir")


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of every import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def private(source: str) -> list[str]:
    """Imports of a backend that are not public, of the lowering or of the core."""
    found = []
    for module, name in imported(ast.parse(source)):
        parts = [*module.split("."), name]
        if parts[0] == "jitney" and any(part.startswith("_") for part in parts):
            found.append(f"{module}.{name}")
        if parts[0] == "jitney_lowering":
            if module not in PUBLIC or name not in importlib.import_module(module).__all__:
                found.append(f"{module}.{name}")
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_import_what_is_public(backend: str) -> None:
    files = sorted((ROOT / backend).rglob("*.py"))
    assert files
    assert {str(file): private(file.read_text()) for file in files if private(file.read_text())} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from jitney_lowering.ir.kernel import Kernel",
        "from jitney_lowering.ir import kernel",
        "from jitney_lowering.index import polynomial",
        "def f():\n    from jitney_lowering.scheduler.memory.plan import root",
        "import jitney_lowering.wrapper",
        "from jitney._util import callers",
    ],
)
def test_an_import_of_something_else_is_caught(source: str) -> None:
    assert private(source)


@pytest.mark.parametrize("module", PUBLIC)
def test_all_that_is_promised_is_there(module: str) -> None:
    package = importlib.import_module(module)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert len(set(package.__all__)) == len(package.__all__)


def test_the_surface_has_a_version() -> None:
    assert jitney_lowering.API_VERSION == 1


def test_what_compiled_code_needs_is_imported_alone() -> None:
    """A process that loads a graph from disk: ``restride`` is what wrappers call, ``index`` what triton_gpu reads."""
    program = "import sys, jitney_lowering.restride, jitney_lowering.index; print(*sys.modules)"
    done = run_python("-c", program, check=True)
    names = [name for name in done.stdout.split() if name.startswith("jitney_lowering.")]
    assert {name.split(".")[1] for name in names} == {"index", "restride"}
