"""Places of temporaries: what lives at the same time lies apart, whether sizes are numbers or symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from hypothesis import given
from hypothesis import strategies as st

from jitney_lowering.index import Index, Size, index
from jitney_lowering.ir import Buffer
from jitney_lowering.scheduler.memory.plan import Memory, plan

N = Size("n")
CHOICES: tuple[Index, ...] = (index(16), index(32), index(48), index(64), N * 16, N * 16 + 16)


@dataclass(frozen=True)
class Item:
    """What a plan asks of a kernel, or of an operator."""

    writes: frozenset[str]
    reads: frozenset[str] = frozenset()


def planned(lives: list[tuple[Index, int, int]]) -> Memory:
    """The plan of buffers with so many elements, the item that writes each, and the last that reads it."""
    buffers = {f"b{at}": Buffer(f"b{at}", torch.float32, (size,), (index(1),)) for at, (size, *_) in enumerate(lives)}
    items = [
        Item(
            frozenset(f"b{at}" for at, (_, first, _last) in enumerate(lives) if first == number),
            frozenset(f"b{at}" for at, (_, first, last) in enumerate(lives) if first < number <= last),
        )
        for number in range(1 + max(last for *_, last in lives))
    ]
    return plan(cast(Any, items), buffers, ())


def test_a_part_of_what_was_free_may_be_in_use_when_symbols_come() -> None:
    #         0 ---------   then   a --   ------------ whole?
    #                              b ------------------------
    lives = [(index(32), 0, 1), (index(16), 2, 3), (index(16), 2, 9), (N, 4, 9), (index(32), 5, 9)]
    made = planned(lives)
    made.verify()
    assert made.blocks["b4"].offset is not made.blocks["b0"].offset


def test_what_is_free_among_numbers_is_used_again_when_symbols_have_come() -> None:
    made = planned([(index(64), 0, 1), (N, 2, 4), (index(16), 3, 4), (index(16), 3, 4), (index(64), 4, 4)])
    made.verify()
    assert [made.blocks[name].offset.value for name in ("b2", "b3")] == [0, 64]


@given(
    st.lists(
        st.tuples(st.sampled_from(CHOICES), st.integers(0, 9), st.integers(0, 5)).map(
            lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
        ),
        min_size=1,
        max_size=14,
    )
)
def test_what_lives_at_the_same_time_lies_apart(lives: list[tuple[Index, int, int]]) -> None:
    made = planned(lives)
    made.verify()
    size = made.size.evaluate({N: 5})
    assert all((b.offset + b.size).evaluate({N: 5}) <= size for b in made.blocks.values())
