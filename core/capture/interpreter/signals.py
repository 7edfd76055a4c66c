"""How capture stops: the exceptions that travel inside the interpreter and never reach the user."""

from __future__ import annotations

from typing import Any


class _Stop(BaseException):
    """Capture does not go on: why, and what the user may try."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Break(_Stop):
    """The current instruction cannot be captured: run the graph so far, then this in Python."""


class Raised(Break):
    """The current instruction is an operation that raises on stand-ins, as it will on tensors."""


class Restart(_Stop):
    """Capture again from the start, breaking before the instruction that was step ``step``."""

    def __init__(self, step: int, reason: str, hint: str = "", user_stack: tuple[Any, ...] = ()) -> None:
        super().__init__(reason, hint)
        self.step = step
        self.user_stack = user_stack
        self.place: tuple[Any, int] | None = None  # code and instruction of the step, where they are known

    def is_at(self, code: Any, at: int) -> bool:
        """Is this the step's instruction? A program that found a cache filled by an earlier attempt takes others."""
        return self.place is None or self.place == (code, at)


class Retry(BaseException):
    """Capture again from the start, without what was tried for the instruction that was step ``step``."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


class GiveUp(_Stop):
    """The frame cannot be captured at all: it runs eagerly, with its calls going through the compiler.

    Args:
        plainly: so do its calls.
    """

    def __init__(self, reason: str, hint: str = "", plainly: bool = False) -> None:
        super().__init__(reason, hint)
        self.plainly = plainly


class Initialise(BaseException):
    """Capture again from the start, once a lazy module has got its parameters: ``initialisation``."""

    def __init__(self, initialisation: Any) -> None:
        super().__init__()
        self.initialisation = initialisation


class UserRaised(BaseException):
    """An exception of the user's program, raised while interpreting it; ``again`` in the frame that handled it."""

    def __init__(self, value: BaseException, again: bool = False) -> None:
        super().__init__(type(value).__qualname__)  # its repr may be code of the program's
        self.value = value
        self.again = again
