"""A case as a Python program that runs alone and ends in the same error; and back."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import FrameSummary
from typing import Any

import torch

from jitney.backends import Backend, BoundBackend, registry
from jitney.backends.failure_files import LAUNCHER, REPRO, have_written
from jitney.config import config
from jitney.debug import is_users
from jitney.errors import BackendFailed, WrongNumbers, describe_frame
from jitney_tools.compare.verdict import Fault, Terms
from jitney_tools.minifier.backend_source import HINT, written_out
from jitney_tools.minifier.case import Case, NotMinified, bound, case_of, imports, python
from jitney_tools.minifier.texts import literal

MINIFIED = "_minified_"  # begins the names of modules that are programs of ours

# ---------------------------------------------------------------------- writing


def write_case(case: Case, fault: Fault | None, path: Path, *, launcher: bool = False, before: int = 0) -> Path:
    """Write a program, and beside it its data if that is more than a few numbers; returns the program's path.

    Args:
        case: what it runs.
        fault: how it fails; None if nobody knows yet.
        path: where.
        launcher: minify the graph when it runs, rather than only fail.
        before: operations that the graph had before it was made smaller; 0 if it was not.

    Raises:
        NotMinified: the backend, or something that the graph calls, cannot be imported by another process.
    """
    case = case.changed(origin=case.origin or origin_of(case))
    text, space = python(case.graph)
    names = {name: value for name, value in space.items() if name != "torch"}
    backend, lines = naming(case.backend)
    data = path.with_suffix(".pt")
    inputs = [given.text or literal(given.value) for given in case.inputs]
    kept = [given.value for given, said in zip(case.inputs, inputs, strict=True) if not said]
    path.parent.mkdir(parents=True, exist_ok=True)
    if kept:
        torch.save(kept, data)
    asked = case.backend.asked
    settings = {
        "options": dict(asked.options) if asked is not None and asked.options else None,
        "mode": asked.mode if asked is not None else None,
        "after": case.after,
        "kind": case.kind,
        "dynamic": case.dynamic,
        "grad": case.grad,
        "origin": case.origin,
        "fault": (fault.kind, fault.place, fault.reason) if fault is not None else None,
    }
    end = "minify_file(__file__)" if launcher else "fails(graph, inputs, **SETTINGS)"
    parts = [
        f'"""{_headline(case, fault, path, launcher, before)}\n"""\n',
        "from __future__ import annotations\n"
        if any(line.startswith(("def ", "class ", "@")) for line in lines)
        else None,
        "\n".join(["from math import inf, nan", "", "import torch"] if _has_odd(inputs) else ["import torch"]),
        "\n".join([*imports(names), *lines]),
        f"\nfrom jitney_tools.minifier import {'minify_file' if launcher else 'fails'}\n",
        "SETTINGS = dict(",
        *(f"    {name}={value}," for name, value in [("backend", backend), *_reprs(settings)]),
        ")\n\n",
        text,
        "",
        "def inputs():",
        *_data(inputs, data.name),
        "",
        "",
        'if __name__ == "__main__":',
        f"    {end}",
        "",
    ]
    path.write_text("\n".join(part for part in parts if part is not None), encoding="utf-8")
    have_written(path)
    return path


def _reprs(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    for name, value in (settings["options"] or {}).items():
        if not isinstance(value, (bool, int, float, str, type(None), tuple, list, dict)):
            raise NotMinified(
                f"the option {name}={value!r:.80} cannot be written into a program",
                hint="options of plain values: numbers, text, lists",
            )
    return [(name, repr(value)) for name, value in settings.items()]


def _has_odd(inputs: Sequence[str]) -> bool:
    return any("nan" in text or "inf" in text for text in inputs)


def _data(inputs: Sequence[str], name: str) -> list[str]:
    if all(inputs):
        return ["    return [", *(f"        {text}," for text in inputs), "    ]"]
    lines = [
        "    from pathlib import Path",
        "",
        f"    kept = iter(torch.load(Path(__file__).with_name({name!r}), weights_only=True))",
    ]
    return [*lines, "    return [", *(f"        {text or 'next(kept)'}," for text in inputs), "    ]"]


def _headline(case: Case, fault: Fault | None, path: Path, launcher: bool, before: int) -> str:
    made = f"{case.op_count} operations" if not before else f"{before} operations became {case.op_count}"
    what = f"A graph for the backend {case.backend.name!r}: {made}."
    said = [str(fault)] if fault is not None else []
    place = [f"From {case.origin}"] if case.origin else []
    how = "`python {0}` minifies it, writes {1} beside it, and ends in the error; so does `jitney minify {0}`."
    then = how if launcher else "`python {0}` ends in this error; `jitney minify {0}` tries to make it smaller."
    rows = [what, *said, *place, _versions(case.backend), then.format(path.name, smaller_path(path).name)]
    return "\n\n".join(rows).replace("\\", "/").replace('"""', "'''")  # it is within such quotes


