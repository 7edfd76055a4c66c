"""Which items must run before which, beside a graph that is walked anew each time."""

from __future__ import annotations

import random

import pytest

from jitney_lowering.scheduler.precedence import Precedence, bits


class Walked:
    """The same by walks over direct needs."""

    def __init__(self) -> None:
        self.needs: list[set[int]] = []

    def before(self, at: int) -> set[int]:
        """All that comes before an item."""
        found: set[int] = set()
        waiting = [at]
        while waiting:
            new = self.needs[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    def has_between(self, one: int, other: int) -> bool:
        """Does a way of several steps lead from one to the other?"""
        return any(
            first in self.before(at) and at in self.before(last)
            for first, last in ((one, other), (other, one))
            for at in range(len(self.needs))
        )

    def unite(self, one: int, other: int) -> None:
        """Make one item of two."""
        self.needs[one] |= self.needs[other]
        self.needs[other] = set()
        for needs in self.needs:
            if other in needs:
                needs.remove(other)
                needs.add(one)
        self.needs[one] -= {one, other}


def mask(items: set[int]) -> int:
    """A set as bits."""
    return sum(1 << at for at in items)


@pytest.mark.parametrize("seed", range(12))
def test_the_closure_is_that_of_all_ways_whatever_is_added_and_united(seed: int) -> None:
    dice = random.Random(seed)
    plain, precedence = Walked(), Precedence()
    gone: set[int] = set()
    for number in range(40):
        there = [at for at in range(number) if at not in gone]
        needs = set(dice.sample(there, min(len(there), dice.randrange(4))))
        if number % 13 == 12:
            plain.needs.append(set(there))
            assert precedence.append(precedence.everything()) == number
        else:
            plain.needs.append(needs)
            assert precedence.append(mask(needs)) == number
        there.append(number)
        one, other = dice.choice(there), dice.choice(there)
        if one != other and one not in plain.before(other):
            plain.needs[one].add(other)
            precedence.follow(one, 1 << other)
        one, other = dice.choice(there), dice.choice(there)
        if one != other:
            assert precedence.has_between(one, other) == plain.has_between(one, other)
            if not plain.has_between(one, other):
                plain.unite(one, other)
                precedence.unite(one, other)
                gone.add(other)
        for at in range(number + 1):
            assert set(bits(precedence.before[at])) == plain.before(at)
    order = precedence.order([*range(len(precedence))])
    place = {at: n for n, at in enumerate(order)}
    assert all(place[first] < place[last] for last in order for first in plain.before(last))


def test_of_what_may_come_next_the_least_wanted_number_does() -> None:
    precedence = Precedence()
    for needs in (0, 0, 0b1, 0b10):
        precedence.append(needs)
    assert precedence.order([3, 1, 0, 2]) == [1, 3, 0, 2]


def test_everything_is_what_nobody_needs_yet() -> None:
    precedence = Precedence()
    for needs in (0, 0b1, 0b1):
        precedence.append(needs)
    assert precedence.everything() == 0b110
    precedence.unite(1, 2)
    assert precedence.everything() == 0b10
    last = precedence.append(precedence.everything())
    assert set(bits(precedence.before[last])) == {0, 1}
