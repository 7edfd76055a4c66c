"""Names and texts of the program that would be code if generated code took them as they are.

    python tests/faults/hostile_names.py --times 500 --seed 7

Each program has a hostile text in one place: a name of a parameter, local variable, global, attribute, function, class,
file, submodule or parameter of a module, a key, a docstring, a constant. Compiled, it has to equal eager, at the first
call and, taken from the cache on disk, in what is as good as another process; or to be an error of jitney's. The texts
are drawn from quotes, backslashes, line ends, NUL, braces, lone surrogates, keywords, names that generated code has for
itself, names that Python's parser reads as another name, and calls of a function that must never be called.
"""

from __future__ import annotations

import argparse
import builtins
import itertools
import random
import sys
import tempfile
import types
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import jitney
from jitney.errors import JitneyError

# What would be called if a text were code.
TRAP = "jitney_trap"
FRAGMENTS = [
    *("'", '"', "'''", '"""', "\\", "\\\\", "\n", "\r", "\r\n", "\t", "\0", "\x0c", "\x85", "\u2028", "\ufeff", " "),
    *(
        "{",
        "}",
        "{0}",
        "{x}",
        "%s",
        "%",
        "\\N{DIGIT ONE}",
        "\\x41",
        "\\u0041",
        "#",
        ";",
        ":",
        ",",
        "=",
        "(",
        ")",
        "[",
        "]",
    ),
    *("\ud800", "\udcff", "\U0001f600", "é", "e\u0301", "\u202e", "ﬁ", "K", "ª", "x²", "ſ", "𝐱"),
    *(
        "class",
        "None",
        "True",
        "__debug__",
        "lambda",
        "import os",
        "self",
        "print",
        "a b",
        "a.b",
        "1a",
        "-",
        "@",
        "$",
        "`",
    ),
    *(
        "_graph",
        "_b",
        "_c1",
        "_o0",
        "_entry",
        "_held",
        "_failed",
        "_state",
        "_tensors",
        "_at1",
        "_type",
        "_k",
        "_x",
        "run",
    ),
    *(
        "inputs",
        "forward",
        "bind",
        "locals",
        "i32",
        "define",
        "!0",
        "L['x']",
        "__class__",
        "__dict__",
        "_error",
        "MISS",
    ),
    f"{TRAP}()",
    f"'+{TRAP}()+'",
    f'"); {TRAP}(); ("',
    f"\n    {TRAP}()\n",
    f"\n{TRAP}()\n#",
    f"x={TRAP}()",
    f"y={TRAP}()",
    f"y={TRAP}(), z",
    f"*y, z={TRAP}()",
    f"\\\n{TRAP}()",
]


def scaled(x: Any, k: Any) -> Any:
    """What all programs compute."""
    return (x * k).relu() + 1


def plain_code(function: Any, **changes: Any) -> Any:
    """The function with another code object."""
    function.__code__ = function.__code__.replace(**changes)
    return function


