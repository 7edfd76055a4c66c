"""Frames with graph breaks, and what follows the breaks: kept on disk and saved, as whole frames are."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cache.again import Story, begin, run

import jitney
from jitney import events
from jitney.cache import frames
from jitney.cache.frames import pack, unpack
from jitney.cache.package_file import read
from jitney.errors import SavedError
from jitney.runtime import frame_cache

# Each: a program whose ``fn`` breaks. Prints, and what ``LOG`` gets, are compared with eager.
PROGRAMS = {
    "a print": """
        def fn(x):
            y = x + 1
            print("between", tuple(y.shape))
            return y * 2
    """,
    "several": """
        def fn(x):
            a = x.sin()
            print("one")
            b = a * 2 + x
            print("two")
            c = torch.relu(b) - a
            print("three")
            return c * 3, a
    """,
    "a branch on data": """
        def fn(x):
            y = x * 2
            if y.sum() > 3:
                y = y - 1
            else:
                y = y + 1
            return y.cos()
    """,
    "a loop": """
        def fn(x):
            for i in range(4):
                x = x * 2 + i
                print("round", i)
            return x + 1
    """,
    "a loop over a list, with a while": """
        STEPS = [1.5, 2.5, 0.5]
        def fn(x):
            for step in STEPS:
                x = x * step
                print(step)
            while x.sum() > 10:
                x = x / 2
            return x
    """,
    "in with": """
        def fn(x):
            with torch.no_grad():
                y = x * 2
                print("grad", torch.is_grad_enabled())
                z = y + 1
            print("grad", torch.is_grad_enabled())
            return z * x, torch.is_grad_enabled()
    """,
    "in with, a context manager of the program's": """
        LOG = []
        class Scope:
            def __enter__(self): LOG.append("in"); return self
            def __exit__(self, *error): LOG.append("out")
        def fn(x):
            with Scope() as scope:
                y = x * 2
                print("inside")
                y = y + 1
            return y * x
    """,
    "in try, what is raised there, and finally": """
        LOG = []
        def check(n):
            print("check", n)
            if n > 1:
                raise ValueError(n)
        def fn(x):
            y = x + 1
            for n in range(3):
                try:
                    check(n)
                    y = y * 2
                except ValueError as error:
                    print("caught", error)
                    y = y - 5
                finally:
                    LOG.append(n)
                    y = y + 0.5
            return y
    """,
    "a chain of callees": """
        def inner(x, k):
            y = x * k
            print("inner", k)
            return y + 1
        def middle(x): return inner(x, 2) * inner(x, 3)
        def fn(x): return middle(x + 1) - 1
    """,
    "a callee that is a closure": """
        def make(k):
            def inner(x):
                y = x * k
                print("closure")
                return y + k
            return inner
        scaled = make(4)
        def fn(x): return scaled(x).exp()
    """,
    "a callee that the frame makes": """
        def fn(x):
            k = x.shape[0]
            def inner(y):
                z = y * k
                print("made here", k)
                return z + x
            return inner(x) + inner(x + 1)
    """,
    "a comprehension and a lambda that outlive the break": """
        def fn(x):
            f = lambda y: y * 2 + x
            parts = [x + i for i in range(3)]
            print("parts", len(parts))
            return f(parts[2]) + parts[0]
    """,
    "cells that change": """
        def fn(x):
            count = 0
            def more():
                nonlocal count
                count += 1
                return count
            more()
            y = x * count
            print("count", count)
            more()
            return y * count
    """,
    "a method of a module": """
        class Block(nn.Module):
            def __init__(self, k):
                super().__init__()
                self.linear, self.k = nn.Linear(3, 3), k
            def forward(self, x):
                y = self.linear(x)
                print("block", self.k)
                return torch.relu(y) * self.k
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(Block(k) for k in (1, 2))
                self.calls = 0
            def forward(self, x):
                self.calls += 1
                for block in self.blocks:
                    x = block(x)
                return x + self.calls
        torch.manual_seed(0)
        fn = Net()
        def arguments(): return [torch.arange(6.).view(2, 3)]
    """,
    "super and an argument that is written to": """
        class A:
            def f(self, x):
                x.add_(1)
                print("A.f")
                return x * 2
        class B(A):
            def f(self, x):
                y = super().f(x)
                return y + x
        b = B()
        def fn(x): return b.f(x), x
    """,
    "item": """
        def fn(x):
            n = int(x.sum().item())
            return x[: n % 3] * n
    """,
    "a module of the standard library and a dictionary": """
        import time
        STATE = {"calls": 0}
        def fn(x, k=2, *more, flag=True):
            STATE["calls"] += 1
            y = x * k
            time.sleep(0)
            STATE["last"] = STATE["calls"]
            return (y + STATE["calls"], [y, {"k": y * 2}]) if flag else y
    """,
    "a generator that has ended, a zip that has not": """
        def fn(x):
            total = x
            for a, b in zip((1, 2, 3), [4, 5, 6]):
                total = total * a + b
                print(a, b)
            return total
    """,
    "a generator that waits": """
        def numbers(x):
            for i in range(3):
                yield x * i
        def fn(x):
            total = x
            for y in numbers(x):
                total = total + y
                print("waiting")
            return total
    """,
    "torch's state, another one than before": """
        def fn(x):
            before = torch.is_grad_enabled()
            torch.set_grad_enabled(False)
            y = x * 2
            print("off")
            torch.set_grad_enabled(before)
            return y + x
    """,
    "a function in a cell, looked into after the break": """
        def make():
            def inner(x): return x.sin() + 1
            def fn(x):
                y = x * 2
                print("cell")
                return inner(y)
            return fn
        fn = make()
    """,
    "what raises in the frame of a callee": """
        def positive(x):
            y = x - 100
            if y.sum() < 0:
                print(end="")
                raise ValueError("negative")
            return y
        def fn(x):
            try:
                return positive(x * 2)
            except ValueError as error:
                return x, str(error)
    """,
    "code of the program's that changes the program": """
        def plus(x): return x + 1
        def minus(x): return x - 1
        class C: k = 2
        def change():
            global plus
            plus = minus
            C.k = 3
        def fn(x):
            y = plus(x) * C.k
            change()
            return plus(y) * C.k
    """,
    "the end of a block, in a frame of its own": """
        LOG = []
        class Scope:
            def __exit__(self, *error):
                LOG.append("out")
                return True
            def __enter__(self): return self
        def fn(x):
            with Scope(), Scope():
                y = x * 2
                print("inside")
                z = y + 1
                print("still inside")
                raise ValueError
            return z * x
    """,
    "functions that are others at each call": """
        def make(k):
            def inner(x):
                y = x * k
                print("made", k)
                return y + 1
            return inner
        class Maker:
            @property
            def made(self): return make(3)
        def apply(f, x): return f(x) * 2
        FOUND = [make(2)]
        def fn(x):
            y = apply(FOUND[0], x)
            print("then")
            return apply(Maker().made, y)
    """,
    "where nothing is computed before": """
        def fn(x):
            print("first of all")
            return x * 2 + 1
    """,
}
ARGUMENTS = "\ndef arguments(): return [torch.arange(6.)]\n"


def program(name: str) -> str:
    text = textwrap.dedent(PROGRAMS[name])
    return text if "def arguments" in text else text + ARGUMENTS


def called(function: Any, module: Any) -> Any:
    """Two calls, with and without gradients; what was written counts too."""
    out = []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                given = [a.requires_grad_(grad) if grad else a for a in module.arguments()]
                args = [a * 1 for a in given]
                found = function(*args)
                out += [found, args, torch.is_grad_enabled()]
                if grad:
                    first = found[0] if isinstance(found, tuple) else found
                    out.append(torch.autograd.grad(first.sum(), given, allow_unused=True))
    return out, printed.getvalue(), getattr(module, "LOG", None), getattr(module, "STATE", None)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return same(list(a.items()), list(b.items())) if isinstance(a, dict) else bool(a == b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_begins_again_captures_nothing(name: str) -> None:
    for attempt in range(2):
        found, expected, story = run(program(name), called)
        assert same(found, expected)
        assert attempt == 0 or story.loaded, story.steps


# Where a program breaks in a callee: before -> after, what the second run has edited.
EDITED = """
    import math
    K, J = 2, 3
    LOG = []
    class Scope:
        def __enter__(self): return self
        def __exit__(self, *error): LOG.append(K)
    class C:
        def f(self, x): return x + 4
    c = C()
    def late(x): return x - 5
    def tell(*what): print(*what)
    def inner(x, k=6):
        y = x * k
        tell("inner", K)
        return y + K
    def make(n):
        def fn(x, m=7):
            with Scope():
                y = inner(x)
                tell("fn", m)
            z = c.f(late(y)) * J + n
            return z / m
        return fn
    fn = make(8)
