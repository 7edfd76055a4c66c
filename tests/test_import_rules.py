"""Who may import whom: the rules of ARCHITECTURE.md, held by reading every module's imports."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from imports import contrib_violations, core_violations, plugin_violations  # noqa: E402

ROOT = Path(__file__).parent.parent
CORE = sorted((ROOT / "core").rglob("*.py"))
PLUGINS = sorted(path for path in (ROOT / "plugins").rglob("*.py") if "tests" not in path.parts)


CONTRIB = sorted(path for path in (ROOT / "contrib").rglob("*.py") if "tests" not in path.parts)


def module_name(path):
    parts = list(path.relative_to(ROOT / "core").with_suffix("").parts)
    return ".".join(parts)


@pytest.mark.parametrize("path", CORE, ids=module_name)
def test_core_modules_keep_the_rules(path):
    assert core_violations(path.read_text(), module_name(path)) == []


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_keep_the_rules(path):
    assert plugin_violations(path.read_text(), path.relative_to(ROOT / "plugins").parts[1]) == []


@pytest.mark.parametrize("path", CONTRIB, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_of_contrib_keep_the_rules(path):
    assert contrib_violations(path.read_text(), path.relative_to(ROOT / "contrib").parts[1]) == []


def test_there_is_something_to_check():
    names = {module_name(path) for path in CORE}
    assert {"config", "backends.registry", "debug.explain"} <= names
    assert any(path.parts[-2] == "jitney_eager" for path in PLUGINS)
    assert any(path.parts[-2] == "jitney_null" for path in CONTRIB)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("guards.pool", "from jitney.capture import world"),
        ("guards.pool", "from ..capture.world import World"),
        ("guards.pool", "def f():\n    import jitney.capture"),
        ("capture.frame", "from jitney.backends import resolve"),
        ("capture.frame", "from jitney import debug"),
        ("aot.joint", "from jitney.guards import Guard"),
        ("lowering.loops", "from jitney.capture import world"),
        ("backends.resolve", "from jitney.debug import explain"),
        ("debug.logs", "from jitney.capture import frame"),
        ("debug.logs", "from jitney.api import compile"),
        ("capture.frame", "import torch._dynamo"),
        ("_torch", "from torch._inductor import config"),
        ("_torch", "from torch._functorch.aot_autograd import aot_function"),
        ("capture.frame", "import torch\ntorch._C._nn"),
        ("capture.frame", "from torch._subclasses import FakeTensor"),
        ("capture.frame", "from torch.utils._pytree import tree_map"),
        ("capture.frame", "from torch import _guards"),
        ("api", "import torch\ntorch.utils._pytree.tree_map(f, x)"),
    ],
)
def test_a_core_module_that_breaks_a_rule_is_caught(module, source):
    assert core_violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("capture.frame", "from jitney.guards import Guard"),
        ("capture.frame", "from jitney import _torch, events"),
        ("debug.explain", "from jitney.api import compile"),
        ("api", "from jitney.capture import frame\nfrom jitney.debug import explain"),
        ("_torch", "import torch\ntorch._C._nn"),
        ("capture.frame", "import torch\ntorch.Tensor.__add__"),
    ],
)
def test_what_the_rules_allow(module, source):
    assert core_violations(source, module) == []


@pytest.mark.parametrize(
    "source",
    [
        "from jitney.torch_compat.torch_private import FakeTensor",
        "from jitney.backends.registry import _load",
        "import jitney\njitney._torch",
        "import jitney_llvm_cpu",
        "from jitney_llvm_cpu import backend",
        "import torch._inductor",
    ],
)
def test_a_plugin_that_breaks_a_rule_is_caught(source):
    assert plugin_violations(source, "jitney_eager")


@pytest.mark.parametrize("source", ["from jitney import _torch", "import torch._dynamo", "import jitney_eager"])
def test_a_package_of_contrib_that_breaks_a_rule_is_caught(source):
    assert contrib_violations(source, "jitney_inductor")


def test_a_package_of_contrib_may_bridge_to_inductor():
    assert contrib_violations("from torch._inductor import config", "jitney_inductor") == []
