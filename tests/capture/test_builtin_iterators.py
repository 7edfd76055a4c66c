"""What builtin iterators tell of themselves, whatever Python's version."""

from __future__ import annotations

import itertools

from jitney.capture.builtin_iterators import END, item_ahead, parts


def test_a_chain_tells_what_is_to_come_at_each_position() -> None:
    for position in range(6):
        chain = itertools.chain([1, 2], (3,), {4: 5})
        for _ in range(position):
            next(chain, None)
        found = [item_ahead(chain, count) for count in range(5)]
        assert found == [[1, 2, 3, 4][n] if n < 4 else END for n in range(position, position + 5)]
        assert [type(part) for part in parts(chain)][:1] == [type(iter(()))][: 5 - position]
