"""A program on several backends beside eager: everything that can be seen of it, call by call.

Numbers may differ as roundings do, which a run in float64 decides (``float64_program.py``); nothing else may.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import math
import os
import random
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from jitney import events
from jitney.api import compile as compile_function
from jitney.api import reset
from jitney.config import config
from jitney.errors import JitneyError
from jitney.torch_compat import torch_private
from jitney_testing.compiled_mark import compiles_for
from jitney_testing.examples import examples_on
from jitney_testing.float64_program import Truth
from jitney_testing.opinfo.compare import Difference
from jitney_testing.pictures import Freezer, Mismatch, Values, leaf, mismatches, numbers
from jitney_testing.program import Loaded, Program
from jitney_tools.compare.float64_oracle import RandomDraws

SEED = 20_27


class NotSame(AssertionError):
    """A program does something else on a backend than in eager.

    Args:
        difference: what.
        backend: its name.
        program: the text, if it is one.
    """

    def __init__(self, difference: Difference, backend: str, program: Program | None = None) -> None:
        self.difference, self.backend, self.program = difference, backend, program
        text = f"{difference.kind}: {difference.detail}"
        shown = f"\n\n{textwrap.indent(program.source, '    ')}" if program is not None else ""
        super().__init__(f"backend {backend!r} differs from eager: {text}{shown}")


@dataclass
class Scene:
    """What one call left behind."""

    picture: dict[str, Any]
    failed: list[str] = field(default_factory=list)


Load = Callable[[], Loaded]


def assert_same(
    program: Program | str | Callable[..., Any],
    inputs: Callable[[], Sequence[Any]] | Sequence[Any] | None = None,
    *,
    backends: Sequence[Any],
    device: str = "cpu",
    **options: Any,
) -> None:
    """Assert that a program does on each backend what it does in eager.

    Compared, call by call: results (values, dtype, shape, strides, device, ``requires_grad``, which share memory, which
    are the same objects), the arguments and the module's names afterwards, what it raises and prints, the state of
    random generators, torch's global modes, and gradients of all results together. Numbers may be as far from those of
    float64 as eager's roundings explain.

    Args:
        program: a ``Program``, its text, or a function or module (which is copied for each side).
        inputs: for a function: its arguments, or a function that makes them for each call.
        backends: names, ``Backend`` objects or callables, as ``jitney.compile`` takes them.
        device: where ``example`` makes tensors.
        options: for ``jitney.compile``.

    Raises:
        NotSame: on one backend it does something else.
    """
    __tracebackhide__ = True
    with examples_on(device):
        for backend in backends:
            found = compare(program, backend, inputs=inputs, **options)
            if found is not None:
                text = Program(program) if isinstance(program, str) else program
                raise NotSame(found, name_of(backend), text if isinstance(text, Program) else None)


def name_of(backend: Any) -> str:
    """How a backend is called."""
    return (
        backend
        if isinstance(backend, str)
        else getattr(backend, "name", None) or str(getattr(backend, "__name__", backend))
    )


@config.patch(cache=False)
def compare(program: Any, backend: Any, *, inputs: Any = None, beside: Any = None, **options: Any) -> Difference | None:
    """The first difference between a program on a backend and in eager; None if there is none. See ``assert_same``.

    ``beside`` is another backend, to be compared with instead of the program itself.
    """
    load = _maker(program, inputs)
    try:
        expected = _scenes(load, beside, options)
        found = _scenes(load, backend, options)
    finally:
        reset()
    truth = _truth(load)
    pairs = zip(expected, found, strict=True)
    differences = (_judged(eager, got, number, truth) for number, (eager, got) in enumerate(pairs))
    return next((d for d in differences if d is not None), None)


def _maker(program: Any, inputs: Any) -> Load:
    if isinstance(program, (str, Program)):
        text = program if isinstance(program, Program) else Program(program)
        return text.load
    if inputs is None:
        raise TypeError("assert_same takes a Program, its text, or a function and its inputs")
    given = list(inputs() if callable(inputs) else inputs)

    def load() -> Loaded:
        function, arguments = copy.deepcopy((program, given))
        space = {"program": function, "inputs": lambda: arguments}
        if isinstance(program, torch.nn.Module):
            space["module"] = function
        return Loaded(space)

    return load


# ---------------------------------------------------------------------- running


def _scenes(load: Load, backend: Any = None, options: dict[str, Any] | None = None) -> list[Scene]:
    """The calls of a program; eagerly without a backend."""
    given = options or {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_global_state_restored())
        if backend is not None:
            stack.enter_context(compiles_for(backend, **given))
        seed_everything()
        loaded = load()
        function = loaded.program
        if backend is not None and loaded.whole:
            function = compile_function(function, backend=backend, **{**given, **loaded.options})
        scenes = []
        for arguments in loaded.calls():
            scenes.append(_scene(function, arguments, loaded))
        return scenes


def _scene(function: Callable[..., Any], arguments: list[Any], loaded: Loaded) -> Scene:
    """One call, and a backward from its results."""
    scene = Scene({})
    out, result, error, stuck = io.StringIO(), None, None, ""
    seed_everything()

    def note(event: Any) -> None:
        ours = isinstance(event, events.GraphFailed) and (event.blame or isinstance(event.error, JitneyError))
        if ours:  # else eager raises there, too, whatever the program makes of it
            scene.failed.append(f"{type(event.error).__name__}: {event.error}")

    with events.listen(note), warnings.catch_warnings(), contextlib.redirect_stdout(out):
        warnings.simplefilter("ignore")
        try:
            result = function(*arguments)
        except Exception as raised:
            error = raised
        modes = _global_state()
        freezer = Freezer(loose=True)
        live = {"exception": error, "result": result, "argument": arguments, "state": loaded.state()}
        scene.picture = {name: freezer.freeze(value, name) for name, value in live.items()}
        scene.picture |= {"printed": out.getvalue(), **modes}
        if error is None and loaded.trains:
            stuck = _backward(result)
    leaves = _leaves((arguments, loaded.state()))
    scene.picture["backward raises"] = stuck
    scene.picture["gradients"] = {f"[{i}]": _gradient(leaf) for i, leaf in enumerate(leaves)}
    if not loaded.values:
        scene.picture = _without_numbers(scene.picture)
    return scene


def _gradient(leaf: torch.Tensor) -> Any:
    if leaf.grad is None:
        return None
    facts = {"dtype": str(leaf.grad.dtype), "shape": str(tuple(leaf.grad.shape))}
    return {**facts, "values": Values(leaf.grad.detach().clone())}


def _backward(result: Any) -> str:
    """Gradients of all results together; returns what it raises."""
    ends = [t for t in _tensors(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    if not ends:
        return ""
    try:
        torch.autograd.backward(ends, [_tangent(t) for t in ends])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _tangent(result: torch.Tensor) -> torch.Tensor:
    """Numbers of both signs that every dtype has exactly."""
    steps = torch.arange(result.numel(), device=result.device) * 7 % 17 - 8
    return (steps / 8).to(result.dtype).reshape(result.shape)


def _tensors(value: Any) -> list[torch.Tensor]:
    """Tensors in containers, each once."""
    found: dict[int, torch.Tensor] = {}
    _collect(value, found, set())
    return list(found.values())


def _collect(value: Any, found: dict[int, torch.Tensor], seen: set[int]) -> None:
    if isinstance(value, torch.Tensor):
        found.setdefault(id(value), value)
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        items: Any = [*value.parameters(), *value.buffers()]
    elif isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, (list, tuple)):
        items = value
    else:
        items = list(vars(value).values()) if type(value).__module__ == "program" else ()
    for item in items:
        _collect(item, found, seen)


def _leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in _tensors(value) if leaf(t) == "True" and t.requires_grad]


def seed_everything(seed: int = SEED) -> None:
    """Equal random numbers from here on, of torch, NumPy and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _global_state() -> dict[str, Any]:
    """What a program can leave switched."""
    state: dict[str, Any] = {"random state of torch": Values(torch.get_rng_state())}
    if torch.cuda.is_initialized():
        state["random state of cuda"] = Values(torch.cuda.get_rng_state())
    drawn: Any = np.random.get_state()
    state["random state of Python"] = repr((hash(random.getstate()), hash(drawn[1].tobytes()), drawn[2]))
    modes = {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "torch function modes": torch_private.function_mode_depth(),
        "precision of matrix products": torch.get_float32_matmul_precision(),
        "denormal numbers": bool((torch.full((), 1e-40) * 1 > 0).item()),
        "default device": torch.get_default_device(),
        "garbage collection": gc.isenabled(),
        "recursion limit": sys.getrecursionlimit(),
        "folder": os.getcwd(),
    }
    return state | {"global state": {f"[{name}]": repr(value) for name, value in modes.items()}}


