"""Exceptions where nobody expects them: in every hook, in listeners, out of memory in a backend and among stand-ins.

    python tests/faults/raising.py --every 1

Hooks are those of ``jitney.backends.hookspecs.Hooks``, so a new one is tried, too. What fails is an error that names
the extension, or a warning; the program's objects and torch's state are as before, other extensions are asked as
always, and the next call equals eager. Memory runs out at each operation on stand-ins in turn (``MemoryError``), and in
the backend's compile function. A thread that compiles while the process ends is tried as well.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy
import torch
from interrupts import Net, state

import jitney
from jitney.backends import Backend, hookimpl, registry
from jitney.backends.hookspecs import Hooks
from jitney.errors import JitneyError

NAME = "raiser"
EXIT = """
import sys, threading
import torch, jitney
jitney.config.cache = False
def compile_on():
    for n in range(1000):
        jitney.reset()
        jitney.compile(lambda x: (x + n).sin().sum(), backend="aot_eager")(torch.ones(3, requires_grad=True))
        ready.set()
ready = threading.Event()
threading.Thread(target=compile_on, daemon=True).start()
ready.wait(120)
threading.Event().wait({seconds})
{end}
"""


def hooks() -> list[str]:
    """The names of all hooks there are."""
    manager = pluggy.PluginManager("jitney")
    manager.add_hookspecs(Hooks)
    return sorted(name for name in vars(manager.hook) if name.startswith("jitney_"))


def used(name: str, error: type[Exception]) -> tuple[Any, list[str]]:
    """An extension whose hook raises, and where it notes that it was asked."""
    asked: list[str] = []

    def implementation() -> Any:
        asked.append(name)
        raise error("on purpose")

    def observe(event: object) -> None:
        implementation()

    function = observe if name == "jitney_observe" else implementation
    extension = SimpleNamespace(**{name: hookimpl(function)}, __name__=NAME)
    if name == "jitney_acts":  # asked only of those that have something to do
        extension.jitney_transform_graph = hookimpl(lambda: None)
    return extension, asked


def step(compiled: Callable[..., torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """A result, and the gradient of what it was computed of."""
    x = x.clone().requires_grad_()
    result = compiled(x)
    return [result.detach(), *torch.autograd.grad(result.sum(), x)]


def with_hook(name: str, error: type[Exception], suppressed: bool) -> Iterator[str]:
    """A first call with an extension that raises in one hook, and calls after it."""
    jitney.reset()
    torch.manual_seed(0)
    module, x = Net(), torch.randn(5, 8)
    expected = step(copy.deepcopy(module), x)
    weights, before = copy.deepcopy(module.state_dict()), state()
    extension, asked = used(name, error)
    heard: list[object] = []
    neighbour = SimpleNamespace(jitney_observe=hookimpl(lambda event: heard.append(event)))
    registry.register_extension(neighbour, "neighbour")
    registry.register_extension(extension, NAME)
    settings: dict[str, Any] = {"suppress_errors": suppressed}
    if name == "jitney_settings":
        settings["compile_debug"] = True
    options = {"crosscheck": True} if name == "jitney_check_graph" else {}
    told, compiled = "", None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with jitney.config.patch(**settings):
                try:
                    compiled = jitney.compile(module, backend="aot_eager", options=options)
                    torch.testing.assert_close(step(compiled, x), expected)
                except JitneyError as raised:
                    told = str(raised)
                    if compiled is not None:
                        module.load_state_dict(weights)
        told += "".join(str(w.message) for w in caught)
        if asked and NAME not in told and name != "jitney_observe":  # whose observers are named in the log
            yield f"{name}: nothing names the extension: {told!r}"
        if not asked and name not in NOT_IN_A_CALL:
            yield f"{name}: was not asked"
        if not heard and name not in BEFORE_EVENTS:
            yield f"{name}: another extension was told nothing"
        if state() != before:
            yield f"{name}: the state is {state()}, it was {before}"
    except Exception as found:
        yield f"{name}: {type(found).__name__}: {found}"
    finally:
        registry.unregister_extension(extension)
        registry.unregister_extension(neighbour)
    jitney.reset()
    module.load_state_dict(weights)
    try:
        torch.testing.assert_close(step(jitney.compile(module, backend="aot_eager"), x), expected)
    except Exception as found:
        yield f"{name}: the calls after it: {type(found).__name__}: {found}"


# Not asked in such a call: see test_extension_calls.py and test_extensions.py in tests/backends.
NOT_IN_A_CALL = ("jitney_bisect", "jitney_capture_failed", "jitney_options")

# Asked before a call does anything of which others could be told.
BEFORE_EVENTS = ("jitney_settings", "jitney_wrap_module")


def out_of_memory(at: int, error: type[Exception], backend: str) -> tuple[bool, list[str]]:
    """Memory runs out at one operation on tensors without data; was there such a one, and what is wrong afterwards?"""
    from torch._subclasses.fake_tensor import FakeTensorMode

    jitney.reset()
    torch.manual_seed(0)
    module, x = Net(), torch.randn(5, 8)
    expected = step(copy.deepcopy(module), x)
    weights, before, seen = copy.deepcopy(module.state_dict()), state(), 0
    dispatch = FakeTensorMode.dispatch

    def counted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal seen
        # C++ asks for sizes and views where it may not throw: an exception there ends the process, whoever raises it.
        called: Any = arguments[0]
        results = called._schema.returns if isinstance(called, torch._ops.OpOverload) else ()
        if called.namespace != "aten" or not results or any(r.alias_info or str(r.type) != "Tensor" for r in results):
            return dispatch(self, *arguments, **keywords)
        seen += 1
        if seen == at:
            raise error("no memory, on purpose")
        return dispatch(self, *arguments, **keywords)

    faults, ran = list[str](), True
    compiled = jitney.compile(module, backend=backend)
    FakeTensorMode.dispatch = counted  # type: ignore[method-assign]
    try:
        step(compiled, x)
    except Exception as raised:
        ran = False
        if not isinstance(raised, (error, JitneyError)):
            faults.append(f"operation {at}: {type(raised).__name__}: {raised}")
    finally:
        FakeTensorMode.dispatch = dispatch  # type: ignore[method-assign]
    if state() != before:
        faults.append(f"operation {at}: the state is {state()}, it was {before}")
    changed = [name for name, value in module.state_dict().items() if not torch.equal(value, weights[name])]
    buffers = [name for name, _ in module.named_buffers()]  # a forward that has run has written to them
    if not ran and changed and {*changed} != {*buffers}:
        faults.append(f"operation {at}: {changed} changed in a call that raised")
    module.load_state_dict(weights)
    try:
        torch.testing.assert_close(step(compiled, x), expected)
    except Exception as found:
        faults.append(f"operation {at}: the calls after it: {type(found).__name__}: {found}")
    return seen >= at, faults


def backend_out_of_memory(error: type[Exception]) -> Iterator[str]:
    """Memory runs out in the compile function of a backend, the first time."""
    jitney.reset()
    failed: list[int] = []

    def compile(graph: torch.fx.GraphModule, inputs: Any, request: Any) -> Any:
        if not failed:
            failed.append(1)
            raise error("no memory, on purpose")
        return graph.forward

    torch.manual_seed(0)
    module, x = Net(), torch.randn(5, 8)
    expected, weights, before = step(copy.deepcopy(module), x), copy.deepcopy(module.state_dict()), state()
    compiled = jitney.compile(module, backend=Backend("memory", compile, level="aten"))
    try:
        step(compiled, x)
        yield "a backend without memory: nothing was raised"
    except (error, JitneyError):
        pass
    if state() != before:
        yield f"a backend without memory: the state is {state()}, it was {before}"
    module.load_state_dict(weights)
    torch.testing.assert_close(step(compiled, x), expected)


def endings() -> Iterator[str]:
    """The process ends while a thread compiles: it must not hang.

    torch's own operators abort it then (a daemon thread that computes in eager does, too), so that is no fault here.
    """
    cases = {"sys.exit(7)": 7, "": 0, "raise KeyError(1)": 1}
    for number, (end, code) in enumerate(cases.items()):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.py"
            path.write_text(EXIT.format(seconds=0.05 + 0.02 * number, end=end))
            try:
                ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=180)
            except subprocess.TimeoutExpired:
                yield f"{end!r}: hangs"
                continue
            if ran.returncode not in (code, -signal.SIGABRT):
                yield f"{end!r}: ended with {ran.returncode}: {ran.stderr[-1500:]}"


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="of the operations on stand-ins, each so many-th")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--ends", type=int, default=1, help="how often processes end while they compile (%(default)s)")
    options = parser.parse_args(argv)
    faults = list[str]()
    with jitney.config.patch(cache=False):
        for name in hooks():
            for suppressed in (False, True):
                faults += with_hook(name, ZeroDivisionError, suppressed)
        print(f"hooks: {len(hooks())}, each twice")
        for error in (MemoryError, torch.OutOfMemoryError):
            tried = 0
            while True:
                reached, found = out_of_memory(1 + tried * options.every, error, options.backend)
                if not reached:
                    break
                faults += found
                tried += 1
            faults += backend_out_of_memory(error)
            print(f"{error.__name__}: at {tried} operations, {options.backend}")
    for _ in range(options.ends):
        faults += endings()
    print(f"ends of processes: {3 * options.ends}", f"{len(faults)} faults", *faults, sep="\n")
    sys.stdout.flush()
    return int(bool(faults))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("JITNEY_CACHE", "0")
    raise SystemExit(main())
