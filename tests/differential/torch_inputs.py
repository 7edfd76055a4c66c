"""Cases out of torch's own tables of modules and optimizers: what one does, eagerly and compiled.

A case runs some calls in a row, with gradients, and everything that they leave behind is compared with eager's. Numbers
that are rounded otherwise may be no further from those of float64 than eager's.
"""

from __future__ import annotations

import contextlib
import copy
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from jitney import events
from jitney.api import compile as compile_function
from jitney.api import reset
from jitney.config import config
from jitney.torch_compat import torch_private
from jitney_testing.opinfo.case import Coverage
from jitney_testing.opinfo.compare import difference, fresh_tangents, same_bits
from jitney_testing.opinfo.referee import as_good, wide
from jitney_testing.opinfo.samples import random_state, seed_everything
from jitney_tools.compare.copies import copied, tensors

Mode = Literal["train", "eval", "inference"]
MODES: tuple[Mode, ...] = ("train", "eval", "inference")
DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "bfloat16")}
Compile = Callable[[Any], Any]


@dataclass(frozen=True)
class Place:
    """Where something to be tried stands in torch's tables: the same in every process, given one version of torch.

    Args:
        table: ``modules`` or ``optimizers``.
        name: of the class.
        kind: of a module the dtype and mode; of an optimizer how its tensors are gone through.
        index: the input's position among those of the class.
    """

    table: str
    name: str
    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.table}: {self.name} {self.kind} #{self.index}"


@dataclass(frozen=True)
class Case:
    """Something of torch's tables to be tried.

    Args:
        place: where it stands.
        play: runs it, given what compiles; ``True`` asks for double precision.
    """

    place: Place
    play: Callable[[Compile, bool], Any] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.place)


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Args:
        case: its text.
        eager_raises: then nothing was compared.
        failure: what differs from eager.
        exact: are all numbers equal to the last bit?
        breaks: why graphs broke, frames ran eagerly, or graphs ran as captured.
    """

    case: str
    eager_raises: str = ""
    failure: str = ""
    exact: bool = False
    breaks: tuple[str, ...] = ()


@config.patch(cache=False)
def attempt(case: Case, backend: Any, fresh: bool = True) -> Outcome:
    """Run a case eagerly, then compiled; unless ``fresh`` beside what cases before it have compiled."""
    try:
        expected = _played(case, _as_it_is)
    except Exception as error:
        return Outcome(str(case), _message(error))
    coverage = Coverage()
    try:
        with events.listen(coverage.note):
            found = _played(case, lambda program: compile_function(program, backend=backend))
    except Exception as error:
        return Outcome(str(case), "", f"raises {_message(error)}", False, _breaks(coverage))
    finally:
        if fresh:
            reset()
    wrong = difference(expected, found, "", strides=True)
    if wrong is not None and wrong.kind == "values":
        with contextlib.suppress(Exception):
            truth = _played(case, _as_it_is, True)
            drawn_alike = same_bits(expected[1], truth[1])  # else it is about other random numbers
            if drawn_alike and as_good(expected, found, truth):
                wrong = difference(expected, found, "", values=False)
    failure = f"{wrong.kind}: {wrong.detail}" if wrong is not None else ""
    if coverage.failed and not failure:
        failure = f"graph raises {coverage.failed[0]}"
    return Outcome(str(case), "", failure, same_bits(expected, found), _breaks(coverage))


def _played(case: Case, compiled: Compile, double: bool = False) -> Any:
    seed_everything()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.play(compiled, double), random_state()


def _as_it_is(program: Any) -> Any:
    return program


def _breaks(coverage: Coverage) -> tuple[str, ...]:
    return (*coverage.breaks, *(f"kept: {reason}" for reason in coverage.kept))


def _message(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:600]}"


# ---------------------------------------------------------------------------------------------------------- modules


def module_cases(names: str = ".*", kinds: str = ".*") -> Iterator[Case]:
    """Of all modules, in each dtype and mode; or of those that match, by regular expressions for the whole of them."""
    torch_private.op_database()  # whose import leaves torch's flags as they are
    from torch.testing._internal.common_modules import module_db

    for info in (info for info in module_db if re.fullmatch(names, info.name)):
        for dtype in DTYPES:
            if DTYPES[dtype] not in {*info.dtypes, torch.bfloat16}:
                continue
            for mode in MODES:
                kind = f"{dtype} {mode}"
                for index, given in enumerate(_module_inputs(info, dtype, mode) if re.fullmatch(kinds, kind) else []):
                    yield Case(Place("modules", info.name, kind, index), _module_play(info, given, dtype, mode))


def _module_inputs(info: Any, dtype: str, mode: Mode) -> list[Any]:
    seed_everything()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(
                info.module_inputs_func(
                    info, device="cpu", dtype=DTYPES[dtype], requires_grad=mode != "inference", training=mode == "train"
                )
            )
    except Exception:
        return []  # a dtype that the random numbers of a sample do not have


def _module_play(info: Any, given: Any, dtype: str, mode: Mode) -> Callable[[Compile, bool], Any]:
    def play(compiled: Compile, double: bool) -> Any:
        made, called = given.constructor_input, given.forward_input
        wanted = torch.float64 if double else DTYPES[dtype]
        module = info.module_cls(*copied(made.args), **copied(made.kwargs))
        module = module.to(torch.float64 if double and dtype != "float64" else wanted).train(mode == "train")
        run = compiled(module)
        scenes = []
        for _ in range(2):
            args, kwargs = copied((called.args, called.kwargs) if called is not None else ((), {}))
            if double:
                args, kwargs = wide((args, kwargs))
            with torch.set_grad_enabled(mode != "inference"), _without_nested_tensors(kwargs):
                result = run(*args, **kwargs)
            scenes.append(_scene(module, result, (args, kwargs), DTYPES[dtype]))
        return scenes

    return play


@contextlib.contextmanager
def _without_nested_tensors(kwargs: dict[str, Any]) -> Iterator[None]:
    """What eager makes of a padding mask in inference is another result, as docs/limits.md says."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(before and kwargs.get("src_key_padding_mask") is None)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _scene(module: nn.Module, result: Any, arguments: Any, dtype: torch.dtype) -> Any:
    """What a call has left, gradients included. Tangents are drawn in ``dtype``: double ones are other numbers."""
    picture: dict[str, Any] = {"result": copied(result)}
    outs = [t for t in tensors(result) if t.requires_grad]
    if outs:
        drawn = fresh_tangents([o.to(dtype) for o in outs])
        torch.autograd.backward(outs, [t.to(o.dtype) for t, o in zip(drawn, outs, strict=True)])
    picture["arguments"] = copied(arguments)
    picture["gradients"] = [t.grad for t in tensors(arguments) if t.is_leaf]
    names = dict(module.named_parameters())
    picture["parameters"] = {name: (p.detach().clone(), p.grad) for name, p in names.items()}
    picture["buffers"] = {name: b.detach().clone() for name, b in module.named_buffers()}
    for p in names.values():
        p.grad = None
    return picture


