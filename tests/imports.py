"""What a module imports and which torch names it reads, from its source: for the import rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

# The parts of core and which of them each may import. The rest (api, cli, ...) is the face: it may import all.
MAY_IMPORT: dict[str, set[str]] = {
    "cache": {"backends", "guards"},
    "guards": set(),
    "capture": {"cache", "guards"},
    "aot": {"cache"},
    "lowering": set(),
    "backends": {"cache"},
    "debug": {"backends"},
    "testing": {"backends", "debug", "api", "cache"},
}
# Modules that every part shares.
SHARED = {
    "callers",
    "errors",
    "events",
    "config",
    "copies",
    "default_device",
    "conform",
    "faults",
    "exhausted",
    "fits",
    "generated",
    "late",
    "layouts",
    "markers",
    "scalars",
    "random_state",
    "state",
    "trust",
    "unsaid",
    "wrapping",
    "_torch",
    "_torch_stand_ins",
}
# The one import of the face from a part: explain compiles.
EXCEPTIONS = {("debug.explain", "api"), ("debug.minifier.case", "api"), ("debug.bisect", "api")}
# What this project builds itself.
PEERS = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.partitioners")


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


def core_violations(source: str, module: str) -> list[str]:
    """The rules broken by a module of core; ``module`` is relative to ``jitney``, such as ``capture.frame``."""
    tree = ast.parse(source)
    part = module.split(".")[0]
    broken = []
    package = f"jitney.{module}".rpartition(".")[0]
    for name in imported(tree, package):
        if name.startswith(PEERS):
            broken.append(f"{module} imports {name}, which this project builds itself")
        parts = name.split(".")
        if parts[0] != "jitney" or part not in MAY_IMPORT:
            continue
        other = parts[1] if len(parts) > 1 else ""
        if other not in {part} | MAY_IMPORT[part] | SHARED and (module, other) not in EXCEPTIONS:
            broken.append(f"{module} imports {name}: {part} may import {sorted(MAY_IMPORT[part] | SHARED)}")
    if module not in ("torch_compat.torch_private", "torch_compat.torch_private_symbolic"):
        used = [*imported(tree, package), *dotted(tree)]
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
    for name in imported(tree, own):
        root = name.split(".")[0]
        if name.startswith(tuple(peers)):
            broken.append(f"{own} imports {name}, which this project builds itself")
        if root.startswith("jitney_") and root != own:
            broken.append(f"{own} imports {name}: plugins reach each other through the registry only")
    used = [*imported(tree, own), *dotted(tree)]
    broken += [f"{own} uses {name}, which is private to jitney" for name in used if private(name, "jitney")]
    return broken


def contrib_violations(source: str, own: str) -> list[str]:
    """The same for a package of contrib/: it may bridge to torch's Inductor, and is otherwise a plugin like others."""
    return plugin_violations(source, own, [peer for peer in PEERS if peer != "torch._inductor"])
