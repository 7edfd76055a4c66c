"""What went wrong in a native call, told to whoever called it."""

from __future__ import annotations

import threading

from jitney.errors import BackendFailed

_noted = threading.local()


def note(error: BaseException) -> None:
    """Remember an exception of Python that native code called in this thread."""
    _noted.error = error


def raise_failed() -> None:
    """What a wrapper does when a native call returned an error."""
    error, _noted.error = getattr(_noted, "error", None), None
    if error is not None:
        raise error
    raise BackendFailed("llvm_cpu: torch refused a matrix product or convolution that was called from native code")
