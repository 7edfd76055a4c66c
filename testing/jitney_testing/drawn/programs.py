"""Python programs, drawn by Hypothesis: control flow, classes, generators, side effects, exceptions, graph breaks.

Every tensor has shape (3,), so programs seldom fail by accident; when they do, they must fail as in eager. Names are
only used where they are bound, blocks are at most three deep, loops are short. A program shrinks towards fewer and
simpler statements: in each table the simplest choice comes first.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from jitney_testing.program import Program

# What the programs use. All of it is in the text: a program that fails shows everything that it does.
HEADER = """\
import contextlib

import torch

from jitney import disable, graph_break
from jitney_testing.examples import device_of_examples


class Box:
    def __init__(self, v, n):
        self.v = v
        self.n = n


class Track:
    def __init__(self, log, swallow=()):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(("exit", kind and kind.__name__))
        return kind is not None and issubclass(kind, self.swallow)


@contextlib.contextmanager
def scope(log, x):
    log.append("in")
    try:
        yield x * 2
    finally:
        log.append("out")


@disable
def opaque(x, log):
    log.append(x.sum().item())
    return x * 2


"""
# Arguments that share memory, and that all calls get: what one call leaves, the next one finds.
FOOTER = """\


def example(factor, grad=False):
    return ((torch.arange(3.0, device=device_of_examples()) - 1) / 4 + 0.125).mul(factor).requires_grad_(grad)


SIZES = (0, 1)
X, SHARED = example(1), example(2)
ITEMS = [SHARED, example(1) - 1, X{more}]
BOX = Box(example(1) + 1, 1)
ARGUMENTS = [X, example(3), {n}, ITEMS, {{"a": SHARED}}, BOX]


def inputs(call):
    return ARGUMENTS
"""

PRELUDE = """\
COUNT = 0
LOG = []
TABLE = {"w": torch.ones(3)}


class Fault(Exception):
    pass
