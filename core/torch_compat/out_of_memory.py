"""Memory has run out in compiled code: what to do about it, as a note on the error that the user gets."""

from __future__ import annotations

import torch

from jitney.config import config

_MARK = "jitney: memory ran out"
_SAYINGS = ("can't allocate memory", "not enough memory", "out of memory")  # of torch's, in plain RuntimeErrors


def is_exhausted(error: BaseException) -> bool:
    """Does the error say that there is no memory left, on a device or on the CPU?"""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error) for saying in _SAYINGS)


def advise(error: BaseException, name: str, forms: int = 0) -> None:
    """Note on the error, once, what may help; nothing on any other error.

    Args:
        error: what compiled code, or the program in its place, has raised.
        name: the user's function.
        forms: how many compiled forms it has.
    """
    notes = getattr(error, "__notes__", ())
    if not is_exhausted(error) or any(note.startswith(_MARK) for note in notes):
        return
    error.add_note("\n  ".join([f"{_MARK} in {name}, which is compiled. To try:", *advice(forms)]))


def advice(forms: int = 0) -> list[str]:
    """What may help, a sentence each; see ``advise``."""
    found = []
    budget = config.activation_memory_budget
    if budget > 0:
        found.append(
            f"config.activation_memory_budget = {budget / 2:g} (it is {budget:g}): a forward keeps less for its "
            "backward, which computes it again"
        )
    if forms > 1:
        found.append(f"dynamic=True or mark_dynamic, if sizes change: {forms} forms are compiled")
    if torch.cuda.is_initialized():
        found.append("no CUDA graphs (mode='reduce-overhead'): each recording keeps its memory")
    found.append("`jitney memory FILE:FUNCTION` compares the peak with eager's")
    return found
