"""A frame on disk is not used where anything that it took for granted is otherwise."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cache.again import begin, run
from torch import nn

import jitney
from jitney.backends import registry
from jitney.cache import key
from jitney.guards.reentry import MONITORED
from jitney.runtime import frame_cache
from jitney.torch_compat import torch_private

# before -> after: what the second run has edited
EDITS = {
    "the function": (
        "def fn(x): return x + 1",
        "def fn(x): return x + 2",
    ),
    "a callee": (
        "def inner(x): return x + 1\ndef fn(x): return inner(x)",
        "def inner(x): return x - 1\ndef fn(x): return inner(x)",
    ),
    "a global constant": (
        "K = 1\ndef fn(x): return x + K",
        "K = 2\ndef fn(x): return x + K",
    ),
    "a constant that is equal and of another class": (
        "K = 1\ndef fn(x): return x // K",
        "K = 1.0\ndef fn(x): return x // K",
    ),
    "the sign of a zero": (
        "K = 0.0\ndef fn(x): return torch.copysign(x, torch.tensor(K)) + torch.atan2(x * 0, torch.full_like(x, K))",
        "K = -0.0\ndef fn(x): return torch.copysign(x, torch.tensor(K)) + torch.atan2(x * 0, torch.full_like(x, K))",
    ),
    "what a closure holds": (
        "def make(n):\n    def fn(x): return x + n\n    return fn\nfn = make(1)",
        "def make(n):\n    def fn(x): return x + n\n    return fn\nfn = make(2)",
    ),
    "which function a closure holds": (
        "def make(f):\n    def fn(x): return f(x)\n    return fn\nfn = make(lambda x: x + 1)",
        "def make(f):\n    def fn(x): return f(x)\n    return fn\nfn = make(lambda x: x + 2)",
    ),
    "the order of a class's annotations": (
        "class C:\n    a: int = 1\n    b: int = 2\n"
        "def fn(x):\n    for n in C.__annotations__: x = x * 2 + getattr(C, n)\n    return x",
        "class C:\n    b: int = 2\n    a: int = 1\n"
        "def fn(x):\n    for n in C.__annotations__: x = x * 2 + getattr(C, n)\n    return x",
    ),
    "what a class's annotation says": (
        "import typing\nclass C:\n    a: typing.List[int]\n"
        "def fn(x): return x * (2 if 'int' in str(typing.get_type_hints(C)['a']) else 3)",
        "import typing\nclass C:\n    a: typing.List[str]\n"
        "def fn(x): return x * (2 if 'int' in str(typing.get_type_hints(C)['a']) else 3)",
    ),
    "an attribute that a tensor has instead of its class": (
        "class W(nn.Parameter): scale = 1.0\nw = W(torch.ones(3))\ndef fn(x): return x * w.scale",
        "class W(nn.Parameter): scale = 1.0\nw = W(torch.ones(3))\nw.scale = 3.0\ndef fn(x): return x * w.scale",
    ),
    "the name of an argument's class": (
        "class C: pass\nC.__name__ = 'one'\nc = C()\ndef fn(x): return x * len(type(c).__name__)",
        "class C: pass\nC.__name__ = 'three'\nc = C()\ndef fn(x): return x * len(type(c).__name__)",
    ),
    "a union of classes": (
        "U = int | str\ndef fn(x): return x * (2 if isinstance(1, U) else 3)",
        "U = float | str\ndef fn(x): return x * (2 if isinstance(1, U) else 3)",
    ),
    "a union of typing's": (
        "import typing\nU = typing.Optional[int]\ndef fn(x): return x * (2 if isinstance(1, U) else 3)",
        "import typing\nU = typing.Optional[str]\ndef fn(x): return x * (2 if isinstance(1, U) else 3)",
    ),
    "an alias that is a key": (
        "U = list[int]\nD = {list[int]: 2, list[str]: 3}\ndef fn(x): return x * D[U]",
        "U = list[str]\nD = {list[int]: 2, list[str]: 3}\ndef fn(x): return x * D[U]",
    ),
    "a callable that C code calls": (
        "import operator\nG = operator.itemgetter(0)\ndef fn(x): return x * sum(map(G, [(2, 5)]))",
        "import operator\nG = operator.itemgetter(1)\ndef fn(x): return x * sum(map(G, [(2, 5)]))",
    ),
    "a default": (
        "def fn(x, k=1): return x + k",
        "def fn(x, k=2): return x + k",
    ),
    "a callee's default": (
        "def inner(x, k=1): return x + k\ndef fn(x): return inner(x)",
        "def inner(x, k=2): return x + k\ndef fn(x): return inner(x)",
    ),
    "a callee's keyword default": (
        "def inner(x, *, k=1): return x + k\ndef fn(x): return inner(x)",
        "def inner(x, *, k=2): return x + k\ndef fn(x): return inner(x)",
    ),
    "a method": (
        "class C:\n    def f(self, x): return x + 1\nc = C()\ndef fn(x): return c.f(x)",
        "class C:\n    def f(self, x): return x + 2\nc = C()\ndef fn(x): return c.f(x)",
    ),
    "a static method": (
        "class C:\n    @staticmethod\n    def f(x): return x + 1\ndef fn(x): return C.f(x)",
        "class C:\n    @staticmethod\n    def f(x): return x + 2\ndef fn(x): return C.f(x)",
    ),
    "a property": (
        "class C:\n    @property\n    def k(self): return 1\nc = C()\ndef fn(x): return x + c.k",
        "class C:\n    @property\n    def k(self): return 2\nc = C()\ndef fn(x): return x + c.k",
    ),
    "a cached property": (
        "import functools\nclass C:\n    @functools.cached_property\n    def k(self): return 1\n"
        "def fn(x): return x + C().k",
        "import functools\nclass C:\n    @functools.cached_property\n    def k(self): return 2\n"
        "def fn(x): return x + C().k",
    ),
    "a class attribute": (
        "class C:\n    k = 1\nc = C()\ndef fn(x): return x + c.k",
        "class C:\n    k = 2\nc = C()\ndef fn(x): return x + c.k",
    ),
    "an attribute": (
        "class C: pass\nc = C()\nc.k = 1\ndef fn(x): return x + c.k",
        "class C: pass\nc = C()\nc.k = 2\ndef fn(x): return x + c.k",
    ),
    "an attribute that hides the class's": (
        "class C:\n    k = 1\nc = C()\ndef fn(x): return x + c.k",
        "class C:\n    k = 1\nc = C()\nc.k = 2\ndef fn(x): return x + c.k",
    ),
    "a base class": (
        "class A: pass\nclass B(A): pass\nb = B()\ndef fn(x): return x + (1 if isinstance(b, A) else 2)",
        "class A: pass\nclass B: pass\nb = B()\ndef fn(x): return x + (1 if isinstance(b, A) else 2)",
    ),
    "a base class's method": (
        "class A:\n    def f(self): return 1\nclass B(A): pass\nb = B()\ndef fn(x): return x + b.f()",
        "class A:\n    def f(self): return 2\nclass B(A): pass\nb = B()\ndef fn(x): return x + b.f()",
    ),
    "a method that hides a base class's": (
        "class A:\n    def f(self): return 1\nclass B(A): pass\nb = B()\ndef fn(x): return x + b.f()",
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return 2\n"
        "b = B()\ndef fn(x): return x + b.f()",
    ),
    "a special method": (
        "class C:\n    def __len__(self): return 1\nc = C()\ndef fn(x): return x + len(c)",
        "class C:\n    def __len__(self): return 2\nc = C()\ndef fn(x): return x + len(c)",
    ),
    "a special method that was not there": (
        "class C: pass\nc = C()\ndef fn(x): return x + (1 if c else 2)",
        "class C:\n    def __bool__(self): return False\nc = C()\ndef fn(x): return x + (1 if c else 2)",
    ),
    "a class that was registered with an abstract one": (
        "import collections.abc as a\nclass C: pass\n"
        "c = C()\ndef fn(x): return x + (1 if isinstance(c, a.Sized) else 2)",
        "import collections.abc as a\nclass C: pass\na.Sized.register(C)\n"
        "c = C()\ndef fn(x): return x + (1 if isinstance(c, a.Sized) else 2)",
    ),
    "a subclass of an abstract class": (
        "import abc\nclass B(abc.ABC): pass\nclass C: pass\n"
        "def fn(x): return x + (1 if issubclass(C, (int, B)) else 2)",
        "import abc\nclass B(abc.ABC): pass\nclass C: pass\nB.register(C)\n"
        "def fn(x): return x + (1 if issubclass(C, (int, B)) else 2)",
    ),
    "a builtin that was registered": (
        "import abc\nclass B(abc.ABC): pass\ndef fn(x): return x + (1 if isinstance(3, B | str) else 2)",
        "import abc\nclass B(abc.ABC): pass\nB.register(int)\n"
        "def fn(x): return x + (1 if isinstance(3, B | str) else 2)",
    ),
    "a pattern": (
        "import collections.abc as a\nclass C: pass\nc = C()\n"
        "def fn(x):\n    match c:\n        case [*_]: return x + 1\n    return x + 2",
        "import collections.abc as a\nclass C:\n    def __len__(self): return 0\na.Sequence.register(C)\nc = C()\n"
        "def fn(x):\n    match c:\n        case [*_]: return x + 1\n    return x + 2",
    ),
    "a function's own attributes": (
        "def inner(x): return x\ninner.k = 1\ndef fn(x): return x + inner.k",
        "def inner(x): return x\ninner.k = 2\ndef fn(x): return x + inner.k",
    ),
    "the signature of a function": (
        "import inspect\ndef inner(a): pass\ndef fn(x): return x + len(inspect.signature(inner).parameters)",
        "import inspect\ndef inner(a, b): pass\ndef fn(x): return x + len(inspect.signature(inner).parameters)",
    ),
    "the fields of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: int = 1\nd = D()\n"
        "def fn(x): return x + len(dataclasses.fields(d))",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: int = 1\n    b: int = 2\nd = D()\n"
        "def fn(x): return x + len(dataclasses.fields(d))",
    ),
    "the environment": (
        "import os\nos.environ['JT_X'] = '1'\ndef fn(x): return x + int(os.environ.get('JT_X', '0'))",
        "import os\nos.environ['JT_X'] = '2'\ndef fn(x): return x + int(os.environ.get('JT_X', '0'))",
    ),
    "a metaclass": (
        "class M(type):\n    def k(cls): return 1\nclass C(metaclass=M): pass\ndef fn(x): return x + C.k()",
        "class M(type):\n    def k(cls): return 2\nclass C(metaclass=M): pass\ndef fn(x): return x + C.k()",
    ),
    "slots": (
        "class C:\n    __slots__ = ('k',)\nc = C()\nc.k = 1\ndef fn(x): return x + c.k",
        "class C:\n    __slots__ = ('k',)\nc = C()\nc.k = 2\ndef fn(x): return x + c.k",
    ),
    "the item of a list": (
        "L = [1, 2]\ndef fn(x): return x + L[1]",
        "L = [1, 3]\ndef fn(x): return x + L[1]",
    ),
    "the length of a list": (
        "L = [1, 2]\ndef fn(x): return x + len(L)",
        "L = [1, 2, 3]\ndef fn(x): return x + len(L)",
    ),
    "the order of a dictionary": (
        "D = {'a': 1, 'b': 2}\ndef fn(x):\n    for k in D.values(): x = x * 2 + k\n    return x",
        "D = {'b': 2, 'a': 1}\ndef fn(x):\n    for k in D.values(): x = x * 2 + k\n    return x",
    ),
    "functions in a list": (
        "L = [lambda x: x + 1]\ndef fn(x): return L[0](x)",
        "L = [lambda x: x + 2]\ndef fn(x): return L[0](x)",
    ),
    "a decorator": (
        "def deco(f):\n    def w(x): return f(x) + 1\n    return w\n@deco\ndef inner(x): return x\n"
        "def fn(x): return inner(x)",
        "def deco(f):\n    def w(x): return f(x) + 2\n    return w\n@deco\ndef inner(x): return x\n"
        "def fn(x): return inner(x)",
    ),
    "what a decorator has decorated": (
        "def deco(f):\n    def w(x): return f(x)\n    return w\n@deco\ndef inner(x): return x + 1\n"
        "def fn(x): return inner(x)",
        "def deco(f):\n    def w(x): return f(x)\n    return w\n@deco\ndef inner(x): return x + 2\n"
        "def fn(x): return inner(x)",
    ),
    "a partial": (
        "import functools\np = functools.partial(torch.add, torch.ones(2))\ndef fn(x): return p(x)",
        "import functools\np = functools.partial(torch.sub, torch.ones(2))\ndef fn(x): return p(x)",
    ),
    "the value of an enumeration": (
        "import enum\nclass E(enum.Enum):\n    A = 1\ndef fn(x): return x + E.A.value",
        "import enum\nclass E(enum.Enum):\n    A = 2\ndef fn(x): return x + E.A.value",
    ),
    "the value of an enumeration of ints": (
        "import enum\nclass E(enum.IntEnum):\n    A = 1\ne = E.A\ndef fn(x): return x + e",
        "import enum\nclass E(enum.IntEnum):\n    A = 2\ne = E.A\ndef fn(x): return x + e",
    ),
    "the fields of a named tuple": (
        "import collections\nT = collections.namedtuple('T', 'a b')\nt = T(1, 2)\ndef fn(x): return x + t.a",
        "import collections\nT = collections.namedtuple('T', 'b a')\nt = T(1, 2)\ndef fn(x): return x + t.a",
    ),
    "two objects that have become one": (
        "a, b = [1], [1]\ndef fn(x): return x + (1 if a is b else 2)",
        "a = b = [1]\ndef fn(x): return x + (1 if a is b else 2)",
    ),
    "two functions that have become one": (
        "def f(x): return x\ndef g(x): return x\ndef fn(x): return x + (1 if f is g else 2)",
        "def f(x): return x\ng = f\ndef fn(x): return x + (1 if f is g else 2)",
    ),
    "a dtype": (
        "D = torch.float32\ndef fn(x): return x.to(D)",
        "D = torch.float64\ndef fn(x): return x.to(D)",
    ),
    "a global tensor": (
        "T = torch.ones(2)\ndef fn(x): return x + T",
        "T = torch.full((2,), 5.)\ndef fn(x): return x + T",
    ),
    "a tensor made of a constant": (
        "def fn(x): return x + torch.tensor([1., 2.])",
        "def fn(x): return x + torch.tensor([1., 3.])",
    ),
    "a module's class": (
        "class M(nn.Module):\n    def forward(self, x): return x + 1\nfn = nn.Sequential(M())",
        "class M(nn.Module):\n    def forward(self, x): return x + 2\nfn = nn.Sequential(M())",
    ),
    "a module's attribute": (
        "fn = nn.Sequential(nn.LeakyReLU(0.1))",
        "fn = nn.Sequential(nn.LeakyReLU(0.2))",
    ),
    "a module's submodules": (
        "fn = nn.Sequential(nn.ReLU())",
        "fn = nn.Sequential(nn.Tanh())",
    ),
    "the mode of a module": (
        "fn = nn.Sequential(nn.BatchNorm1d(2)).eval()",
        "fn = nn.Sequential(nn.BatchNorm1d(2)).train()",
    ),
    "a hook of a module": (
        "fn = nn.Sequential(nn.ReLU())",
        "fn = nn.Sequential(nn.ReLU())\nfn[0].register_forward_hook(lambda m, a, out: out * 3)",
    ),
    "what a hook does": (
        "fn = nn.Sequential(nn.ReLU())\nfn[0].register_forward_hook(lambda m, a, out: out * 2)",
        "fn = nn.Sequential(nn.ReLU())\nfn[0].register_forward_hook(lambda m, a, out: out * 3)",
    ),
    "an instance's own forward": (
        "fn = nn.Sequential(nn.ReLU())",
        "fn = nn.Sequential(nn.ReLU())\nfn[0].forward = lambda x: x * 3",
    ),
    "a parametrization": (
        "fn = nn.Linear(2, 2, bias=False)\nnn.init.ones_(fn.weight)",
        "class Double(nn.Module):\n    def forward(self, w): return w * 2\nfn = nn.Linear(2, 2, bias=False)\n"
        "nn.init.ones_(fn.weight)\nnn.utils.parametrize.register_parametrization(fn, 'weight', Double())",
    ),
    "a builtin of the module's": (
        "def fn(x): return x + len((1, 2))",
        "def len(v): return 7\ndef fn(x): return x + len((1, 2))",
    ),
    "an abstract method of torch's classes": (
        "class F_(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x + 1\n"
        "    @staticmethod\n    def backward(ctx, g): return g\ndef fn(x): return F_.apply(x)",
        "class F_(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x + 2\n"
        "    @staticmethod\n    def backward(ctx, g): return g\ndef fn(x): return F_.apply(x)",
    ),
}
ARGUMENTS = "\ndef arguments(): return [torch.arange(4.).view(2, 2)]\n"


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_shows(name: str) -> None:
    before, after = (text + ARGUMENTS for text in EDITS[name])
    first, _, story = run(before)
    found, expected, _ = run(after)
    torch.testing.assert_close(found, expected)
    again, expected, last = run(before)
    torch.testing.assert_close(again, expected)
    torch.testing.assert_close(again, first)
    numbered = name == "what a hook does"  # a hook's number in its table counts up in a process
    private = any(step.startswith("not stored") for step in story.steps)
    assert last.loaded or numbered or private, (story.steps, last.steps)


def test_a_special_method_that_a_tensors_class_has_come_to_have_shows() -> None:
    text = "class S(torch.Tensor): pass\n{}s = torch.ones(1).as_subclass(S)\n"
    text += "def fn(x): return (x * (s + 1).sum()).as_subclass(torch.Tensor)" + ARGUMENTS
    for method in ("", "S.__add__ = lambda s, o: torch.ones(5)\n", ""):
        found, expected, _ = run(text.replace("{}", method))
        torch.testing.assert_close(found, expected)


def test_equal_functions_in_other_modules_have_their_own_globals() -> None:
    text = "K = {}\ndef inner(x): return x + K\n"
    import types

    def make(k: int) -> Any:
        module = types.ModuleType(f"own_globals_{k}")
        sys.modules[module.__name__] = module
        exec(text.format(k), module.__dict__)
        return module.inner

    def fn(x: torch.Tensor, f: Any) -> torch.Tensor:
        return f(x)

    try:
        for k in (1, 2, 1):
            jitney.reset()
            with torch.no_grad():
                assert jitney.compile(fn, backend="aot_eager")(torch.zeros(1), make(k)).item() == k
    finally:
        for k in (1, 2):
            sys.modules.pop(f"own_globals_{k}")


# ---------------------------------------------------------------------- the state of torch, arguments, settings

PLAIN = "def fn(x): return F.linear(x, torch.eye(2, dtype=x.dtype)) * torch.tensor([2.5]).to(x.dtype)\n"


def call_with(make: Callable[[], Any], around: Callable[[], AbstractContextManager[Any]] = torch.no_grad) -> Any:
    def call(function: Any, module: Any) -> Any:
        x = make()
        with around():
            found = function(x)
        return found, found.requires_grad, found.dtype, found.stride()

    return call


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(2, 2),
    "double": lambda: torch.ones(2, 2, dtype=torch.float64),
    "another size": lambda: torch.ones(3, 2),
    "other strides": lambda: torch.ones(2, 2).t().contiguous().t(),
    "expanded": lambda: torch.ones(1, 2).expand(2, 2),
    "one more dimension": lambda: torch.ones(1, 2, 2),
    "requires grad": lambda: torch.ones(2, 2, requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(2, 2)),
    "conjugated": lambda: torch.ones(2, 2, dtype=torch.complex64).conj(),
    "meta": lambda: torch.ones(2, 2, device="meta"),
}


@pytest.mark.parametrize("other", TENSORS)
def test_other_tensors_have_other_frames(other: str) -> None:
    text = "def fn(x): return x * 2 + x.t() if x.dim() == 2 and x.shape[0] == 2 else x * 2\n"
    run(text, call_with(TENSORS["plain"]))
    found, expected, story = run(text, call_with(TENSORS[other]))
    assert story.loaded == (other == "plain"), story.steps
    assert found[1:] == expected[1:]
    if other != "meta":
        torch.testing.assert_close(found[0], expected[0])


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "grad mode": torch.enable_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "threads": lambda: threads(torch.get_num_threads() + 1),
    "default dtype": default_dtype,
    "deterministic": deterministic,
    "activation_memory_budget": lambda: jitney.config.patch(activation_memory_budget=0.5),
    "trace_numpy": lambda: jitney.config.patch(trace_numpy=False),
}


@pytest.mark.parametrize("state", STATES)
def test_other_global_state_has_other_frames(state: str) -> None:
    run(PLAIN, call_with(TENSORS["plain"], torch.no_grad))
    found, expected, story = run(PLAIN, call_with(TENSORS["plain"], STATES[state]))
    assert "loaded" not in story.steps
    assert found[1:] == expected[1:]
    torch.testing.assert_close(found[0], expected[0])
    assert run(PLAIN, call_with(TENSORS["plain"], torch.no_grad))[2].loaded


def test_other_backends_options_and_ways_to_compile_have_other_frames() -> None:
    call = call_with(TENSORS["plain"])
    ways: list[dict[str, Any]] = [
        {"backend": "aot_eager"},
        {"backend": "eager"},
        {"backend": "aot_eager", "options": {"decompose": "core"}},
        {"backend": "llvm_cpu"},
        {"backend": "llvm_cpu", "options": {"grain": 7}},
        {"backend": "aot_eager", "fullgraph": True},
        {"backend": "aot_eager", "dynamic": True},
    ]
    for way in ways:
        assert "stored" in run(PLAIN, call, **way)[2].steps
    for way in ways:
        assert run(PLAIN, call, **way)[2].loaded, way


def test_other_versions_have_other_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_with(TENSORS["plain"])
    run(PLAIN, call)
    key.environment.cache_clear()
    assert run(PLAIN, call)[2].loaded
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    key.environment.cache_clear()
    try:
        assert not run(PLAIN, call)[2].loaded
    finally:
        monkeypatch.undo()
        key.environment.cache_clear()
    assert run(PLAIN, call)[2].loaded


def test_an_upgraded_plugin_has_other_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_with(TENSORS["plain"])
    run(PLAIN, call)
    assert run(PLAIN, call)[2].loaded
    real = importlib.metadata.Distribution.version.fget  # type: ignore[attr-defined]

    def version(self: Any) -> Any:
        return "99" if self.metadata["Name"] == "jitney-aot-eager" else real(self)

    monkeypatch.setattr(importlib.metadata.Distribution, "version", property(version))
    assert {row.version for row in registry.listings() if row.name == "aot_eager"} == {"99"}
    assert not run(PLAIN, call)[2].loaded


def test_edited_sources_of_ours_have_other_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_with(TENSORS["plain"])
    run(PLAIN, call)
    monkeypatch.setattr(key, "sources", lambda package: f"another {package}")
    key.environment.cache_clear()
    try:
        assert not run(PLAIN, call)[2].loaded
    finally:
        monkeypatch.undo()
        key.environment.cache_clear()


def test_frames_of_another_format_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was captured under a guard that was wrong is left behind where files keep their times and sizes, too."""
    call = call_with(TENSORS["plain"])
    run(PLAIN, call)
    monkeypatch.setattr(key, "FORMAT", key.FORMAT - 1)
    key.environment.cache_clear()
    try:
        assert not run(PLAIN, call)[2].loaded
    finally:
        monkeypatch.undo()
        key.environment.cache_clear()


