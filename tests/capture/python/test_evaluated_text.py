"""Code and classes that a program makes of text: eval, namedtuple; and bytes that C code reads and writes."""

from __future__ import annotations

import binascii
import collections
import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, t

SCALE = 3


def _named(x: torch.Tensor) -> Any:
    pair = collections.namedtuple("pair", ["first", "second"], defaults=(2,))
    made = pair(x * 2)
    return made.first * made.second, pair(1) == (1, 2), pair._fields, made._replace(second=4)[1], pair.__module__


def _walrus(x: torch.Tensor) -> Any:
    return x, eval("(y := 3)")


def _prints(x: torch.Tensor) -> Any:
    return eval("(print('said'), x * 2)[1]") + 1


def _syntax(x: torch.Tensor) -> Any:
    try:
        return x, eval("1 +")
    except SyntaxError as error:
        return x, error.msg, error.filename


WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "constant": lambda x: x * eval("1 + 2"),
    "names": lambda x: (lambda y: eval(" y * SCALE + y.sum() + len('ab')"))(x + eval("x")),
    "inner": lambda x: eval("[SCALE * v for v in range(3)]") + [x + eval("(lambda a: a * 2)(3)")],
    "comprehension of a name in use": lambda w: (w, eval("[w for w in (1, 2)] + [[w * 2 for w in (3, 4)], w]")),
    "comprehension that fails": lambda x: (x, eval("[1 / w if w else None for w in (1, 0)]")),
    "syntax": _syntax,
    "struct": lambda x: x * struct.unpack("<if", struct.pack("<if", 3, 0.5))[0] + struct.calcsize("<q"),
    "bytes": lambda x: (x * 2, binascii.hexlify(b"ab"), binascii.crc32(b"ab"), binascii.b2a_base64(b"abc")),
    "namedtuple": _named,
    "namedtuple of names": lambda x: collections.namedtuple("P", "a b", rename=False)(x, 2).a * 2,
}
CUT: dict[str, Callable[[torch.Tensor], Any]] = {
    "namedtuple kept": lambda x: collections.namedtuple("P", "a b")(x + 1, 2)._asdict(),
    "instance returned": lambda x: tuple(collections.namedtuple("P", "a b")(x + 1, 2)),
    "bad names": lambda x: _raised(lambda: collections.namedtuple("P", "a a"), x),
    "text of an instance": lambda x: (x, repr(collections.namedtuple("P", "a b")(1, 2))),
    "walrus": _walrus,
    "prints": _prints,
    "prints in a comprehension": lambda w: (w, eval("[(w, print(w)) for w in (1, 2)]"), w * 2),
    "names in a comprehension": lambda x: (x, eval("[sorted(locals()) for w in range(2)][0]")),
    "globals given": lambda x: x * eval("a", {"a": 2}),
    "unknown name": lambda x: _raised(lambda: eval("nowhere"), x),
    "free variable": lambda x: _raised(lambda: eval("x"), 1),
    "struct fails": lambda x: _raised(lambda: struct.pack("i", "a"), x),
}


def _raised(call: Callable[[], Any], x: Any) -> Any:
    try:
        return x, call()
    except Exception as error:
        return x, type(error), str(error)


@pytest.mark.parametrize("name", WHOLE)
def test_text_becomes_part_of_the_graph(name: str) -> None:
    check(WHOLE[name], t(), breaks=0)


@pytest.mark.parametrize("name", CUT)
def test_text_means_what_it_means_in_python(name: str) -> None:
    check(CUT[name], t())


def test_evaluated_text_follows_its_names() -> None:
    def scenario(compile: Any) -> Any:
        global SCALE
        called = compile(lambda x, text, by: (x * eval(text), by))
        results = [called(t(), "SCALE + by", 2), called(t(), "SCALE - by", 2)]
        SCALE = 7
        try:
            results += [called(t(), "SCALE + by", 2), called(t(), "SCALE + by", 5)]
        finally:
            SCALE = 3
        return results

    check_scenario(scenario)


def test_a_namedtuple_made_inside_is_returned() -> None:
    def scenario(compile: Any) -> Any:
        made = compile(lambda x: collections.namedtuple("P", "a b")(x + 1, 2))(t())
        return tuple(made), type(made).__name__, type(made).__module__, made._fields

    check_scenario(scenario)
