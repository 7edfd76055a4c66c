"""Who may import whom: the layers of ARCHITECTURE.md, held by reading every module's imports."""

import sys
from pathlib import Path

import networkx as nx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from imports import (  # noqa: E402
    LAYERS,
    ROOT,
    SIBLINGS,
    contrib_violations,
    core_violations,
    dependencies,
    modules,
    plugin_violations,
    sibling_violations,
)

MODULES = modules()
CORE = sorted(name for name in MODULES if name.startswith("jitney."))
BESIDE = sorted(name for name in MODULES if name.split(".")[0] in SIBLINGS)
PLUGINS = sorted(name for name, path in MODULES.items() if path.is_relative_to(ROOT / "plugins"))
CONTRIB = sorted(name for name, path in MODULES.items() if path.is_relative_to(ROOT / "contrib"))
MOST_IN_A_FOLDER = 15
ROOT_OF_CORE = {"__init__", "__main__", "api", "cli", "config", "errors", "events", "torch_compile"}


@pytest.mark.parametrize("name", ["jitney", *CORE])
def test_core_modules_keep_the_rules(name):
    module = "__init__" if name == "jitney" else name.removeprefix("jitney.")
    assert core_violations(MODULES[name].read_text(), module, MODULES) == []


@pytest.mark.parametrize("name", BESIDE)
def test_distributions_released_with_the_core_keep_the_rules(name):
    assert sibling_violations(MODULES[name].read_text(), name) == []


@pytest.mark.parametrize("name", PLUGINS)
def test_plugins_keep_the_rules(name):
    assert plugin_violations(MODULES[name].read_text(), name.split(".")[0]) == []


@pytest.mark.parametrize("name", CONTRIB)
def test_packages_of_contrib_keep_the_rules(name):
    assert contrib_violations(MODULES[name].read_text(), name.split(".")[0]) == []


def test_no_module_imports_itself_by_way_of_others():
    graph = nx.DiGraph([(module, other) for module, others in dependencies(MODULES).items() for other in others])
    cycles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert cycles == []


def test_folders_are_small_rooms():
    folders = {path.parent for name, path in MODULES.items() if name in {"jitney", *CORE, *BESIDE}}
    crowded = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    exempt = {"lowering/jitney_lowering/rules"}  # a table of operators, in files by topic
    assert {name: count for name, count in crowded.items() if count > MOST_IN_A_FOLDER and name not in exempt} == {}
    assert {path.stem for path in (ROOT / "core").glob("*.py")} == ROOT_OF_CORE


def test_there_is_something_to_check():
    assert {"jitney.config", "jitney.backends.registry", "jitney.debug.explain"} <= set(CORE)
    assert "jitney_lowering.index" in BESIDE and "jitney_eager" in PLUGINS and "jitney_null" in CONTRIB
    parts = {path.relative_to(ROOT / "core").with_suffix("").parts[0] for path in (ROOT / "core").rglob("*.py")}
    assert parts - {"lowering", "testing"} == {part for row in LAYERS for part in row}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("guards.pool", "from jitney.capture.world import world"),
        ("guards.pool", "from ..capture.world import World"),
        ("guards.pool", "def f():\n    import jitney.capture"),
        ("guards.pool", "if TYPE_CHECKING:\n    from jitney.runtime import dispatch"),
        ("guards.pool", "import_module('jitney.runtime.dispatch')"),
        ("guards.pool", "lazily('jitney.runtime.dispatch:Dispatcher')"),
        ("capture.convert", "from jitney.aot import compiler"),
        ("aot.compiler", "from jitney.capture.convert import convert"),
        ("capture.convert", "from jitney import debug"),
        ("capture.convert", "import jitney"),
        ("aot.compiler", "from jitney.runtime import dispatch"),
        ("config", "from jitney import events"),
        ("api", "from jitney.debug import explain"),
        ("backends.resolve", "from jitney.debug import explain"),
        ("debug.explain", "import jitney_tools"),
        ("debug.explain", "import_module('jitney_tools.bisect')"),
        ("lowering", "import_module('jitney_testing')"),
        ("capture.convert", "import torch._dynamo"),
        ("torch_compat.torch_private", "from torch._inductor import config"),
        ("torch_compat.torch_private", "from torch._functorch.aot_autograd import aot_function"),
        ("capture.convert", "import torch\ntorch._C._nn"),
        ("capture.convert", "from torch._subclasses import FakeTensor"),
        ("capture.convert", "from torch.utils._pytree import tree_map"),
        ("capture.convert", "from torch import _guards"),
        ("api", "import torch\ntorch.utils._pytree.tree_map(f, x)"),
    ],
)
def test_a_core_module_that_breaks_a_rule_is_caught(module, source):
    assert core_violations(source, module, MODULES)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("capture.convert", "from jitney.guards import Guard"),
        ("capture.convert", "from jitney import events\nfrom jitney.torch_compat import torch_private"),
        ("debug.explain", "from jitney.api import compile"),
        ("api", "from jitney.capture import convert\nfrom jitney.runtime import dispatch"),
        ("lowering", "import_module('jitney_lowering')"),
        ("backends.registry", "BACKENDS = 'jitney.backends'"),
        ("torch_compat.torch_private", "import torch\ntorch._C._nn"),
        ("capture.convert", "import torch\ntorch.Tensor.__add__"),
    ],
)
def test_what_the_rules_allow(module, source):
    assert core_violations(source, module, MODULES) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jitney_lowering.wrapper", "from jitney.capture import convert"),
        ("jitney_lowering.wrapper", "from jitney.backends import Backend"),
        ("jitney_lowering.wrapper", "import jitney_tools"),
        ("jitney_tools.bisect", "import jitney_testing"),
        ("jitney_tools.bisect", "import jitney_eager"),
        ("jitney_tools.bisect", "from torch._subclasses import FakeTensor"),
    ],
)
def test_a_sibling_that_breaks_a_rule_is_caught(module, source):
    assert sibling_violations(source, module)


@pytest.mark.parametrize(
    "source",
    [
        "from jitney.torch_compat.torch_private import FakeTensor",
        "from jitney._util import callers",
        "from jitney.backends.registry import _load",
        "import jitney\njitney._util",
        "from jitney_lowering.wrapper import _Text",
        "import jitney_llvm_cpu",
        "from jitney_llvm_cpu import backend",
        "import torch._inductor",
    ],
)
def test_a_plugin_that_breaks_a_rule_is_caught(source):
    assert plugin_violations(source, "jitney_eager")


@pytest.mark.parametrize("source", ["from jitney import _util", "import torch._dynamo", "import jitney_eager"])
def test_a_package_of_contrib_that_breaks_a_rule_is_caught(source):
    assert contrib_violations(source, "jitney_inductor")


def test_a_package_of_contrib_may_bridge_to_inductor():
    assert contrib_violations("from torch._inductor import config", "jitney_inductor") == []


def test_a_cycle_is_found_however_it_is_closed(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    from jitney.b import x")
    (tmp_path / "b.py").write_text("if TYPE_CHECKING:\n    from jitney import c")
    (tmp_path / "c.py").write_text("import_module('jitney.a')")
    known = {f"jitney.{name}": tmp_path / f"{name}.py" for name in "abc"}
    assert dependencies(known) == {"jitney.a": {"jitney.b"}, "jitney.b": {"jitney.c"}, "jitney.c": {"jitney.a"}}