def test_an_extension_that_rewrites_graphs_keeps_everything_in_its_process() -> None:
    class Rewrites:
        @jitney.backends.hookimpl
        def jitney_transform_graph(self, graph: Any) -> Any:
            return None

    extension = Rewrites()
    registry.register_extension(extension, "rewrites")
    try:
        assert any("an extension" in step for step in run(PLAIN, call_with(TENSORS["plain"]))[2].steps)
    finally:
        registry.unregister_extension(extension)


# ---------------------------------------------------------------------- torch itself, patched

MODULE = "fn = nn.Sequential(nn.Linear(2, 2, bias=False))\nnn.init.ones_(fn[0].weight)\n"
PATCHES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "a function that torch's modules call": (
        "torch.nn.functional.linear", MODULE, lambda real: lambda x, w, b=None: real(x, w, b) * 3,
    ),
    "a method of torch's modules": (
        "torch.nn.Linear.forward", MODULE, lambda real: lambda self, x: real(self, x) * 3,
    ),
    "a function that the program calls": (
        "torch.softmax", "def fn(x): return torch.softmax(x, -1)", lambda real: lambda x, d: real(x, d) * 3,
    ),
    "a function in Python": (
        "torch.nn.functional.softplus", "def fn(x): return F.softplus(x)", lambda real: lambda x: real(x) * 3,
    ),
    "a function that a function in Python calls": (
        "torch.nn.functional.linear",
        "m = nn.MultiheadAttention(2, 1, bias=False)\nfor p in m.parameters(): nn.init.ones_(p)\n"
        "def fn(x): return m(x, x, x, need_weights=False)[0]",
        lambda real: lambda x, w, b=None: real(x, w, b) * 3,
    ),
    "a function of the standard library": (
        "textwrap.dedent", "import textwrap\ndef fn(x): return x + len(textwrap.dedent('  a'))",
        lambda real: lambda text: text,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_of_torch_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, text, patch = PATCHES[name]
    run(text, call_with(TENSORS["plain"]))
    owner, _, attribute = place.rpartition(".")
    target: Any = sys.modules[owner.partition(".")[0]] if owner.partition(".")[0] in sys.modules else None
    for part in owner.split(".")[1:]:
        target = getattr(target, part)
    before = run(text, call_with(TENSORS["plain"]))
    assert before[2].loaded
    monkeypatch.setattr(target, attribute, patch(getattr(target, attribute)))
    found, expected, story = run(text, call_with(TENSORS["plain"]))
    torch.testing.assert_close(found[0], expected[0])
    monkeypatch.undo()
    found, expected, _ = run(text, call_with(TENSORS["plain"]))
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[0], before[0][0])


