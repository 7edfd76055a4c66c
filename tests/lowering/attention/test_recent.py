"""``Recent`` keeps what was asked for last."""

from __future__ import annotations

from jitney_lowering.attention.recent import Recent


def test_what_was_not_asked_for_lately_is_made_again() -> None:
    made: list[int] = []
    recent: Recent[int] = Recent(2)

    def get(key: int) -> int:
        def make() -> int:
            made.append(key)
            return key * 10

        return recent.get(key, make)

    assert [get(key) for key in (1, 2, 1, 3, 1, 2, 1)] == [10, 20, 10, 30, 10, 20, 10]
    assert made == [1, 2, 3, 2] and len(recent) == 2
