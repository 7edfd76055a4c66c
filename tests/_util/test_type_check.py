from collections.abc import Callable
from typing import Any, Literal, Optional

import pytest

from jitney._util.type_check import has_type, show


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int),
        (1, float),
        (True, bool),
        (None, None),
        (None, Optional[int]),
        ("a", int | str),
        ("fast", Literal["fast", "slow"]),
        ([1, 2], list[int]),
        ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]),
        ({"a": 1}, dict[str, int]),
        (print, Callable),
        (print, Callable[[int], None]),
        (object(), Any),
    ],
)
def test_what_fits(value, annotation):
    assert has_type(value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (True, int),
        (True, float),
        (1, bool),
        (1.0, int),
        (0, None),
        ("1", Optional[int]),
        ("medium", Literal["fast", "slow"]),
        (True, Literal[1]),
        ([1, "a"], list[int]),
        ((1,), tuple[int, str]),
        ((1, "a"), tuple[int, ...]),
        ({"a": "b"}, dict[str, int]),
        ({1: 1}, dict[str, int]),
        (3, Callable),
    ],
)
def test_what_does_not_fit(value, annotation):
    assert not has_type(value, annotation)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "int"),
        (Literal["a", "b"], "'a' | 'b'"),
        (list[str], "list[str]"),
        (int | None, "int | None"),
        (Any, "Any"),
    ],
)
def test_annotations_as_a_person_writes_them(annotation, text):
    assert show(annotation) == text