"""


@dataclasses.dataclass(frozen=True)
class Scope:
    """The names that are certainly bound here, by kind, and what a statement may do."""

    tensors: tuple[str, ...]
    ints: tuple[str, ...]
    writable: frozenset[str]
    functions: tuple[str, ...] = ()
    in_loop: bool = False
    may_return: bool = True
    depth: int = 0

    def deeper(self, **changes: Any) -> Scope:
        """The scope of a block within this one."""
        return dataclasses.replace(self, depth=self.depth + 1, **changes)


class _Writer:
    """Draws one program, line by line; each method writes a statement, or gives an expression."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.indent = 0
        self.names = 0
        self.budget = draw(st.integers(1, 25))

    # --- small things

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # --- expressions

    def number(self, s: Scope) -> str:
        return str(self.pick("1", "2", "0.5", *s.ints))

    def integer(self, s: Scope) -> str:
        name = self.pick(*s.ints)
        return str(
            self.pick("1", "0", "3", name, f"{name} + 1", f"{name} % 3", "len(items)", "COUNT % 4", "box.n", "n * 2")
        )

    def tensor(self, s: Scope, depth: int = 0) -> str:
        name = self.pick(*s.tensors)
        if depth > 1:
            return str(name)
        choices: list[Callable[[], str]] = [
            lambda: str(name),
            lambda: f"{name} + {self.number(s)}",
            lambda: f"({self.tensor(s, depth + 1)} - {self.tensor(s, depth + 1)})",
            lambda: f"torch.tanh({self.tensor(s, depth + 1)})",
            lambda: f"{name}.relu()",
            lambda: f"{name} * {self.number(s)}",
            lambda: f"torch.where({name} > 0, {self.pick(*s.tensors)}, -{name})",
            lambda: f"{name}[{self.pick('[2, 0, 1]', ':', '[0, 0, 1]')}]",
            lambda: "box.v",
            lambda: 'd["a"]',
            lambda: "items[0]",
            lambda: 'TABLE["w"]',
            lambda: f"torch.stack([{name}, {self.pick(*s.tensors)}]).sum(0)",
            lambda: f"sum([v for v in ({name}, {self.pick(*s.tensors)})])",
            lambda: f"(lambda v: v * {self.number(s)})({name})",
            lambda: f"max([{name}, {self.pick(*s.tensors)}], key=lambda v: {self.key('v')})",
        ]
        choices += [functools.partial(self.call, f, s, depth) for f in s.functions]
        return str(self.draw(st.sampled_from(choices))())

    def call(self, function: str, s: Scope, depth: int) -> str:
        return f"{function}({self.tensor(s, depth + 1)})"

    def key(self, v: str) -> str:
        return str(self.pick(f"{v}.dim()", f"{v}.sum().item()", f"{v}.shape[0]"))

    def condition(self, s: Scope) -> str:
        i = self.pick(*s.ints)
        return str(
            self.pick(
                f"{i} > 1",
                "True",
                f"{i} % 2 == 0",
                "len(items) < 4",
                '"b" in d',
                "torch.is_grad_enabled()",
                f"{self.pick(*s.tensors)}.sum() > 0",
                f"(y > x).any() and {i} < 3",
                f"not {i} or box.n == 2",
                f"{self.pick(*s.tensors)} is x",
                'hasattr(box, "extra")',
            )
        )

    # --- statements

    def block(self, s: Scope, most: int = 3) -> None:
        self.indent += 1
        before = len(self.lines)
        for _ in range(self.draw(st.integers(1, most))):
            if self.budget <= 0:
                break
            s = self.statement(s)
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= 1

    def statement(self, s: Scope) -> Scope:
        self.budget -= 1
        simple = [
            self.assign_tensor,
            self.assign_int,
            self.mutate,
            self.side_effect,
            self.graph_break,
            self.comprehension,
            self.jump,
        ]
        compound = [
            self.if_,
            self.for_,
            self.while_,
            self.try_,
            self.with_,
            self.function,
            self.klass,
            self.generator,
            self.match,
        ]
        kinds = simple + ([self.jump] * 2 if s.in_loop else []) + (compound if s.depth < 3 else [])
        return self.draw(st.sampled_from(kinds))(s) or s

    def assign_tensor(self, s: Scope) -> Scope | None:
        old = [v for v in s.tensors if v in s.writable]
        value = self.tensor(s)
        if old and self.chance():
            self.line(f"{self.pick(*old)} = {value}")
            return None
        name = self.fresh("t")
        self.line(f"{name} = {value}")
        return dataclasses.replace(s, tensors=(*s.tensors, name), writable=s.writable | {name})

    def assign_int(self, s: Scope) -> Scope | None:
        old = [v for v in s.ints if v in s.writable]
        value = self.integer(s)
        if old and self.chance():
            self.line(f"{self.pick(*old)} {self.pick('=', '+=')} {value}")
            return None
        name = self.fresh("k")
        self.line(f"{name} = {value}")
        return dataclasses.replace(s, ints=(*s.ints, name), writable=s.writable | {name})

    def mutate(self, s: Scope) -> None:
        v = self.pick(*s.tensors)
        w = self.pick(*s.tensors)
        self.line(
            self.pick(
                f"{v}.add_(1)",
                f"{v}.mul_({self.number(s)})",
                f"{v}[0] = {self.number(s)}",
                f"{v}[1:] = {w}[:2].clone()",
                f"{v}[{w} > 0] = 0.25",
                f"{v}.view(-1)[2] += 1",
                f"{v}.copy_({w})",
                "box.v += 1",
                'd["a"].sub_(0.5)',
            )
        )

    def side_effect(self, s: Scope) -> None:
        value = self.tensor(s)
        self.line(
            self.pick(
                f"items.append({value})",
                f'd["b"] = {value}',
                f"box.v = {value}",
                "box.n += 1",
                f"box.extra = [{value}, items]",
                f"LOG.append({self.integer(s)})",
                "COUNT += 1" if "COUNT" in s.writable else "LOG.append('c')",
                'd.pop("b", None)',
                "items.pop()",
                "items.insert(0, items[-1])",
                "d.update(c=items[0], a=x)",
                "items.reverse()",
                "del box.extra",
                f'TABLE["w"] = {value}',
                "items.sort(key=lambda v: v.sum().item())",
                "box.me = box",
            )
        )

    def graph_break(self, s: Scope) -> Scope | None:
        v = self.pick(*s.tensors)
        i = self.pick(*s.ints)
        kind = self.pick("print", "item", "graph_break", "print tensor", "tolist", "opaque")
        if kind == "item":
            name = self.fresh("k")
            self.line(f"{name} = int({v}.sum().item()) % 4")
            return dataclasses.replace(s, ints=(*s.ints, name), writable=s.writable | {name})
        texts = {
            "print": f'print("at", {i}, len(items))',
            "graph_break": "graph_break()",
            "print tensor": f"print({v})",
            "tolist": f"LOG.append({v}.tolist())",
            "opaque": f"opaque({v}, LOG)",
        }
        self.line(texts[kind])
        return None

    def comprehension(self, s: Scope) -> Scope:
        name = self.fresh("t")
        v = self.pick(*s.tensors)
        inner = self.pick("w + i", "w * i", f"{v} + i + w[0]", "(print('c', i), w - i)[1]", "w + w.sum().item() * i")
        form = self.pick(
            "sum([{e} for i in range(2)])",
            "torch.stack([{e} for i in range(3) if i != 1]).sum(0)",
            "sum({e} for i in (1, 2))",
            "{{i: {e} for i in range(2)}}[1]",
            "list(map(lambda i: {e}, [1, 2]))[0]",
            "next({e} for i in range(4) if i > 1)",
        )
        self.line(f"w = {v}")
        self.line(f"{name} = {form.format(e=inner)}")
        return dataclasses.replace(s, tensors=(*s.tensors, name), writable=s.writable | {name})

    def jump(self, s: Scope) -> None:
        choices = [
            "pass",
            f'assert {self.condition(s)}, "asserted"',
            'raise Fault("raised")',
            "LOG[100]",
            "items[0] @ torch.ones(4)",
        ]
        if s.in_loop:
            choices += ["continue", "break"] * 2
        if s.may_return:
            choices.append(f"return {self.tensor(s)}")
        text = self.pick(*choices)
        if text.startswith(("raise", "continue", "break", "return", "LOG[", "items[")):
            self.line(f"if {self.condition(s)}:")
            self.line(f"    {text}")
        else:
            self.line(text)

    def if_(self, s: Scope) -> None:
        self.line(f"if {self.condition(s)}:")
        self.block(s.deeper())
        if self.chance():
            self.line(f"elif {self.condition(s)}:")
            self.block(s.deeper(), 2)
        if self.chance():
            self.line("else:")
            self.block(s.deeper(), 2)

    def for_(self, s: Scope) -> None:
        i, v = self.fresh("i"), self.fresh("v")
        header, ints, tensors = self.pick(
            (f"for {i} in range(3):", (i,), ()),
            (f"for {v} in list(items):", (), (v,)),
            (f"for {i}, {v} in enumerate([x, y]):", (i,), (v,)),
            (f"for {i}, {v} in zip((2, 0, 1), items):", (i,), (v,)),
            (f"for {v} in d.copy().values():", (), (v,)),
            (f"for {v} in torch.stack([x, y]):", (), (v,)),
            (f"for {i} in iter([1, 2]):", (i,), ()),
        )
        self.line(header)
        writable = s.writable | set(ints) | set(tensors)
        self.block(s.deeper(ints=s.ints + ints, tensors=s.tensors + tensors, in_loop=True, writable=writable))
        if self.chance():
            self.line("else:")
            self.block(s.deeper(), 1)

    def while_(self, s: Scope) -> None:
        i = self.fresh("i")
        self.line(f"{i} = 0")
        extra = self.pick("", "", f" and {self.condition(s)}")
        self.line(f"while {i} < 3{extra}:")
        self.line(f"    {i} += 1")
        self.block(s.deeper(ints=(*s.ints, i), in_loop=True))
        if self.chance():
            self.line("else:")
            self.block(s.deeper(), 1)

    def try_(self, s: Scope) -> None:
        e = self.fresh("e")
        self.line("try:")
        self.block(s.deeper())
        kind = self.pick("except", "finally", "both", "else")
        if kind != "finally":
            self.line(f"except {self.pick('Exception', 'Fault', '(Fault, IndexError)')} as {e}:")
            self.line(f"    LOG.append(type({e}).__name__)")
            self.block(s.deeper(), 2)
            if self.pick(False, False, True):
                self.line(f"    raise {self.pick('', f'Fault(str({e}))', f'KeyError(1) from {e}')}".rstrip())
        if kind == "else":
            self.line("else:")
            self.block(s.deeper(), 1)
        if kind in ("finally", "both"):
            self.line("finally:")
            self.block(s.deeper(may_return=False, in_loop=False), 2)

    def with_(self, s: Scope) -> None:
        manager = self.pick(
            "torch.no_grad()",
            "Track(LOG)",
            "Track(LOG, (Fault, IndexError))",
            "scope(LOG, x)",
            "contextlib.suppress(Fault, IndexError)",
            "torch.set_grad_enabled(False), Track(LOG)",
            "contextlib.nullcontext()",
        )
        self.line(f"with {manager}:")
        self.block(s.deeper())

    def function(self, s: Scope) -> Scope:
        f, p, k = self.fresh("f"), self.fresh("p"), self.fresh("k")
        cell = self.pick(None, *[v for v in s.tensors if v in s.writable and v not in ("x", "y")])
        self.line(f"def {f}({p}, {k}={self.integer(s)}):")
        inner = {p, k}
        if cell is not None:
            self.line(f"    nonlocal {cell}")
            inner.add(cell)
        if self.chance():
            self.line("    global COUNT")
            inner.add("COUNT")
        inner_scope = s.deeper(
            tensors=(*s.tensors, p), ints=(*s.ints, k), writable=frozenset(inner), in_loop=False, may_return=True
        )
        self.block(inner_scope)
        self.line(f"    return {self.tensor(inner_scope)}")
        return dataclasses.replace(s, functions=(*s.functions, f))

    def klass(self, s: Scope) -> Scope:
        c, f = self.fresh("C"), self.fresh("t")
        base = self.pick("", "(Box)")
        self.line(f"class {c}{base}:")
        self.line("    def __init__(self, v):")
        if base:
            self.line("        super().__init__(v, 1)")
        if self.pick(False, True):
            self.line("        print('init')")
        self.line(f"        self.{f} = v + {self.number(s)}")
        method = self.pick("def run(self, o):", "def __add__(self, o):", "def __call__(self, o):")
        self.line(f"    {method}")
        self.indent += 1
        scope = s.deeper(tensors=(*s.tensors, "o"), writable=frozenset(("o",)), in_loop=False, may_return=True)
        self.block(scope, 2)
        self.line(f"    return self.{f} * o")
        self.indent -= 1
        name = self.fresh("t")
        call = {"run": "{}.run({})", "__add__": "{} + {}", "__call__": "{}({})"}[method.split()[1].split("(")[0]]
        self.line(f"{name} = {call.format(f'{c}({self.pick(*s.tensors)})', self.pick(*s.tensors))}")
        return dataclasses.replace(s, tensors=(*s.tensors, name), writable=s.writable | {name})

    def generator(self, s: Scope) -> Scope:
        g, p, v = self.fresh("g"), self.fresh("p"), self.fresh("v")
        self.line(f"def {g}({p}):")
        scope = s.deeper(tensors=(*s.tensors, p), writable=frozenset((p,)), in_loop=False, may_return=False)
        guarded = self.chance()
        if guarded:
            self.line("    try:")
            self.indent += 1
        self.line(f"    yield {p}")
        self.block(scope, 2)
        self.line(f"    yield {self.tensor(scope)}")
        if guarded:
            self.indent -= 1
            self.line("    finally:")
            self.line(f"        LOG.append('{g} done')")
        name = self.fresh("t")
        argument = self.pick(*s.tensors)
        if guarded or self.chance():  # an abandoned generator closes when CPython drops it: test_generators.py
            self.line(f"{name} = sum({g}({argument}))")
        else:
            self.line(f"{name} = x")
            self.line(f"for {v} in {g}({argument}):")
            self.line(f"    {name} = {name} + {v}")
            self.block(s.deeper(tensors=(*s.tensors, v, name), writable=s.writable | {name}, in_loop=True), 2)
        return dataclasses.replace(s, tensors=(*s.tensors, name), writable=s.writable | {name})

    def match(self, s: Scope) -> None:
        subject, cases = self.pick(
            (self.pick(*s.ints), ("0 | 1", "int(q) if q > 2")),
            ("[n, x]", ("[0, _]", "[q, torch.Tensor()] if q > 1")),
            ("d", ('{"b": q}', '{"a": q, **rest}')),
            ("box", ("Box(n=1)", "Box(v=q)")),
        )
        self.line(f"match {subject}:")
        self.indent += 1
        for case in cases:
            self.line(f"case {case}:")
            self.block(s.deeper(), 1)
        self.line("case _:")
        self.block(s.deeper(), 1)
        self.indent -= 1


@st.composite
def python_programs(draw: Callable[[Any], Any]) -> Program:
    """A whole program, called twice with the same arguments; a list among them may hold a leaf that requires grad."""
    source = draw(functions())
    grad = draw(st.booleans())
    footer = FOOTER.format(n=draw(st.sampled_from((2, 1))), more=", example(1, grad=True)" if grad else "")
    return Program(HEADER + source + footer)


@st.composite
def functions(draw: Callable[[Any], Any]) -> str:
    """Source text that defines ``program(x, y, n, items, d, box)``, and uses the names of ``HEADER``."""
    w = _Writer(draw)
    w.lines.append(PRELUDE)
    w.line("")
    w.line("def program(x, y, n, items, d, box):")
    w.line("    global COUNT")
    names = frozenset(("x", "y", "n", "COUNT"))
    scope = Scope(tensors=("x", "y"), ints=("n",), writable=names)
    w.indent = 1
    while w.budget > 0:
        scope = w.statement(scope)
    results = ", ".join((*scope.tensors, *scope.ints, "items", "d", "box.n"))
    w.line(f"return {results}")
    return "\n".join(w.lines) + "\n"