"""
EDITS = {
    "before the break": ("y = inner(x)", "y = inner(x + 1)"),
    "after the break": ("late(y))", "late(y + 1))"),
    "after the second break": ("return z / m", "return z * m"),
    "before the break of a callee": ("y = x * k", "y = x / k"),
    "after the break of a callee": ("return y + K", "return y - K"),
    "a global read after the break of a callee": ("K, J = 2, 3", "K, J = 3, 3"),
    "a global read after the break": ("K, J = 2, 3", "K, J = 2, 4"),
    "what is called after the break": ("return x - 5", "return x - 6"),
    "a method": ("return x + 4", "return x * 4"),
    "what ends a block that the break is in": ("LOG.append(K)", "LOG.append(J)"),
    "a default": ("m=7", "m=9"),
    "a callee's default": ("k=6", "k=5"),
    "what a closure holds": ("fn = make(8)", "fn = make(9)"),
    "what runs at the break": ("print(*what)", "print(what)"),
    "where things stand": ("import math", "\n\n    import math"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_was_edited_is_noticed(name: str) -> None:
    before = textwrap.dedent(EDITED) + ARGUMENTS
    run(before, called)
    assert run(before, called)[2].loaded
    after = before.replace(*map(textwrap.dedent, EDITS[name]))
    assert after != before
    found, expected, story = run(after, called)
    assert same(found, expected), story.steps
    assert story.loaded == (name == "where things stand"), story.steps


def test_what_cannot_be_kept_leaves_the_rest_to_be_kept() -> None:
    text = """
        class C: pass
        def fn(x):
            y = x + 1
            print("first")
            y = y * (2 if id(C) else 3)
            print("second")
            return y - 4
        def arguments(): return [torch.arange(6.)]
    """
    assert [s for s in run(text)[2].steps if "stored" in s] == ["stored", "not stored: id() of an object", "stored"]
    found, expected, story = run(text)
    assert same(found, expected)
    assert story.steps == ["loaded", "captured", "not stored: id() of an object", "loaded"]


def test_a_graph_that_fails_in_its_first_run_is_not_kept() -> None:
    text = """
        def fn(x, at):
            y = x[at] * 2
            print(y.shape)
            return y
        def arguments(): return [torch.arange(6.), torch.tensor([9])]
    """

    def call(function: Any, module: Any) -> Any:
        with pytest.raises((IndexError, RuntimeError)):
            function(*module.arguments())

    assert run(text, call)[2].steps == ["captured"]


WRONG: dict[str, Callable[[list[Any]], Any]] = {
    "another instruction": lambda recipe: recipe[3].__setitem__(0, recipe[3][0] + 1),
    "no instruction": lambda recipe: recipe[3].__setitem__(0, 10_000),
    "another shape": lambda recipe: recipe[3][1][1].append("nothing"),
    "another stack": lambda recipe: recipe[3][1][2].append("value"),
    "another code": lambda recipe: recipe.__setitem__(2, "0" * 40),
    "what is no code": lambda recipe: recipe.__setitem__(1, 0),
    "fewer facts": lambda recipe: recipe[3].pop(),
    "an unknown kind": lambda recipe: recipe.__setitem__(0, "leap"),
}
WRONG_STEPS: dict[str, Callable[[list[Any]], Any]] = {
    "run in another way": lambda recipe: recipe[3].__setitem__(3, None),
    "another exit": lambda recipe: recipe[3][2][0][0].__setitem__(2, True),
    "an exit with another stack": lambda recipe: recipe[3][2][0][0][1].append("null"),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*itertools.product(WRONG, ["step", "point"]), *((n, "step") for n in WRONG_STEPS)]
)
def test_recipes_that_do_not_fit_the_code_are_refused(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(*where: Any, **how: Any) -> Iterator[tuple[str, bytes]]:
        for frame, content in frames.stored(*where, **how):
            data, blobs = unpack(content)
            for recipe in data["objects"]:
                if recipe[0] == kind:
                    (WRONG | WRONG_STEPS)[name](recipe)
            yield frame, pack(data, blobs)

    text = program("a print")
    run(text, called)
    monkeypatch.setattr(frame_cache, "stored", spoilt)
    found, expected, story = run(text, called)
    assert same(found, expected)
    assert any(step.startswith("refused: ") and "grad_mode" not in step for step in story.steps)
    assert "captured" in story.steps


MANY = 65  # numbers of which no branch is computed ahead
SAVED = """
    K = 2.0
    def inner(x):
        y = x + 1
        print("inner")
        return y * K
    def fn(x):
        y = inner(x)
        if y.sum() > 0:
            return y.sin()
        return y.cos()
