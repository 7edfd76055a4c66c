"""Code entered in the middle has room on its stack for all that a frame hands on."""

from __future__ import annotations

import dis
from typing import Any
from unittest import mock

import pytest
from helpers import check, t

from jitney.capture.interpreter import resume


def with_cells(cells: int, locals_: int) -> Any:
    """A closure over so many variables, with so many of its own, that breaks in the middle."""
    outer = [f"c{i}" for i in range(cells)]
    own = [f"v{i}" for i in range(locals_)]
    lines = [
        "def make():",
        *(f"    {name} = {i}" for i, name in enumerate(outer)),
        "    def fn(x):",
        *(f"        {name} = x + {i}" for i, name in enumerate(own)),
        "        print(end='')",
        f"        return x + 1 + {' + '.join([*outer, *own])}",
        "    return fn",
    ]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    return space["make"]()


@pytest.mark.parametrize(("cells", "locals_"), [(1, 1), (20, 1), (1, 40), (60, 60), (250, 5)])
def test_a_break_hands_on_as_many_variables_as_there_are(
    cells: int, locals_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = resume._assemble
    spy = mock.Mock(wraps=assemble)  # the standard library's code: a function here is taken for the program's
    monkeypatch.setattr(resume, "_assemble", spy)
    check(with_cells(cells, locals_), t(), graphs=None, breaks=1)
    made = [assemble(*call.args, **call.kwargs) for call in spy.call_args_list]
    assert made and all(highest(code) <= code.co_stacksize for code in made)


def highest(code: Any) -> int:
    """The most that is on the stack, along straight lines from where it is empty."""
    depth = most = 0
    for instr in dis.get_instructions(code):
        depth += dis.stack_effect(instr.opcode, instr.arg, jump=False)
        most = max(most, depth)
        if instr.opname in ("RETURN_VALUE", "JUMP_FORWARD"):
            depth = 0
    return most
