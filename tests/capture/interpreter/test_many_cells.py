"""Code entered in the middle has room on its stack for all that a frame hands on."""

from __future__ import annotations

import dis
from typing import Any

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
    made: list[Any] = []
    assemble = resume._assemble

    def seen(*args: Any, **kwargs: Any) -> Any:
        made.append(assemble(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(resume, "_assemble", seen)
    check(with_cells(cells, locals_), t(), graphs=None, breaks=1)
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