@contextlib.contextmanager
def _global_state_restored() -> Iterator[None]:
    grad, dtype, threads = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    precision, recursion, collects = torch.get_float32_matmul_precision(), sys.getrecursionlimit(), gc.isenabled()
    folder = os.getcwd()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(False)
        sys.setrecursionlimit(recursion)
        (gc.enable if collects else gc.disable)()
        os.chdir(folder)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _without_numbers(picture: Any) -> Any:
    if isinstance(picture, dict):
        return {name: _without_numbers(part) for name, part in picture.items() if not isinstance(part, Values)}
    if hasattr(picture, "parts"):
        return type(picture)(picture.kind, _without_numbers(picture.parts))
    return picture


# ---------------------------------------------------------------------- judging


def _truth(load: Load) -> Truth:
    def run(mode: Any) -> dict[str, torch.Tensor] | None:
        try:
            with mode:
                scenes = _scenes(load)
        except Exception:  # whatever it cannot do in float64: then eager is the measure
            return None
        return _numbers([scene.picture for scene in scenes])

    def record() -> list[Any]:
        random_draws = RandomDraws()
        with random_draws:
            _scenes(load)
        return random_draws.draws

    return Truth(run, record)


def _numbers(pictures: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {path: tensor for i, picture in enumerate(pictures) for path, tensor in numbers(picture, _call(i))}


def _call(number: int) -> str:
    return f"call {number + 1}:"


def _judged(eager: Scene, found: Scene, number: int, truth: Truth) -> Difference | None:
    """The first difference of a call that roundings do not explain."""
    stuck = eager.picture["backward raises"]
    # Compiled code is one function for autograd: a backward frees what later ones, of its other results, would need.
    freed = number > 0 and "through the graph a second time" in str(found.picture["backward raises"])
    differences = list(mismatches(eager.picture, found.picture, _call(number)))
    if any(_is_rounding_of_a_shape(mismatch, truth) for mismatch in differences):
        return None  # how many elements there are, rounding decides, and so how many numbers are drawn, say
    for mismatch in differences:
        if (stuck or freed) and ("gradients" in mismatch.path or "backward raises" in mismatch.path):
            continue  # compiled code may do what eager's autograd refuses
        if isinstance(mismatch.eager, Values) and isinstance(mismatch.compiled, Values):
            mine, theirs = mismatch.compiled.tensor, mismatch.eager.tensor
            if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
                continue  # told by shape and dtype
            if "random state" in mismatch.path:
                return Difference("random state", "the generator is left in another state than eager's")
            reason = truth.wrong(mismatch.path, mine, theirs)
            if reason:
                return Difference(_kind(mismatch.path), f"{mismatch.path}: {reason}")
        elif not _nearly(mismatch):
            return Difference(_kind(mismatch.path), mismatch.text)
    if found.failed and eager.picture["exception"].kind == "NoneType":
        return Difference("graph raises", found.failed[0].strip().replace("\n", " ")[:400])
    return None


def _is_rounding_of_a_shape(mismatch: Mismatch, truth: Truth) -> bool:
    """Do the shapes that values have at a place (``unique``, a mask) depend on roundings in eager itself?"""
    mine, theirs = mismatch.compiled, mismatch.eager
    if not (isinstance(mine, Values) and isinstance(theirs, Values)) or mine.tensor.shape == theirs.tensor.shape:
        return False
    return truth.has_other_shapes(mismatch.path, theirs.tensor.shape)


KINDS = (  # what a path contains -> the kind of the difference; the first that fits
    (r"exception", "exception"),
    (r"backward raises", "exception"),
    (r"printed$", "printed"),
    (r"random state", "random state"),
    (r"global state", "global state"),
    (r" (stride|storage_offset)$", "strides"),
    (r" shares storage with$", "aliasing"),
    (r" dtype$", "dtype"),
    (r" shape$", "shape"),
    (r" device$", "device"),
    (r" (requires_grad|is_leaf|inference)$", "requires_grad"),
    (r"gradients\[\d+\]$", "missing gradient"),
    (r"gradients|[. ]grad( values)?$", "gradients"),
    (r"(argument|state).* values$", "writes"),
    (r" values?$", "values"),
)


def _kind(path: str) -> str:
    return next((kind for pattern, kind in KINDS if re.search(pattern, path)), "structure")


_NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")


def _nearly(mismatch: Mismatch) -> bool:
    """Are two texts equal but for the last digits of numbers in them?"""
    one, other = mismatch.eager, mismatch.compiled
    if not isinstance(one, str) or not isinstance(other, str) or _NUMBER.sub("", one) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-5) for a, b in pairs)