"""


def saved(text: str, path: Path, *values: float) -> Path:
    """The program's function, after calls with these."""
    compiled = jitney.compile(begin(text).fn, backend="aot_eager")
    for value in values:
        compiled(torch.full((MANY,), value))
    return jitney.save(compiled, path)


@pytest.fixture
def elsewhere(folder: Path, tmp_path: Path) -> Callable[[str], Any]:
    """The program on another machine: executed anew, nothing kept on disk."""

    def started(text: str) -> Any:
        jitney.config.cache_dir = str(tmp_path / "other")
        return begin(text)

    return started


def test_a_function_with_breaks_goes_on_elsewhere(tmp_path: Path, elsewhere: Any) -> None:
    path = saved(SAVED, tmp_path / "fn", 1.0, -3.0)
    module, story = elsewhere(SAVED), Story()
    fn = jitney.load(path, compile=False)
    with events.listen(story):
        for value in (1.0, -3.0, 2.0):
            assert torch.equal(fn(torch.full((MANY,), value)), module.fn(torch.full((MANY,), value)))
    assert story.loaded
    again = jitney.save(fn, tmp_path / "again")
    module = begin(SAVED)
    assert torch.equal(jitney.load(again, compile=False)(torch.ones(MANY)), module.fn(torch.ones(MANY)))


