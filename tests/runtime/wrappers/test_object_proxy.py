"""A proxy has the special methods that its original's class has, and no others."""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import functools
import gc
import inspect
import math
import operator
import pickle
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import jitney
from jitney.runtime.wrappers.object_proxy import NOT_FORWARDED

ADD = functools.partial(torch.add, alpha=2)

# What uses each special method, and so tells whether it is there and what it does; ``x`` has it, and answers "it".
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "__len__": len,
    "__bool__": bool,
    "__iter__": lambda x: list(iter(x)),
    "__next__": next,
    "__reversed__": lambda x: list(reversed(x)),
    "__contains__": lambda x: 3 in x,
    "__getitem__": lambda x: x[0],
    "__setitem__": lambda x: operator.setitem(x, 0, 1),
    "__delitem__": lambda x: operator.delitem(x, 0),
    "__enter__": lambda x: _entered(x),
    "__aenter__": lambda x: asyncio.run(_entered_async(x)),
    "__await__": lambda x: asyncio.run(_awaited(x)),
    "__aiter__": lambda x: asyncio.run(_gathered(x)),
    "__eq__": lambda x: x == 3,
    "__lt__": lambda x: x < 3,
    "__hash__": hash,
    "__str__": str,
    "__format__": lambda x: f"{x:>3}",
    "__bytes__": bytes,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
    "__round__": round,
    "__floor__": math.floor,
    "__abs__": abs,
    "__neg__": operator.neg,
    "__invert__": operator.invert,
    "__add__": lambda x: x + 1,
    "__radd__": lambda x: 1 + x,
    "__iadd__": lambda x: operator.iadd(x, 1),
    "__matmul__": lambda x: x @ 1,
    "__divmod__": lambda x: divmod(x, 1),
    "__pow__": lambda x: x**2,
    "__rpow__": lambda x: 2**x,
    "__fspath__": lambda x: __import__("os").fspath(x),
    "__length_hint__": operator.length_hint,
    "__instancecheck__": lambda x: isinstance(3, x),
}
ANSWERS: dict[str, Any] = {
    "__len__": 7,
    "__bool__": False,
    "__contains__": True,
    "__setitem__": None,
    "__delitem__": None,
    "__hash__": 5,
    "__bytes__": b"it",
    "__int__": 4,
    "__float__": 4.0,
    "__complex__": 4j,
    "__index__": 4,
    "__length_hint__": 9,
    "__instancecheck__": True,
}


def _entered(x: Any) -> Any:
    with x as found:
        return found


async def _entered_async(x: Any) -> Any:
    async with x as found:
        return found


async def _awaited(x: Any) -> Any:
    return await x


async def _gathered(x: Any) -> Any:
    return [item async for item in x]


def with_method(name: str, base: type) -> Any:
    """An instance of a class that has this special method, and what it needs to be used."""

    def method(self: Any, *args: Any) -> Any:
        return ANSWERS.get(name, "it")

    async def entering(self: Any, *args: Any) -> Any:
        return "it"

    async def each(self: Any) -> Any:
        yield "it"

    def awaiting(self: Any) -> Any:
        yield
        return "it"

    space: dict[str, Any] = {name: method}
    if name == "__enter__":
        space["__exit__"] = lambda self, *error: None
    elif name == "__aenter__":
        space |= {name: entering, "__aexit__": entering}
    elif name == "__getitem__":
        space[name] = lambda self, key: ["it"][key]
    elif name in ("__iter__", "__reversed__"):
        space[name] = lambda self: iter(["it"])
    elif name == "__aiter__":
        space[name] = each
    elif name == "__await__":
        space[name] = awaiting
    return type(f"With{name}", (base,), space)()