# ------------------------------------------------------------------------------------------------------- optimizers


def optimizer_cases(names: str = ".*", kinds: str = ".*") -> Iterator[Case]:
    """Of all optimizers, in each of the ways in which they go through their tensors; or of those that match."""
    torch_private.op_database()
    from torch.testing._internal.common_optimizers import optim_db

    for info in (info for info in optim_db if re.fullmatch(names, info.name)):
        for index, given in enumerate(info.optim_inputs_func(device="cpu")):
            for way in ("default", "foreach", "fused", "capturable"):
                kwargs = _optimizer_arguments(info, given, way) if re.fullmatch(kinds, way) else None
                if kwargs is not None:
                    yield Case(Place("optimizers", info.name, way, index), _optimizer_play(info, kwargs))


def _optimizer_arguments(info: Any, given: Any, way: str) -> dict[str, Any] | None:
    if way == "default":
        return dict(given.kwargs)
    if way == "capturable":
        return {**given.kwargs, way: True} if info.has_capturable_arg else None
    known = way in info.supported_impls or (way == "fused" and "cpu" in info.supports_fused_on)
    return {**given.kwargs, way: True} if known else None


def _optimizer_play(info: Any, kwargs: dict[str, Any]) -> Callable[[Compile, bool], Any]:
    def play(compiled: Compile, double: bool) -> Any:
        dtype = torch.float64 if double else torch.float32
        sizes = [(4, 3), (3, 4)] if info.name == "Muon" else [(4, 3), (3,), (2, 2, 2)]
        parameters = [nn.Parameter(torch.randn(size).to(dtype)) for size in sizes]
        optimizer = info.optim_cls(parameters, **copy.deepcopy(kwargs))
        targets = [torch.randn(size).to(dtype) for size in sizes]

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = sum(((p - t) ** 2).sum() for p, t in zip(parameters, targets, strict=True))
            loss.backward()
            return loss

        step = compiled(optimizer.step)
        scenes = []
        for _ in range(4):
            if info.only_supports_sparse_grads:
                for p in parameters:
                    p.grad = torch.randn(p.shape).to(dtype).to_sparse()
                result = step()
            elif info.step_requires_closure:
                result = step(closure)
            else:
                closure()
                result = step()
            scenes.append((copied(result), copied(parameters), copy.deepcopy(optimizer.state_dict())))
        return scenes

    return play


TABLES: dict[str, Callable[[str, str], Iterator[Case]]] = {"modules": module_cases, "optimizers": optimizer_cases}