def test_a_branch_that_was_not_saved_is_compiled_or_refused(tmp_path: Path, elsewhere: Any) -> None:
    path = saved(SAVED, tmp_path / "fn", 1.0)
    module = elsewhere(SAVED)
    x = torch.full((MANY,), -3.0)
    # Python 3.13 asks for the truth of a tensor in an instruction of its own, before it branches.
    line, why = (9, "_stack0 is True") if sys.version_info >= (3, 13) else (11, "no call came here before")
    with pytest.raises(SavedError, match=rf"no form of fn, from line {line} on, in (.|\n)*{why}"):
        jitney.load(path, compile=False)(x)
    with pytest.warns(UserWarning, match=rf"from line {line} on, in (.|\n)* fits this call(.|\n)*it is compiled here"):
        assert torch.equal(jitney.load(path)(x), module.fn(x))


def test_branches_that_were_computed_ahead_go_on_elsewhere(tmp_path: Path, elsewhere: Any) -> None:
    text = """
        def fn(x, n):
            n = n * 2
            return x.sin() if (n > 3).any() and n.sum() < 100 else x.cos()
    """
    program = begin(text)
    compiled = jitney.compile(program.fn, backend="aot_eager", fullgraph=True)
    x, numbers = torch.ones(MANY), [torch.tensor(v) for v in ([1.0, 2.0], [0.0, 1.0], [90.0, 0.0])]
    for n in numbers:
        assert torch.equal(compiled(x, n), program.fn(x, n))
    path = jitney.save(compiled, tmp_path / "fn")
    module = elsewhere(text)
    loaded = jitney.load(path, compile=False)
    for n in (*numbers, torch.tensor([1.5, 1.6]), torch.tensor([-5.0, 1.0])):
        assert torch.equal(loaded(x, n), module.fn(x, n))