def swapped(names: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    """Names, one of which is another."""
    return tuple(new if name == old else name for name in names)


def decoy(text: str) -> str:
    """The name that Python's parser makes of a text."""
    return unicodedata.normalize("NFKC", text)


# ---------------------------------------------------------------------- programs of a text: a function, its arguments

Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def parameter(text: str) -> Program:
    """A positional parameter."""

    def fn(x, NAME):  # type: ignore[no-untyped-def]  # noqa: N803
        return (x * NAME).relu() + 1

    names = swapped(fn.__code__.co_varnames, "NAME", text)
    return plain_code(fn, co_varnames=names), (torch.ones(3), torch.full((3,), 2.0)), {}


def keyword(text: str) -> Program:
    """A parameter that is given by name, with a default."""

    def fn(x, *, NAME=3.0):  # type: ignore[no-untyped-def]  # noqa: N803
        return (x * NAME).relu() + 1

    names = swapped(fn.__code__.co_varnames, "NAME", text)
    plain_code(fn, co_varnames=names).__kwdefaults__ = {text: 3.0}
    return fn, (torch.ones(3),), {text: torch.full((3,), 2.0)}


def keywords(text: str) -> Program:
    """A key of ``**kwargs``."""

    def fn(x, **rest):  # type: ignore[no-untyped-def]
        return {key: x * value for key, value in rest.items()}

    given = {text: torch.full((3,), 2.0)}
    if text == "x":
        given = {}
    return fn, (torch.ones(3),), given


def local(text: str) -> Program:
    """A local variable, alive over a graph break."""

    def fn(x):  # type: ignore[no-untyped-def]
        NAME = x + 1  # noqa: N806
        print(end="")
        return NAME * 2

    return plain_code(fn, co_varnames=swapped(fn.__code__.co_varnames, "NAME", text)), (torch.ones(3),), {}


def free(text: str) -> Program:
    """A variable of the function around, which is written, too."""

    def outer():  # type: ignore[no-untyped-def]
        NAME = torch.ones(3)  # noqa: N806

        def fn(x):  # type: ignore[no-untyped-def]
            nonlocal NAME
            NAME = NAME + x
            return NAME * 2

        return fn

    fn: Any = outer()  # type: ignore[no-untyped-call]
    return plain_code(fn, co_freevars=swapped(fn.__code__.co_freevars, "NAME", text)), (torch.ones(3),), {}


def a_global(text: str) -> Program:
    """A global, read and written."""

    def fn(x):  # type: ignore[no-untyped-def]
        global NAME  # noqa: PLW0603
        NAME = NAME + 1
        return x * NAME

    space = {"__builtins__": builtins, "__name__": "hostile", decoy(text): torch.zeros(3), text: torch.full((3,), 2.0)}
    code = fn.__code__.replace(co_names=swapped(fn.__code__.co_names, "NAME", text))
    made = types.FunctionType(code, space, "fn")
    return made, (torch.ones(3),), {}


def attribute(text: str) -> Program:
    """An attribute, read and written, beside the one that Python's parser would make of its name."""

    class Box:
        pass

    box = Box()
    box.__dict__[decoy(text)] = 5.0
    box.__dict__[text] = 2.0

    def fn(x, box):  # type: ignore[no-untyped-def]
        y = x * getattr(box, text)
        setattr(box, text, y)
        return y, vars(box)

    return fn, (torch.ones(3), box), {}


def tensor_attribute(text: str) -> Program:
    """An attribute that holds a tensor."""

    class Box:
        pass

    box = Box()
    box.__dict__[decoy(text)] = torch.full((3,), 5.0)
    box.__dict__[text] = torch.full((3,), 2.0)
    return (lambda x, box: scaled(x, getattr(box, text))), (torch.ones(3), box), {}


def of_tensor(text: str) -> Program:
    """An attribute of a tensor."""
    x = torch.ones(3)
    x.__dict__[decoy(text)] = 5.0
    x.__dict__[text] = 2.0
    return (lambda x: scaled(x, getattr(x, text))), (x,), {}


def class_attribute(text: str) -> Program:
    """An attribute of a class."""
    made = type("Box", (), {decoy(text): 5.0, text: 2.0})
    return (lambda x, box: scaled(x, getattr(box, text))), (torch.ones(3), made()), {}


def class_name(text: str) -> Program:
    """The name of a class: of an object that is read, and of one that is made."""
    made: Any = type(text, (), {"k": 2.0, "__module__": text, "__qualname__": text})

    def fn(x, box):  # type: ignore[no-untyped-def]
        new = made()
        new.y = x * box.k
        print(end="")
        return new.y + 1, type(new).__name__

    return fn, (torch.ones(3), made()), {}


def function_name(text: str) -> Program:
    """The names of a function and of its file."""

    def fn(x):  # type: ignore[no-untyped-def]
        y = scaled(x, 2)
        print(end="")
        return y.exp()

    fn.__name__ = fn.__qualname__ = fn.__module__ = fn.__doc__ = text
    return plain_code(fn, co_name=text, co_qualname=text), (torch.ones(3, requires_grad=True),), {}


def file_name(text: str) -> Program:
    """The name of a file."""

    def fn(x):  # type: ignore[no-untyped-def]
        return scaled(x, 2).softmax(0)

    return plain_code(fn, co_filename=text), (torch.ones(3, requires_grad=True),), {}


class Net(nn.Module):
    """Its only submodule, parameter and buffer have names that are given."""

    def __init__(self, text: str) -> None:
        super().__init__()
        name = text.replace(".", "_") or "_"
        other = decoy(name).replace(".", "_")
        self.inner = nn.Module()
        for module, names in ((self, (other, name)), (self.inner, (other, name))):
            for at, each in enumerate(dict.fromkeys(names)):
                if not hasattr(module, each):
                    module.register_parameter(each, nn.Parameter(torch.full((3,), 2.0 + at)))
        self.name = name
        linear = nn.Linear(3, 3)
        nn.init.constant_(linear.weight, 0.5)
        nn.init.constant_(linear.bias, 0.25)
        self.layers = nn.ModuleDict()
        self.layers._modules[name] = linear
        self.inner.register_buffer(f"{name}!", torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        """Every one of them."""
        x = x * self._parameters.get(self.name, 1) + getattr(self.inner, f"{self.name}!")
        return self.layers[self.name](x) * self.inner._parameters.get(self.name, 1)


def module(text: str) -> Program:
    """Names within a module."""
    made = Net(text)
    made.__class__ = type(text, (Net,), {})
    return made, (torch.ones(3),), {}


def key(text: str) -> Program:
    """A key of a dictionary, read, written and returned."""

    def fn(x, d):  # type: ignore[no-untyped-def]
        d[text + "!"] = x + 1
        return {text: x * d[text], "all": d, "first": next(iter(d))}

    return fn, (torch.ones(3), {decoy(text): 5.0, text: 2.0}), {}


def constant(text: str) -> Program:
    """Texts that are returned, formatted, compared, or live over a break."""

    def fn(x, given):  # type: ignore[no-untyped-def]
        y = x * (2 if given == text else 3)
        held = f"{text}{{}}{y.shape[0]}"
        parts = [text, (given,), {given: text}]
        print(end="")
        return y + len(held), held, parts, given + "!"

    return fn, (torch.ones(3), text[:]), {}


def default(text: str) -> Program:
    """Texts as defaults, and in what is raised and caught."""

    def fn(x, given=text, *, more=(text,)):  # type: ignore[no-untyped-def]
        try:
            raise ValueError(given)
        except ValueError as error:
            return scaled(x, 2), str(error), more, repr(given)

    return fn, (torch.ones(3),), {}


def raised(text: str) -> Program:
    """The text of an error that the caller gets."""

    def fn(x):  # type: ignore[no-untyped-def]
        y = scaled(x, 2)
        if y.shape[0] == 3:
            raise ValueError(text)
        return y

    return fn, (torch.ones(3),), {}


PROGRAMS: list[Callable[[str], Program]] = [
    *(parameter, keyword, keywords, local, free, a_global, attribute, tensor_attribute, of_tensor, class_attribute),
    *(class_name, function_name, file_name, module, key, constant, default, raised),
]
# Where a text of ten million characters makes sense.
LONG = (keywords, attribute, key, constant, default, raised, function_name, class_name)


# ---------------------------------------------------------------------- comparing


def same(ours: Any, theirs: Any) -> bool:
    """Are two results equal, with their types, keys and order?"""
    if isinstance(theirs, torch.Tensor):
        return isinstance(ours, torch.Tensor) and torch.allclose(ours, theirs) and ours.dtype == theirs.dtype
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, BaseException):
        return ours.args == theirs.args
    return bool(ours == theirs)


def outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call returns, or raises."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return error


def problem(make: Callable[[str], Program], text: str, backend: str) -> str:
    """What is wrong with a program; empty if nothing is."""
    sprung: list[str] = []
    setattr(builtins, TRAP, lambda *args: sprung.append(text) or 0)
    try:
        theirs = outcome(*make(text))
    except Exception:  # Python itself, or torch, has no such name
        return ""
    for turn in ("first call", "from disk"):
        jitney.reset()
        fn, args, kwargs = make(text)
        compiled = outcome(jitney.compile, (fn,), {"backend": backend})
        ours = compiled if isinstance(compiled, Exception) else outcome(compiled, args, kwargs)
        where = f"{make.__name__} {text[:80]!r} on {backend}, {turn}"
        if sprung:
            return f"{where}: the text was run"
        if not isinstance(ours, JitneyError) and not same(ours, theirs):
            return f"{where}: {ours!r:.300} is not {theirs!r:.200}"
    return ""


def texts(times: int, draw: random.Random) -> Iterator[tuple[Callable[[str], Program], str]]:
    """Each fragment in each place, then ``times`` that are drawn."""
    yield from itertools.product(PROGRAMS, FRAGMENTS)
    for _ in range(times):
        drawn = "".join(draw.choices(FRAGMENTS, k=draw.randint(2, 5)))
        yield draw.choice(PROGRAMS), drawn


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000, help="how many texts are drawn (%(default)s)")
    parser.add_argument("--every", type=int, default=1, help="of all programs, each so many-th (%(default)s)")
    parser.add_argument("--long", type=int, default=10_000_000, help="characters of the longest text (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    draw = random.Random(options.seed)
    faults, tried = list[str](), 0
    backends = itertools.cycle(["eager", "aot_eager", "llvm_cpu"])
    cases = [*itertools.islice(texts(options.times, draw), 0, None, options.every)]
    cases += [(make, "x'\n" * (options.long // 3)) for make in LONG if options.long]
    with tempfile.TemporaryDirectory() as folder, jitney.config.patch(cache=True, cache_dir=folder):
        for make, text in cases:
            if found := problem(make, text, next(backends)):
                faults.append(found)
            tried += 1
    lines = [line.encode("utf-8", "backslashreplace").decode() for line in faults]
    print(f"{tried} programs, seed {options.seed}: {len(faults)} faults", *lines, sep="\n")
    sys.stdout.flush()
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