# ---------------------------------------------------------------------- what is said to capture


def test_marks_count() -> None:
    text = "def inner(x): return x + 1\ndef fn(x): return inner(x) * 2\n"
    call = call_with(TENSORS["plain"])
    run(text, call)
    assert run(text, call)[2].loaded

    def marked(function: Any, module: Any) -> Any:
        jitney.allow_in_graph(module.inner)
        return call(function, module)

    assert not run(text, marked)[2].loaded
    jitney.disallow_in_graph(torch.mul)
    try:
        assert not run("def fn(x): return torch.mul(x, 2)", call)[2].loaded
    finally:
        jitney.capture.marks._disallowed.discard(torch.mul)


PRIVATE = {
    "id() of an object": "class C: pass\ndef fn(x): return x + (id(C) % 7) * 0\n",
    "hash() of a value": "def fn(x): return x + (hash('text') % 7) * 0\n",
    "the order of a set": "def fn(x):\n    for k in {'a', 'bb', 'ccc'}: x = x * 2 + len(k)\n    return x\n",
    "co_firstlineno: where code is written": "def inner(): ...\ndef fn(x): return x + inner.__code__.co_firstlineno\n",
    "what find_spec finds": "from importlib.util import find_spec\ndef fn(x): return x + (find_spec('none') is None)\n",
    "dir() of a module": "import math\ndef fn(x): return x + len(dir(math))\n",
    "dir() of a class": "class C: pass\ndef fn(x): return x + len(dir(C))\n",
}


