"""Cases out of torch's OpInfo database: an operator, a dtype, one of its sample inputs, and how it is called."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from jitney.torch_compat import torch_private

Variant = Literal["call", "inplace", "out", "inference"]
VARIANTS: tuple[Variant, ...] = ("call", "inplace", "out")  # what is tried unless asked otherwise
DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "int64", "bool")}

# The values of these are whatever the memory held; the rest of their results is compared.
UNDEFINED_VALUES = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


@dataclass(frozen=True)
class Case:
    """One call to be tried. Equal in every process, given one version of torch.

    Args:
        op: the OpInfo's name, with its variant's.
        dtype: name of the samples' dtype.
        variant: ``call`` is the operator as it is and ``inplace`` its in-place method, with gradients if they have any;
            ``out`` its ``out=`` form; ``inference`` the operator on tensors that do not require grad.
        index: the sample's position among the operator's.
    """

    op: str
    dtype: str
    variant: Variant
    index: int

    def __str__(self) -> str:
        return f"{self.op}[{self.dtype}] {self.variant} #{self.index}"

    def chosen(self, fraction: float) -> bool:
        """Is it among a fixed fraction of all cases?"""
        return is_chosen(self, fraction)


def is_chosen(case: object, fraction: float) -> bool:
    """Is a case, by its text, among a fixed fraction of all? Equal in every process."""
    return zlib.crc32(str(case).encode()) % 10_000 < fraction * 10_000


@dataclass(frozen=True)
class Call:
    """What a case calls.

    Args:
        case: its name.
        function: the operator.
        args, kwargs: the sample; never written to, each run gets a copy.
        trains: shall its gradients be compared?
        finish: makes outputs differentiable where they are only so up to a sign or phase, as those of ``eigh``.
    """

    case: Case
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    trains: bool
    finish: Callable[[Any], Any]

    @property
    def undefined(self) -> bool:
        """Are the values of its results undefined?"""
        return self.case.op in UNDEFINED_VALUES


def operators(pattern: str = "") -> list[str]:
    """The names in the database whose whole name matches a regular expression; all without one."""
    names = [info.formatted_name for info in torch_private.op_database()]
    return [name for name in names if not pattern or re.fullmatch(pattern, name)]


@dataclass(frozen=True)
class Choice:
    """Which of an operator's cases.

    Args:
        fraction: of the cases, a fixed choice.
        most: at most so many of its samples, spread over all of them; 0 for all.
        variants: what to try; those that the operator lacks are left out.
        device: a type of devices: where the samples are.
    """

    fraction: float = 1.0
    most: int = 0
    variants: tuple[Variant, ...] = VARIANTS
    device: str = "cpu"

    def samples(self, info: Any, dtype: torch.dtype, trains: bool) -> Iterator[tuple[int, Any]]:
        """Samples with their positions."""
        seed_everything()
        found = info.sample_inputs_func(
            info, self.device, dtype, trains
        )  # its wrapper looks at the whole stack each time
        if not self.most:
            yield from enumerate(found)
            return
        every = list(found)
        count = min(self.most, len(every))
        for i in range(count):
            at = i * len(every) // count
            yield at, every[at]


def calls(op: str, dtype: str, choice: Choice = Choice()) -> Iterator[Call]:
    """The cases of one operator with one dtype, in order; none if it does not take the dtype.

    Args:
        op: a name of ``operators``.
        dtype: a key of ``DTYPES``.
        choice: which of them.
    """
    info = next(info for info in torch_private.op_database() if info.formatted_name == op)
    wanted = DTYPES[dtype]
    if wanted not in info.supported_dtypes(choice.device):
        return
    trains = info.supports_autograd and wanted in info.supported_backward_dtypes(choice.device)
    forms: dict[Variant, Any] = {"call": info.op, "inplace": info.inplace_variant, "out": None, "inference": None}
    if trains:  # else it is the same as ``call``
        forms["inference"] = info.op
    if info.supports_out:
        forms["out"] = info.op
    for index, sample in choice.samples(info, wanted, trains):
        for variant in choice.variants:
            case = Case(op, dtype, variant, index)
            if forms[variant] is None or not case.chosen(choice.fraction):
                continue
            yield Call(
                case,
                forms[variant],
                (sample.input, *sample.args),
                dict(sample.kwargs),
                trains and _trains(variant, info, sample),
                sample.output_process_fn_grad,
            )


def _trains(variant: Variant, info: Any, sample: Any) -> bool:
    if variant == "inplace":
        return bool(info.supports_inplace_autograd) and not sample.broadcasts_input
    return variant == "call"


def seed_everything(seed: int = 20261121) -> None:
    """Equal random numbers from here on."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed looks at every device, which takes longer
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


def random_state() -> list[torch.Tensor]:
    """Of the generators that ``seed_everything`` seeds."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])]
