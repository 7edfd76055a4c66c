"""Frames with graph breaks, and what follows the breaks: kept on disk and saved, as whole frames are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cache.again import run

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
    "where nothing is computed before": """
        def fn(x):
            print("first of all")
            return x * 2 + 1
    """,
}
ARGUMENTS = "\ndef arguments(): return [torch.arange(6.)]\n"


def program(name: str) -> str:
    import textwrap

    text = textwrap.dedent(PROGRAMS[name])
    return text if "def arguments" in text else text + ARGUMENTS


def called(function: Any, module: Any) -> Any:
    """Two calls, with and without gradients; what was written counts too."""
    import contextlib
    import io

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
        print(story.steps)
        assert same(found, expected)
        assert attempt == 0 or story.loaded