# What shows the order of a set.
ORDERS = (
    "list({k for k in NAMES})", "{*NAMES}.pop()", "str({*NAMES})", "f'{ {*NAMES} !r}'", "ascii([{*NAMES}])",
    "'%s' % {*NAMES}", "'{}'.format((1, {*NAMES}))", "'{k}'.format(k={*NAMES})", "str(ValueError({*NAMES}))",
    "{*NAMES}.__repr__()", "str(NAMES.keys() - {'a'})", "list(itertools.chain.from_iterable([{*NAMES}]))",
    "dict.fromkeys({*NAMES})",
)  # fmt: skip


@pytest.mark.parametrize("text", ORDERS)
def test_what_shows_the_order_of_a_set_stays_in_its_process(text: str) -> None:
    names = "{'a': 1, 'bb': 2, 'ccc': 3}"
    _, _, story = run(
        f"import itertools\nNAMES = {names}\ndef fn(x):\n    shown = {text}\n    return x + len(str(len(shown)))\n",
        call_with(TENSORS["plain"]),
    )
    assert story.steps[-1] == "not stored: the order of a set"


@pytest.mark.parametrize("reason", PRIVATE)
def test_what_differs_from_process_to_process_stays_in_its_own(reason: str) -> None:
    _, _, story = run(PRIVATE[reason], call_with(TENSORS["plain"]))
    assert story.steps[-1] == f"not stored: {reason}"


