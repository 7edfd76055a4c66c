"""What is asked of tensors on the host before a frame runs: which way its branches go, and where their memory lies."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private

REMEMBERED = 1 << 12  # answers of one kind of comparison


class Answers(dict[tuple[Any, ...], bool]):
    """By numbers, what a comparison of them gives."""


# By what is computed, as text: shared by all that compute it, and gone with the last one.
_answers: weakref.WeakValueDictionary[str, Answers] = weakref.WeakValueDictionary()


class HostComparison:
    """What a comparison of numbers gives that are computed of tensors on the host.

    Args:
        run: from these tensors and numbers, to which it does not write, to the answer.
        code: its text.
    """

    def __init__(self, run: Callable[..., Any], code: str) -> None:
        self.run, self.code = run, code
        self.answers = _answers.setdefault(code, Answers())

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        return ["call", f"{__name__}:HostComparison", writer.refs((self.run, self.code))]

    def __call__(self, *tensors: torch.Tensor | float) -> bool | None:
        """The answer for the numbers that they hold now; None if it raises."""
        key = (torch.get_default_dtype(), *map(_numbers, tensors))
        if key not in self.answers:
            if len(self.answers) >= REMEMBERED:
                self.answers.clear()
            try:
                with torch_private.without_modes(), torch.no_grad():
                    self.answers[key] = bool(self.run(*tensors))
            except Exception:  # the running graph raises, where the program may catch it
                return None
        return self.answers[key]

    def failure(self, names: str, tensors: list[torch.Tensor | float], answer: bool) -> tuple[str, str]:
        """What does not hold of these tensors, for a report: what was, and what is found."""
        found = [t.tolist() if isinstance(t, torch.Tensor) else t for t in tensors]
        return f"a branch on {names} is {answer}", ", ".join(map(str, found))


def _numbers(tensor: torch.Tensor | float) -> tuple[Any, ...]:
    """What tells its numbers from others, signs of zeros included."""
    if not isinstance(tensor, torch.Tensor):
        return type(tensor), tensor, math.copysign(1.0, tensor)
    if tensor.numel() == 1:
        number = tensor.item()
        return number, math.copysign(1.0, number), tensor.dtype, tensor.dim()
    numbers = tensor.flatten().tolist()
    return tuple(numbers), tuple([math.copysign(1.0, n) for n in numbers]), tensor.dtype, tensor.shape


class OwnMemories:
    """Has each of these tensors a storage that is none of the others'? Those without any bytes have none."""

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        return ["call", f"{__name__}:OwnMemories", writer.refs(())]

    def __call__(self, *tensors: torch.Tensor) -> bool:
        """Compare the addresses."""
        addresses = [t.untyped_storage().data_ptr() for t in tensors if t.untyped_storage().nbytes()]
        return len(set(addresses)) == len(addresses)

    def failure(self, names: str, tensors: list[torch.Tensor], answer: bool) -> tuple[str, str]:
        """As of a ``HostComparison``."""
        return f"{names} share no memory", ""


class Apart:
    """Do the tensors that a frame's comparisons ask about lie apart from others that it writes to before?

    Args:
        spans: bytes from each tensor's first element to its end; None if they change from call to call.
        roles: is it asked about, is it written to?
    """

    def __init__(self, spans: Sequence[int | None] = (), roles: Sequence[tuple[bool, bool]] = ()) -> None:
        self.spans, self.roles = list(spans), list(roles)
        self.fakes: list[Any] = []  # their stand-ins, while capturing
        self.checked: tuple[int, ...] = ()

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        return ["call", f"{__name__}:Apart", writer.refs((self.spans, self.roles))]

    def add(self, fake: Any, asked: bool, written: bool) -> None:
        """One tensor more, or something more of one."""
        at = next((n for n, known in enumerate(self.fakes) if known is fake), None)
        if at is None:
            self.fakes.append(fake)
            self.spans.append(_span(fake))
            self.roles.append((asked, written))
        else:
            before, too = self.roles[at]
            self.roles[at] = asked or before, written or too
        self.checked = ()

    def copy(self) -> Apart:
        """Another one that asks the same."""
        made = Apart(self.spans, self.roles)
        made.fakes = list(self.fakes)
        return made

    def __call__(self, *tensors: torch.Tensor) -> bool:
        """Addresses that were found apart once are not looked at again, as long as sizes are fixed."""
        addresses = tuple([t.data_ptr() for t in tensors])
        if addresses == self.checked and None not in self.spans:
            return True
        asked_end = written_end = 0
        spans = [_span(t) if known is None else known for t, known in zip(tensors, self.spans, strict=True)]
        rows = zip(addresses, spans, self.roles, strict=True)
        for begin, span, (asked, written) in sorted((a, s or 0, role) for a, s, role in rows):
            if (asked and begin < written_end) or (written and begin < asked_end):
                return False
            asked_end = max(asked_end, begin + span if asked else 0)
            written_end = max(written_end, begin + span if written else 0)
        self.checked = addresses
        return True

    def failure(self, names: str, tensors: list[torch.Tensor], answer: bool) -> tuple[str, str]:
        """As of a ``HostComparison``."""
        return f"a branch reads none of the memory that is written to before it, by {names}", ""


def _span(tensor: Any) -> int | None:
    """How many bytes lie between a tensor's first element and its end; None if they change from call to call."""
    with torch_private.DisableTorchFunction():
        sizes, strides = tensor.size(), tensor.stride()
        if not {*map(type, (*sizes, *strides))} <= {int}:
            return None
        extent = 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
        return extent * int(tensor.itemsize) if 0 not in sizes else 0