def test_each_frame_says_why_it_does_not_fit(tmp_path: Path, elsewhere: Any) -> None:
    path = saved(SAVED, tmp_path / "fn", 1.0)
    elsewhere(SAVED.replace("K = 2.0", "K = 3.0"))
    with pytest.raises(SavedError, match=r"no form of inner, from line 5 on, in(.|\n)*'K'\] == 2.0 \(found 3.0\)"):
        jitney.load(path, compile=False)(torch.ones(MANY))
    elsewhere(SAVED.replace("y * K", "y / K"))
    with pytest.raises(SavedError, match="inner is not what it was"):
        jitney.load(path, compile=False)(torch.ones(MANY))


def test_a_rest_that_runs_eagerly_does_so_elsewhere(tmp_path: Path, elsewhere: Any) -> None:
    text = """
        def fn(x):
            _r0 = x + 1  # a name that emitted code needs for itself
            print("between")
            return _r0 * 2
    """
    path = saved(text, tmp_path / "fn", 1.0)
    assert len(read(path)[0].eager) == 1
    module = elsewhere(text)
    fn = jitney.load(path, compile=False)
    assert torch.equal(fn(torch.ones(MANY)), module.fn(torch.ones(MANY)))


def test_a_part_that_cannot_be_kept_cannot_be_saved(tmp_path: Path) -> None:
    text = """
        class C: pass
        def fn(x):
            y = x + 1
            print("between")
            return y * (2 if id(C) else 3)
    """
    with pytest.raises(SavedError, match=r"fn cannot be saved: fn, from line 5 on, id\(\) of an object"):
        saved(text, tmp_path / "fn", 1.0)


def test_a_frame_that_is_an_entry_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        def fn(x, kind):
            y = x + len(kind)
            print(kind)
            return y * len(kind)
    """
    tried: list[bytes] = []

    class Watched(frame_cache.StoredFrame):
        def __init__(self, content: bytes, *rest: Any) -> None:
            tried.append(content)
            super().__init__(content, *rest)

    def call(function: Any, module: Any) -> Any:
        return [function(torch.ones(MANY), kind) for kind in reversed(kinds)]

    kinds = ["c", "bb", "aaa", "dddd"]
    run(text, call)
    kinds.reverse()
    monkeypatch.setattr(frame_cache, "StoredFrame", Watched)
    found, expected, story = run(text, call)
    assert same(found, expected) and story.loaded
    assert len(tried) < 2 * len(story.steps)


def test_a_process_that_raised_midway_and_one_that_did_not_are_both_gone_on_with() -> None:
    text = """
        def fn(x, raises):
            y = x + 1
            print("first")
            if raises:
                raise ValueError(int("x"))
            print("second")
            return y * 2
    """

    def call(function: Any, module: Any) -> Any:
        for raises in ways:
            with contextlib.suppress(ValueError):
                function(torch.ones(MANY), raises)

    for ways in ([True], [False]):
        assert "captured" in run(text, call)[2].steps
    for ways in ([True, False], [False, True]):
        story = run(text, call)[2]
        assert story.loaded, story.steps


RECURSIVE = """
    TWICE = [lambda x: x * 2]  # found in each call anew
    def fn(x, n):
        y = TWICE[0](x)
        return eval("go_on(x, n - 1)", globals(), {"x": y, "n": n}) + 1 if n else y
"""


@pytest.mark.parametrize("shipped", [False, True])
def test_a_call_within_a_call_finds_the_same_frame_and_it_is_an_entry_once(tmp_path: Path, shipped: bool) -> None:
    for attempt in range(2):
        module, story = begin(RECURSIVE), Story()
        if shipped and attempt:
            compiled = jitney.load(tmp_path / "fn")
        else:
            compiled = jitney.compile(module.fn, backend="aot_eager")
        module.go_on = compiled
        with events.listen(story), jitney.config.patch(cache=not (shipped and attempt)):
            found = [compiled(torch.ones(3), 12).tolist() for _ in range(2)]
        assert found == [[2.0**13 + 12] * 3] * 2
        assert attempt == 0 or story.steps.count("loaded") > 10
        assert len(compiled._jitney_root.entries) < 5
        if shipped and not attempt:
            jitney.save(compiled, tmp_path / "fn")
