"""Check Python, torch, plugins, settings and folders: can jitney work here?

Each installed backend runs a small training step, which is compared with eager.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

from jitney.api import compile as compile_function
from jitney.backends import Listing, registry
from jitney.backends.backend_fields import lacks_of
from jitney.cache.store import cache_folder, held
from jitney.config import Config, config, unknown_variables, variable
from jitney.debug import logs
from jitney.errors import JitneyError

PYTHONS = ((3, 11), (3, 13))
TORCHES = ((2, 11), (2, 13))


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``hint`` says what it means or what to do about it."""

    what: str
    found: str
    good: bool = True
    hint: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print every finding; 1 if one of them is bad."""
    findings = [*_versions(), *_plugins(), *_settings(), *_folders()]
    console = Console(soft_wrap=True, highlight=False)
    for finding in findings:
        mark = "[green]ok [/]" if finding.good else "[red]bad[/]"
        console.print(f"{mark} {escape(finding.what):<34} {escape(finding.found)}  [dim]{escape(finding.hint)}[/]")
    return 0 if all(finding.good for finding in findings) else 1


def supported(version: tuple[int, int], limits: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    """Is a (major, minor) within both limits?"""
    return limits[0] <= version <= limits[1]


def _versions() -> Iterator[Finding]:
    python = (sys.version_info.major, sys.version_info.minor)
    yield Finding("Python", platform.python_version(), supported(python, PYTHONS), _wanted(PYTHONS))
    major, minor = torch.__version__.split(".")[:2]
    yield Finding("torch", torch.__version__, supported((int(major), int(minor)), TORCHES), _wanted(TORCHES))
    devices = [f"cuda ({torch.cuda.device_count()})"] if torch.cuda.is_available() else []
    yield Finding("devices", ", ".join(["cpu", *devices]))


def _wanted(limits: tuple[tuple[int, int], tuple[int, int]]) -> str:
    low, high = (".".join(map(str, limit)) for limit in limits)
    return f"supported: {low} to {high}"


def _plugins() -> Iterator[Finding]:
    backends, extensions = registry.listings(load=True), registry.extension_listings(load=True)
    if not backends:
        yield Finding("backends", "none installed", False, "pip install jitney-eager")
    for row in backends:
        yield _plugin("backend", row, _health(row.name) if _is_sound(row) else ("", True))
    for row in extensions:
        yield _plugin("extension", row, ("", True))


def _is_sound(row: Listing) -> bool:
    return row.status in ("installed", "loaded", "in-process")


def _plugin(kind: str, row: Listing, trial: tuple[str, bool]) -> Finding:
    """A plugin's row; what went wrong with it is the last line of its traceback, the rest is shown elsewhere."""
    health, good = trial
    found = f"{row.package} {row.version}: {row.status}" + (f", {health}" if health else "")
    if row.error:
        found += f" ({row.error.splitlines()[-1].strip()})"
    hint = "`jitney backends` shows the whole traceback" if row.error else ""
    return Finding(f"{kind} {row.name}", found, good and row.status not in ("broken", "duplicate"), hint)


def _health(name: str) -> tuple[str, bool]:
    """What is missing for the backend on this machine, or what came of a trial; a machine without a GPU is well."""
    backend = registry.get(name)
    try:
        problems = lacks_of(backend)
    except JitneyError as error:  # the others are looked at all the same
        return f"ill: {error.reason}", False
    if not problems:
        return _trial(name)
    expected = "cuda" not in backend.device_types or torch.cuda.is_available()
    return f"cannot work here: {'; '.join(problems)}", not expected


def _step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).exp().sum()


@config.patch(cache=False)  # it is compiling that is tried
def _trial(name: str) -> tuple[str, bool]:
    """A small training step through the backend, beside eager: what came of it, and whether that is well."""
    types = registry.get(name).device_types or ("cpu",)
    present = {"cpu": True, "cuda": torch.cuda.is_available()}
    device = next((device for device in types if present.get(device)), None)
    if device is None:
        return f"not tried, there is no {' or '.join(types)} here", True
    results = []
    for run in (_step, compile_function(_step, backend=name, fullgraph=True)):
        x = torch.linspace(-1, 1, 12, device=device).reshape(3, 4).requires_grad_()
        w = torch.linspace(0, 1, 20, device=device).reshape(4, 5).requires_grad_()
        try:
            loss = run(x, w)
            loss.backward()
        except Exception as error:  # whatever the backend raises is what is wanted here
            reason = error.reason if isinstance(error, JitneyError) else f"{type(error).__name__}: {error}"
            return f"a small training step fails: {reason}", False
        results.append([loss.detach(), x.grad, w.grad])
    try:
        torch.testing.assert_close(results[1], results[0])
    except AssertionError:
        return "a small training step differs from eager", False
    return "a small training step is right", True


def _cache() -> Finding:
    """Where what later processes use again lies, and how much it is."""
    folder = cache_folder()
    if folder is None:
        return Finding("cache", "no folder: the user has no home", hint="set JITNEY_CACHE_DIR to have one")
    files = held(folder)
    state = "" if config.cache else ", frames are neither kept nor looked for"
    found = f"{folder} ({len(files)} files, {sum(file.size for file in files) / 1e6:.1f} MB{state})"
    return Finding("cache", found, hint="`jitney cache clear` removes them, JITNEY_CACHE=0 keeps no frames")


def _settings() -> Iterator[Finding]:
    asked = Config()
    problems = asked.load_environment(os.environ)
    wrong_logs = logs.problem(asked.logs)
    if wrong_logs is not None:
        problems[variable("logs")] = wrong_logs
    for field in dataclasses.fields(Config):
        value = getattr(config, field.name)
        name = variable(field.name)
        source = name if name in os.environ and name not in problems else "default"
        yield Finding(f"config.{field.name}", f"{value!r} ({source})", hint=field.metadata["doc"])
    for name, problem in problems.items():
        yield Finding(name, problem.reason, False, f"try: {problem.hint}")
    for name, hint in unknown_variables(os.environ).items():
        yield Finding(name, "no setting has this name", False, hint)


def _folders() -> Iterator[Finding]:
    yield _cache()
    for what, folder in (("debug folder", Path(config.base_dir)), ("temporary folder", Path(tempfile.gettempdir()))):
        existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        good = existing.is_dir() and os.access(existing, os.W_OK)
        hint = "" if good else f"make {existing} writable" + (", or set JITNEY_BASE_DIR" if what[0] == "d" else "")
        yield Finding(what, f"{folder} ({'writable' if good else 'not writable'})", good, hint)