def _versions(backend: BoundBackend) -> str:
    parts = [f"{part.name} ({_version(part)})" for part in backend.parts or (backend,)]
    options = backend.asked.options if backend.asked is not None else None
    own = f", options {dict(options)}" if options else ""
    system = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"jitney {importlib.metadata.version('jitney')}, {system}; {', '.join(parts)}{own}"


def _version(backend: BoundBackend) -> str:
    row = next((row for row in registry.listings() if row.name == backend.name), None)
    if row is None:
        return f"version {backend.backend.version}" if backend.backend.version else "a callable"
    return f"{row.package} {row.version}".strip()


def naming(backend: BoundBackend) -> tuple[str, list[str]]:
    """How a program names a backend: an expression, and the lines that come before it.

    Raises:
        NotMinified: another process cannot import it.
    """
    asked = backend.asked
    spec = asked.spec if asked is not None else backend.name
    names = [spec] if isinstance(spec, str) else list(spec) if isinstance(spec, Sequence) else None
    if names is not None:
        registering = [line for name in names for line in _registering(name)]
        return repr(spec), registering
    return "backend", _importing(spec)


def _registering(name: str) -> list[str]:
    row = next((row for row in registry.listings() if row.name == name), None)
    if row is None or row.status != "in-process":
        return []
    module = str(registry.get(name).compile.__module__)
    found = _findable(module, f"the module that registers the backend {name!r}")
    return [*found, f"import {module}  # registers {name!r}"]


def _importing(spec: Any) -> list[str]:
    """The lines that import a backend which was given as an object."""
    what = f"the backend {getattr(spec, '__qualname__', None) or getattr(spec, 'name', spec)!r:.80}"
    home = spec.compile if isinstance(spec, Backend) else spec
    module = str(getattr(home, "__module__", "") or type(home).__module__)
    found = sys.modules.get(module)
    if isinstance(spec, types.FunctionType) and module.startswith(("__main__", MINIFIED)):
        return written_out(spec)
    names = [name for name, value in vars(found).items() if value is spec] if found is not None else []
    if not names:
        raise NotMinified(
            f"{what} has no name at the top level of the module {module}, so that another process cannot import it",
            hint="assign it to a name there, or install it under a name (entry point jitney.backends)",
        )
    return [*_findable(module, what), f"from {module} import {names[0]} as backend"]


def _findable(module: str, what: str) -> list[str]:
    """The line that lets another process find a module, if it needs one."""
    if module == "__main__":
        raise NotMinified(
            f"{what} is defined in the program that runs, and importing that would run it again",
            hint=HINT,
        )
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return []
    folder = Path(file).resolve().parents[module.count(".")]
    if Path(file).name == "__init__.py":
        folder = folder.parent
    if "site-packages" in folder.parts:
        return []
    return ["import sys", f"sys.path.insert(0, {str(folder)!r})"]


# ---------------------------------------------------------------------- what programs call


