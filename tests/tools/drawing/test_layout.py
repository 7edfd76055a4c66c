"""Places of boxes: nothing overlaps, readers are below what they read, chains are straight."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jitney_tools.drawing.layout import GAP_X, Box, Picture, lay_out


@st.composite
def graphs(draw: st.DrawFn) -> list[Box]:
    boxes: list[Box] = []
    for number in range(draw(st.integers(1, 30))):
        reads = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        boxes.append(Box(draw(st.integers(10, 120)), draw(st.sampled_from([20.0, 34.0])), tuple(sorted(reads))))
    return boxes


def overlapping(picture: Picture) -> list[tuple[Box, Box]]:
    return [
        (a, b)
        for a, b in itertools.combinations(picture.boxes, 2)
        if a.x < b.x + b.width - 0.01
        and b.x < a.x + a.width - 0.01
        and a.y < b.y + b.height - 0.01
        and b.y < a.y + a.height - 0.01
    ]


@given(graphs())
def test_boxes_do_not_overlap_and_lie_below_what_they_read(boxes: list[Box]) -> None:
    picture = lay_out(boxes)
    assert not overlapping(picture)
    for box in picture.boxes:
        assert all(picture.boxes[i].y + picture.boxes[i].height < box.y for i in box.inputs)
        assert box.x >= -0.01 and box.x + box.width <= picture.width + 0.01
        assert box.y >= -0.01 and box.y + box.height <= picture.height + 0.01


@given(graphs())
def test_each_edge_goes_from_a_box_to_one_that_reads_it(boxes: list[Box]) -> None:
    picture = lay_out(boxes)
    assert len(picture.edges) == sum(len(set(box.inputs)) for box in boxes)
    ends = {(round(b.x + b.width / 2, 3), round(b.y, 3)) for b in picture.boxes}
    begins = {(round(b.x + b.width / 2, 3), round(b.y + b.height, 3)) for b in picture.boxes}
    for points in picture.edges:
        assert (round(points[0][0], 3), round(points[0][1], 3)) in begins
        assert (round(points[-1][0], 3), round(points[-1][1], 3)) in ends
        assert all(up[1] <= down[1] for up, down in itertools.pairwise(points))


def test_a_chain_is_a_straight_line() -> None:
    picture = lay_out([Box(20.0 + 10 * n, 30, (n - 1,) if n else ()) for n in range(6)])
    assert len({round(box.x + box.width / 2, 6) for box in picture.boxes}) == 1


def test_parts_that_do_not_hang_together_are_set_beside_each_other() -> None:
    picture = lay_out([Box(50, 30, (n - 1,) if n % 2 else ()) for n in range(200)])
    assert picture.width < 5 * picture.height and picture.height < 5 * picture.width


def test_what_reads_nothing_is_right_above_its_reader() -> None:
    chain = [Box(50, 30, (n - 1,) if n else ()) for n in range(5)]
    picture = lay_out([*chain, Box(50, 30), Box(50, 30, (4, 5))])
    given_late, last = picture.boxes[5], picture.boxes[6]
    assert given_late.y == picture.boxes[4].y < last.y
    assert abs(given_late.x - picture.boxes[4].x) >= 50 + GAP_X - 0.01


def test_no_boxes_make_an_empty_picture() -> None:
    assert lay_out([]).width == 0
