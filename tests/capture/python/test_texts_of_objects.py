"""Text that methods of objects make, as dataclasses have them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from helpers import check, t


@dataclasses.dataclass
class Linked:
    value: int
    rest: Any = None


def test_text_of_dataclasses() -> None:
    def tells(x: torch.Tensor, outside: Any) -> Any:
        made = Linked(3, Linked(4))
        return x * 2, f"{made}", repr(outside), str(Linked(5, outside))

    check(tells, t(2), Linked(1, Linked(2)), breaks=0)


def test_text_of_a_dataclass_that_leads_back_to_itself() -> None:
    def tells(x: torch.Tensor) -> Any:
        made = Linked(3)
        made.rest = Linked(4, made)
        return x * 2, repr(made)

    check(tells, t(2), breaks=0)