def fails(graph: Callable[..., Any], inputs: Callable[[], list[Any]], **settings: Any) -> None:
    """Compile and run a graph as a minified program says; raises what goes wrong, and says so if nothing does.

    Args:
        graph: operations, a tuple as result.
        inputs: makes its inputs.
        settings: as written into the program.

    Raises:
        WrongNumbers: results, gradients or writes are not eager's.
        BackendFailed: it hangs, leaks, or returns something else than it should.
        Exception: what the backend raises.
    """
    case, expected = _case(graph, inputs(), settings)
    fault = case.fault(_terms(expected))
    if fault is None:
        print("The graph works here: it compiles, and its results and gradients are eager's.")
        return
    raise_fault(case, fault)


def raise_fault(case: Case, fault: Fault) -> None:
    """Raise what a fault is: the backend's own exception, or an error that says it."""
    if isinstance(fault.error, Exception):
        raise fault.error
    raise wrong(fault, case.backend.name, stack_of(case)) from fault.error


def wrong(fault: Fault, backend: str, stack: Sequence[FrameSummary] = (), more: str = "") -> BackendFailed:
    """The error for a fault that is no exception; ``WrongNumbers`` if it is one of numbers."""
    kind = WrongNumbers if fault.kind in ("numbers", "writes") else BackendFailed
    return kind(f"{fault}{more}", user_stack=stack, phase=f"backend {backend}")


def stack_of(case: Case) -> Sequence[FrameSummary]:
    """The user's frames of the first operation that knows them."""
    return next((n.meta["user_stack"] for n in case.graph.nodes if n.meta.get("user_stack")), ())


def origin_of(case: Case) -> str:
    """The user's line that the first operation comes from."""
    stack = stack_of(case)
    own = [frame for frame in stack if is_users(frame.filename)]
    return describe_frame((own or stack)[-1]) if stack else ""


def _terms(fault: Fault | None) -> Terms:
    return Terms(leaks=fault is None or fault.kind == "leaks", seconds=config.minifier_try_seconds)


def _case(graph: Callable[..., Any], values: list[Any], settings: dict[str, Any]) -> tuple[Case, Fault | None]:
    settings = dict(settings)
    backend = bound(settings.pop("backend"), settings.pop("options"), settings.pop("mode"))
    fault = settings.pop("fault")
    case = case_of(graph, values, backend, **settings)
    return case, Fault(*fault) if fault is not None else None


def load(path: Path) -> tuple[Case, Fault | None]:
    """The case of a program, and how it is said to fail.

    Raises:
        NotMinified: it is no program of ours.
    """
    if not path.is_file():
        raise NotMinified(f"there is no file {path}", hint="JITNEY_REPRO_AFTER=capture python ... writes one")
    spec = importlib.util.spec_from_file_location(MINIFIED + path.stem, path)
    if spec is None or spec.loader is None:
        raise NotMinified(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where Python looks for the sources of classes
    spec.loader.exec_module(module)
    return load_module(module)


def load_module(module: types.ModuleType) -> tuple[Case, Fault | None]:
    """``load``, of a module that is imported."""
    missing = [name for name in ("graph", "inputs", "SETTINGS") if not hasattr(module, name)]
    if missing:
        raise NotMinified(f"{module.__file__} has no {missing[0]}: it is no program that jitney has written")
    return _case(module.graph, module.inputs(), module.SETTINGS)


def smaller_path(path: Path) -> Path:
    """Where the minified form of a program goes: ``repro.py`` for ``minifier_launcher.py``, ``repro_7.py`` for
    ``minifier_launcher_7.py``; a ``repro.py`` becomes smaller itself; that of any other file is ``repro_<its name>``.
    """
    launcher, repro = Path(LAUNCHER).stem, Path(REPRO).stem
    if path.stem.startswith(launcher):
        return path.with_stem(repro + path.stem.removeprefix(launcher))
    return path if path.stem.startswith(repro) else path.with_stem(f"{repro}_{path.stem}")