def test_a_frozen_function_loads_nothing() -> None:
    call = call_with(TENSORS["plain"])
    run(PLAIN, call)
    module = begin(PLAIN)
    from cache.again import Story

    story = Story()
    with jitney.events.listen(story), torch.no_grad():
        jitney.run(jitney.compile(module.fn, backend="aot_eager"))(torch.ones(2, 2))
    assert story.steps == []


def test_what_is_recorded_as_a_whole_stays_in_its_process() -> None:
    text = """
        import jitney
        def inner(x): return x + {}
        @jitney.allow_in_graph
        def outer(x): return inner(x) * 2
        def fn(x): return outer(x)
    """
    for k in (1, 2):
        found, expected, story = run(text.format(k), call_with(TENSORS["plain"]))
        torch.testing.assert_close(found[0], expected[0])
        why = "which C code has called" if MONITORED else "which is recorded as a whole"
        assert f"not stored: outer, {why}" in story.steps


def test_operators_that_are_not_torchs_stay_in_their_process() -> None:
    text = """
        @torch.library.custom_op("begun_again::twice_{0}", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor: return x * {0}
        @twice.register_fake
        def _(x): return torch.empty_like(x)
        def fn(x): return twice(x) + torch.ops.begun_again.twice_{0}(x)
    """
    story = run(text.format(2), call_with(TENSORS["plain"]))[2]
    assert any("not torch's" in step or "C code" in step for step in story.steps), story.steps


