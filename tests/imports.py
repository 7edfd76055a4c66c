"""What a module imports and which torch names it reads, from its source: for the import rules.

An import inside a function counts, one under ``TYPE_CHECKING`` too, and so does a string that is a module's path
(``importlib.import_module("jitney.runtime.dispatch")``): none of these hides a dependency from a reader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The parts of core, from the bottom: each imports those in rows before its own, and none beside it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_util",),
    ("errors",),
    ("config",),
    ("events",),
    ("torch_compat",),
    ("guards",),
    ("cache",),
    ("backends",),
    ("aot", "capture"),
    ("graph_compile",),
    ("runtime", "torch_compile"),
    ("api",),
    ("debug",),
    ("__init__",),  # `import jitney`: what users see
    ("commands",),
    ("cli",),
    ("__main__",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
# The distributions released with the core: which parts of core each imports (None: all), and which of the others.
SIBLINGS: dict[str, tuple[set[str] | None, set[str]]] = {
    "jitney_lowering": ({"_util", "errors", "config", "events", "torch_compat"}, set()),
    "jitney_numpy": (None, set()),
    "jitney_tools": (None, set()),
    "jitney_testing": (None, {"jitney_tools"}),
}
# Old import paths of what is a distribution now: each names it in one string, and imports it when it is asked for.
MOVED = {"lowering": "jitney_lowering", "testing": "jitney_testing"}
# The one module that has the distributions' names as data; it imports none of them.
NAMES_OF_ALL = "_util.distributions"
# Of core, what no plugin may import beside names with a leading underscore: torch's private names are not ours to give.
NOT_FOR_PLUGINS = ("jitney.torch_compat",)
PRIVATE_TORCH = ("torch_compat.torch_private", "torch_compat.torch_private_symbolic")
# What this project builds itself.
PEERS = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.partitioners")


def packages() -> dict[str, Path]:
    """The import names of all distributions of the repository, and where each lies."""
    places = {path.name: path for folder in ("*", "plugins/*", "contrib/*") for path in ROOT.glob(f"{folder}/jitney_*")}
    return {"jitney": ROOT / "core"} | {name: path for name, path in places.items() if (path / "__init__.py").is_file()}


def modules() -> dict[str, Path]:
    """The modules of all distributions by their dotted names."""
    found = {}
    for package, folder in packages().items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Every dotted name imported; ``from a import b`` counts as ``a.b``. ``package`` resolves relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def named(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """The modules whose paths are in strings, alone or before ``:name``; a package's mere name only if imported."""
    calls = [
        n.args[0] for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args and "import" in ast.unparse(n.func)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            path = node.value.partition(":")[0]
            if path in known and ("." in path or node in calls):
                yield path


def dotted(tree: ast.AST) -> Iterator[str]:
    """Every ``name.attribute.attribute`` that is read."""
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name):
            yield ".".join([node.id, *reversed(parts)])


def private(name: str, root: str) -> bool:
    """Does the dotted name go through an underscore, below ``root``?"""
    parts = name.split(".")
    if name.startswith("torch.ops."):  # operators are public by schema, whatever their names
        return False
    return parts[0] == root and any(p.startswith("_") and not p.startswith("__") for p in parts[1:])


def module_of(name: str, known: Mapping[str, object]) -> str:
    """The module that a dotted name is or is in; empty if it is none of ``known``."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def dependencies(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """For each module those that it names: imported anywhere, for types only, or by their paths in strings."""
    found = {}
    for module, path in known.items():
        tree = ast.parse(path.read_text())
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        named_in = () if module == f"jitney.{NAMES_OF_ALL}" else named(tree, known)
        names = {*imported(tree, package), *named_in}
        found[module] = {module_of(name, known) for name in names} - {module, ""}
    return found


def part_of(name: str) -> str:
    """The part of core that a dotted name of jitney's belongs to."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in {*LEVEL, *MOVED} else "__init__"


def core_violations(source: str, module: str, known: Mapping[str, object] | None = None) -> list[str]:
    """The rules broken by a module of core; ``module`` is relative to ``jitney``, such as ``capture.convert``.

    Args:
        source: its text.
        module: its name.
        known: all modules, for paths in strings.
    """
    tree = ast.parse(source)
    own = part_of(f"jitney.{module}")
    package = f"jitney.{module}".rpartition(".")[0]
    imports = list(imported(tree, package))
    broken = _peers_and_private_names(tree, imports, module)
    for name in {*imports, *named(tree, known or {})}:
        root = name.split(".")[0]
        if root in SIBLINGS and MOVED.get(own) != root and module != NAMES_OF_ALL:
            broken.append(f"{module} names {name}: the core knows no distribution above it")
        if root != "jitney" or own in MOVED:
            continue
        other = part_of(name)
        if other != own and LEVEL.get(other, -1) >= LEVEL[own]:
            broken.append(f"{module} imports {name}: {own} is not above {other}")
    return broken


def sibling_violations(source: str, module: str) -> list[str]:
    """The rules broken by a module of a distribution released with the core, such as ``jitney_lowering.index``."""
    tree = ast.parse(source)
    root = module.split(".")[0]
    parts, others = SIBLINGS[root]
    imports = list(imported(tree, module.rpartition(".")[0]))
    broken = _peers_and_private_names(tree, imports, module)
    for name in imports:
        package = name.split(".")[0]
        if package == "jitney" and parts is not None and part_of(name) not in parts:
            broken.append(f"{module} imports {name}: {root} may import {sorted(parts)}")
        if package.startswith("jitney_") and package not in {root, *others}:
            broken.append(f"{module} imports {name}: {root} may import {sorted(others)}")
    return broken


def _peers_and_private_names(tree: ast.AST, imports: Sequence[str], module: str) -> list[str]:
    peers = [name for name in imports if name.startswith(PEERS)]
    broken = [f"{module} imports {name}, which this project builds itself" for name in peers]
    if module not in PRIVATE_TORCH:
        used = [*imports, *dotted(tree)]
        broken += [
            f"{module} uses {name}: that belongs into torch_compat/torch_private.py"
            for name in used
            if private(name, "torch")
        ]
    return broken


def plugin_violations(source: str, own: str, peers: Sequence[str] = PEERS) -> list[str]:
    """The rules broken by a module of the plugin whose import name is ``own``; ``peers`` it may not import."""
    tree = ast.parse(source)
    broken = []
    imports = list(imported(tree, own))
    for name in imports:
        root = name.split(".")[0]
        if name.startswith(tuple(peers)):
            broken.append(f"{own} imports {name}, which this project builds itself")
        if name.startswith(NOT_FOR_PLUGINS):
            broken.append(f"{own} imports {name}, which is not for plugins")
        if root.startswith("jitney_") and root not in {own, *SIBLINGS}:
            broken.append(f"{own} imports {name}: plugins reach each other through the registry only")
    used = [*imports, *dotted(tree)]
    owners = ("jitney", *SIBLINGS)
    broken += [f"{own} uses {name}, which is private" for name in used if any(private(name, root) for root in owners)]
    return broken


def contrib_violations(source: str, own: str) -> list[str]:
    """The same for a package of contrib/: it may bridge to torch's Inductor, and is otherwise a plugin like others."""
    return plugin_violations(source, own, [peer for peer in PEERS if peer != "torch._inductor"])