class Callee:
    """An object that is called."""

    def __call__(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Scale it."""
        return x * scale


def outcome(use: Callable[[Any], Any], value: Any) -> Any:
    try:
        return use(value)
    except (TypeError, AttributeError) as error:
        return type(error)


BASES: dict[str, Callable[[], type]] = {"module": lambda: nn.ReLU, "callable": lambda: Callee}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_special_method_of_the_class_is_the_proxys_and_others_are_not(name: str, base: str) -> None:
    original = with_method(name, BASES[base]())
    compiled = jitney.compile(original, backend="eager")
    wanted = OPERATORS[name](original)
    assert OPERATORS[name](compiled) == wanted
    for other, use in OPERATORS.items():
        if other in ("__hash__", "__str__", "__format__") and name != other:
            continue  # every object has these, of its own
        assert outcome(use, compiled) == outcome(use, original), other
    for protocol_name in sorted({*collections.abc.__all__} - {"ByteString"}):  # which warns, from Python 3.12 on
        protocol = getattr(collections.abc, protocol_name)
        if isinstance(protocol, type):
            assert isinstance(compiled, protocol) == isinstance(original, protocol), protocol


PLAIN: dict[str, Any] = {
    "module": nn.Linear(2, 2),
    "container": nn.Sequential(nn.ReLU()),
    "list": nn.ModuleList([nn.ReLU()]),
    "function": lambda x: x + 1,
    "partial": ADD,
    "builtin": torch.sin,
    "class": nn.ReLU,
    "object": Callee(),
    "bound method of C": torch.ones(2).add,
}


@pytest.mark.parametrize("name", PLAIN)
def test_the_class_of_a_proxy_has_no_special_methods_besides(name: str) -> None:
    original = PLAIN[name]
    compiled = jitney.compile(original, backend="eager")
    for method in [m for m in {*dir(type(compiled)), *dir(type(original)), *OPERATORS} if m[:2] == "__" == m[-2:]]:
        if method in NOT_FORWARDED:
            continue
        has = getattr(type(original), method, None) is not None
        if callable(getattr(type(compiled), method, None)) or callable(getattr(type(original), method, None)):
            assert (getattr(type(compiled), method, None) is not None) == has, method


def test_a_module_is_true_as_lightning_asks() -> None:
    assert jitney.compile(nn.Linear(2, 2)) and not jitney.compile(nn.ModuleList())
    assert not isinstance(jitney.compile(nn.Linear(2, 2)), collections.abc.Sized)


def test_what_a_class_forbids_is_forbidden() -> None:
    class Equal(nn.Module):
        __iter__ = None

        def __eq__(self, other: object) -> bool:
            return True

        def __getitem__(self, key: int) -> int:
            return key

    compiled = jitney.compile(Equal(), backend="eager")
    assert compiled == 3 and compiled[4] == 4
    for use in (hash, iter):
        with pytest.raises(TypeError):
            use(compiled)


def test_two_proxies_are_compared_as_their_originals() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

        def __call__(self) -> None:
            """Nothing."""

    a, b = (jitney.compile(Named(n), backend="eager") for n in "ab")
    assert a == a and a == Named("a") and a != b and {a: 1}[Named("a")] == 1
    same = jitney.compile(torch.sin, backend="eager")
    assert same == torch.sin and hash(same) == hash(torch.sin)


def test_a_method_that_returns_the_object_returns_the_proxy() -> None:
    class Model(nn.ReLU):
        def freeze(self) -> Model:
            return self

        def __enter__(self) -> Model:
            return self

        def __exit__(self, *error: object) -> None:
            """Nothing."""

        def __iadd__(self, other: int) -> Model:
            return self

    compiled = jitney.compile(Model(), backend="eager")
    assert compiled.freeze() is compiled and compiled.eval() is compiled and compiled.to("cpu") is compiled
    with compiled as entered:
        assert entered is compiled
    before = compiled
    compiled += 1
    assert compiled is before


def test_a_descriptor_binds_the_compiled_object() -> None:
    class Method:
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else functools.partial(self, instance)

        def __call__(self, instance: Any, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    graphs: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    class Model:
        step = jitney.compile(Method(), backend=counting)

    assert torch.equal(Model().step(torch.zeros(2)), torch.ones(2)) and len(graphs) == 1


def test_a_class_of_proxies_lives_no_longer_than_they_do() -> None:
    class Model(nn.ReLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    compiled = jitney.compile(Model(), backend="eager")
    compiled(torch.zeros(2))
    assert type(compiled) is type(jitney.compile(Model(), backend="eager"))
    classes = [weakref.ref(Model), weakref.ref(type(compiled))]
    del compiled, Model
    gc.collect()
    assert [c() for c in classes] == [None, None]


# --- what is asked about an object ----------------------------------------------------------------------------------


HELP = 25


def described(value: Any) -> list[Any]:
    """What inspect, typing, pydoc and functools say about a callable."""
    told: list[Any] = []
    asked: list[Callable[[Any], Any]] = [
        inspect.signature, inspect.getfullargspec, inspect.getsource, inspect.getsourcefile, inspect.getdoc,
        inspect.getmodule, inspect.isfunction, inspect.ismethod, inspect.isroutine, inspect.isbuiltin, inspect.isclass,
        inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction, typing.get_type_hints,
        lambda v: inspect.signature(functools.wraps(v)(lambda *a: None)), lambda v: v.__name__,
        lambda v: v.__qualname__, lambda v: v.__module__, lambda v: v.__doc__, lambda v: v.__defaults__,
        lambda v: v.__code__, lambda v: v.__self__, lambda v: v.func, lambda v: inspect.signature(v.__call__),
        lambda v: __import__("pydoc").plain(__import__("pydoc").render_doc(v)), callable, dir,
        lambda v: inspect.unwrap(getattr(v, "__func__", v)) is v,
    ]  # fmt: skip
    for ask in asked:
        try:
            told.append(ask(value))
        except (TypeError, ValueError, AttributeError, OSError, NameError) as error:
            told.append(type(error))
    return told


class Model(nn.Module):
    """A model."""

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        """Scale it."""
        return x * scale

    def generate(self, x: torch.Tensor, steps: int = 2) -> torch.Tensor:
        """Call it again and again."""
        for _ in range(steps):
            x = self(x)
        return x

    async def later(self, x: torch.Tensor) -> torch.Tensor:
        """Call it once."""
        return typing.cast(torch.Tensor, self(x))


def plain(x: torch.Tensor, y: int = 2, *rest: int, flag: bool = False) -> torch.Tensor:
    """What it does."""
    return x * y


@functools.wraps(plain)
def decorated(*args: Any, **kwargs: Any) -> torch.Tensor:
    return plain(*args, **kwargs)


async def suspended(x: torch.Tensor) -> torch.Tensor:
    return x


MODEL = Model()
ASKED: dict[str, tuple[Any, Callable[[], Any]]] = {
    "function": (plain, lambda: jitney.compile(plain)),
    "decorated function": (decorated, lambda: jitney.compile(decorated)),
    "coroutine function": (suspended, lambda: jitney.compile(suspended)),
    "bound method": (MODEL.generate, lambda: jitney.compile(MODEL.generate)),
    "method of a compiled module": (MODEL.generate, lambda: jitney.compile(MODEL).generate),
    "forward of a compiled module": (MODEL.forward, lambda: jitney.compile(MODEL).forward),
    "coroutine of a compiled module": (MODEL.later, lambda: jitney.compile(MODEL).later),
    "torch's method of a compiled module": (MODEL.eval, lambda: jitney.compile(MODEL).eval),
    "module": (MODEL, lambda: jitney.compile(MODEL)),
    "object": (Callee(), lambda: jitney.compile(Callee())),
    "partial": (ADD, lambda: jitney.compile(ADD)),
    "builtin": (torch.sin, lambda: jitney.compile(torch.sin)),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_said_about_it_is_what_is_said_of_the_original(name: str) -> None:
    original, compiled = ASKED[name]
    found, wanted = described(compiled()), described(original)
    unwrapped = wanted.pop()
    assert found.pop() is (unwrapped if name in ("module", "object", "partial", "builtin") else False)
    if not inspect.isfunction(getattr(original, "__func__", original)):
        found[HELP] = wanted[HELP]  # which asks the class itself about an instance
    assert found == wanted


@jitney.compile(backend="eager")
def at_top_level(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies_are_compiled_as_their_originals_are(copied: Callable[[Any], Any]) -> None:
    x = torch.ones(2, 2)
    module = jitney.compile(nn.Sequential(nn.Linear(2, 2)), backend="aot_eager", options={}, dynamic=False)
    for value in (module, jitney.compile(plain, backend="aot_eager"), jitney.compile(ADD, backend="aot_eager")):
        made = copied(value)
        session = made._jitney_session
        assert session.backend.name == "aot_eager" and session.dynamic is value._jitney_session.dynamic
        torch.testing.assert_close(
            made(x, x) if value.__class__ is type(ADD) else made(x),
            value(x, x) if value.__class__ is type(ADD) else value(x),
        )
    assert copied(at_top_level) is at_top_level
    assert copied(module) is not module and copied(module)[0] is not None


class Scale:
    """A callable object with a state."""

    def __init__(self) -> None:
        self.by = [1.0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by[-1]


def test_a_deep_copy_of_a_compiled_object_has_a_state_of_its_own() -> None:
    compiled = jitney.compile(Scale(), backend="eager")
    shallow, deep = copy.copy(compiled), copy.deepcopy(compiled)
    deep.by.append(5.0)
    shallow.extra = True
    x = torch.ones(1)
    assert (compiled(x).item(), shallow(x).item(), deep(x).item()) == (1.0, 1.0, 5.0)
    assert not hasattr(compiled, "extra") and shallow.by is compiled.by


def test_attributes_are_the_originals_whatever_their_names() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x

    compiled = jitney.compile(fn, backend="eager")
    compiled.calls = 3
    assert fn.calls == 3 and compiled.__dict__ is fn.__dict__  # type: ignore[attr-defined]
    wrapper = functools.wraps(compiled)(lambda x: compiled(x))
    assert not any("jitney" in name for name in vars(wrapper)) and wrapper.calls == 3
    held = jitney.compile(ADD, backend="eager")
    assert held.func is torch.add and held.keywords == {"alpha": 2} and isinstance(held, functools.partial)