def test_a_loaded_frame_keeps_no_argument_alive() -> None:
    import gc
    import weakref

    text = "class Box: pass\ndef fn(x, box): return x + box.k\n"

    def call(function: Any, module: Any) -> Any:
        box = module.Box()
        box.k = 3
        found = function(torch.ones(2), box)
        called.append(weakref.ref(box))
        return found

    called: list[Any] = []
    with torch.no_grad():
        run(text, call)
        assert run(text, call)[2].loaded
    gc.collect()
    assert all(reference() is None for reference in called)
    counted = "class Box: pass\ndef fn(box): return box.k + 1\n"
    called.clear()

    def count(function: Any, module: Any) -> Any:
        box = module.Box()
        box.k = 3
        called.append(weakref.ref(box))
        return function(box)

    run(counted, count)
    assert run(counted, count)[2].loaded
    gc.collect()
    assert all(reference() is None for reference in called)


def test_while_jitney_is_edited_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_cache, "edited", lambda package: package == "jitney")
    story = run("def fn(x): return x + 1\ndef arguments(): return [torch.ones(2)]\n")[2]
    assert story.steps[-1].startswith("not stored: files of jitney's")


def test_a_package_whose_files_change_after_it_was_imported_is_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "jt_edited").mkdir()
    file = tmp_path / "jt_edited" / "__init__.py"
    file.write_text("")
    os.utime(file, (1, 1))
    importlib.import_module("jt_edited")
    assert not key.edited("jt_edited")
    os.utime(file, (2, 2))
    assert key.edited("jt_edited")
    os.utime(file, (1, 1))
    assert not key.edited("jt_edited")
    (tmp_path / "jt_edited" / "more.py").write_text("")
    assert key.edited("jt_edited")


@pytest.mark.parametrize("name", ["PYTORCH_JIT", "TORCH_SOMETHING", "JITNEY_BACKEND_SOMETHING"])
def test_another_environment_is_another_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key.environment.__wrapped__()
    monkeypatch.setenv(name, "0")
    assert key.environment.__wrapped__() != before
    monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert key.environment.__wrapped__() == before


# What comes to torch's classes and modules: owner, name, value, and what asks for it.
ADDED = {
    "a truth value": (nn.Linear, "__bool__", lambda self: False, "1 if m else 2"),
    "a length": (nn.Module, "__len__", lambda self: 0, "1 if m else 2"),
    "an attribute": (nn.Module, "jt_added", 5, "getattr(m, 'jt_added', 1)"),
    "a property": (nn.Linear, "jt_added", property(lambda self: 5), "1 if hasattr(m, 'jt_added') else 2"),
    "an attribute of the class": (nn.Linear, "jt_added", 5, "1 if hasattr(nn.Linear, 'jt_added') else 2"),
    "an attribute of a base": (nn.Module, "jt_added", 5, "1 if hasattr(nn.Linear, 'jt_added') else 2"),
    "a name in a module": (torch.nn.functional, "jt_added", 5, "1 if hasattr(F, 'jt_added') else 2"),
    "an attribute of tensors": (torch.Tensor, "jt_added", 5, "1 if hasattr(x, 'jt_added') else 2"),
    "what hides a builtin": (torch.nn.modules.activation, "len", lambda v: 7, "a(x).sum()"),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_comes_to_torchs_classes_and_modules_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, value, asks = ADDED[name]
    text = (
        f"m, a = nn.Linear(2, 2), nn.ReLU()\ndef fn(x): return x + ({asks})\ndef arguments(): return [torch.ones(2)]\n"
    )
    assert run(text)[2].steps[-1] == "stored"
    assert run(text)[2].loaded
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, value, raising=False)
        found, expected, story = run(text)
        torch.testing.assert_close(found, expected, msg=str(story.steps))
    assert run(text)[2].loaded


def test_a_function_that_was_made_from_text_in_torchs_module_is_compared_by_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.nn.functional, "jt_made", None, raising=False)
    for number in (2, 3, 2):
        exec(f"def jt_made(x): return x * {number}", torch.nn.functional.__dict__)
        found, expected, story = run("def fn(x): return F.jt_made(x)\ndef arguments(): return [torch.ones(2)]\n")
        torch.testing.assert_close(found, expected, msg=str(story.steps))


def test_kernels_that_a_program_registers_for_torchs_operators_are_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = key.flags()
    monkeypatch.setattr(
        torch_private, "python_kernels", torch_private.python_kernels | {"aten/selu/CompositeImplicitAutograd"}
    )
    assert key.flags() != before


MODULE = """
    import sys, types
    made = types.ModuleType({name!r})
    made.__file__ = "/home/user/{name}.py"
    exec(compile("class C:\\n  k = {number}\\ndef g(x): return x * {number}", made.__file__, "exec"), made.__dict__)
    sys.modules[{name!r}] = made
    def fn(x): return made.g(x) + made.C.k
    def arguments(): return [torch.ones(2)]
"""


@pytest.mark.parametrize("name", ["wave", "sched", "torch.jt_made", "jt_made"])
def test_a_module_of_the_programs_is_not_taken_for_another_one_of_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, sys)  # and given back in the end
    for number in (2, 3, 2):
        found, expected, story = run(MODULE.format(name=name, number=number))
        torch.testing.assert_close(found, expected, msg=str(story.steps))


def test_two_modules_that_were_loaded_under_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jt_made", sys)
    hidden = "    other = types.ModuleType('jt_made')\n    sys.modules['jt_made'] = other\n"
    for number, more in ((2, ""), (3, hidden), (2, hidden), (3, "")):
        found, expected, story = run(MODULE.format(name="jt_made", number=number) + more)
        torch.testing.assert_close(found, expected, msg=str(story.steps))
