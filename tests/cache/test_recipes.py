"""Objects written as recipes and made again: equal, as often the same as before, and refused where they are others."""

from __future__ import annotations

import collections
import enum
import functools
import json
import logging
import math
import operator
import struct
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jitney._util.generated_code import build
from jitney.backends import Backend, BoundBackend, CompileRequest, SerializedGraph
from jitney.cache.digest import NotStorable
from jitney.cache.frames import pack, unpack
from jitney.cache.recipes import Reader, Stale, Writer
from jitney.guards.checks import same
from jitney.guards.source import KINDS, STEPS


def again(value: Any, **options: Any) -> Any:
    """The value through JSON and back."""
    writer = Writer()
    number = writer.ref(value)
    data, blobs = unpack(pack({"objects": writer.objects, "number": number}, writer.blobs))
    return Reader(data["objects"], blobs, **options).make(data["number"])


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.tuples(inner, inner) | st.tuples(),
)


@given(plain)
def test_plain_values_are_the_same_again(value: Any) -> None:
    assert same(again(value), value)


OBJECTS = [
    [1, (2, 3)], {"a": [1.5]}, {1, 2}, frozenset({3}), collections.OrderedDict(a=1), slice(1, None, 2), range(1, 9, 2),
    ..., NotImplemented, torch.float16, torch.strided, torch.channels_last, torch.device("cpu", 0), torch.Size([1, 2]),
    torch.add, torch.Tensor, torch.nn.functional.linear, torch.nn.Linear, torch.ops.aten.add.Tensor, torch.ops.aten.add,
    torch.get_num_threads, operator.getitem, math.sin, math, int, len, list.append, object.__setattr__,
    torch.Tensor.add,
    types.FunctionType, types.CellType, dict, collections.deque, functools.partial, np.dtype("float32"), np.ndarray,
]  # fmt: skip


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_objects_are_equal_or_the_same_again(value: Any) -> None:
    found = again(value)
    assert type(found) is type(value) and found == value
    if isinstance(value, (type, types.FunctionType, types.ModuleType)):
        assert found is value


def test_what_was_one_object_is_one_again() -> None:
    shared = [1]
    first, second, third = again((shared, shared, [1]))
    assert first is second and first is not third


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_constant_tensors_have_their_bits_again(dtype: torch.dtype) -> None:
    value = torch.tensor([0.0, -0.0, 1.5, 3.0]).to(dtype).view(2, 2)
    found = again(value)
    assert found.dtype is dtype and found.shape == value.shape
    assert torch.equal(found.view(torch.uint8), value.view(torch.uint8))
    assert again(torch.empty(0, 3)).shape == (0, 3) and again(torch.tensor(2.5)).item() == 2.5


def test_a_constant_on_a_device_that_is_not_there_is_stale() -> None:
    writer = Writer()
    number = writer.ref(torch.ones(2))
    assert writer.objects[number][-1] == "cpu"
    writer.objects[number][-1] = "cuda:99"
    with pytest.raises(Stale, match="cuda:99"):
        Reader(writer.objects, writer.blobs).make(number)


def test_text_functions_and_structs_are_made_again() -> None:
    pack_two = struct.Struct("2q").pack
    space: dict[str, Any] = {"k": 3, "pack": pack_two, "unused": object()}
    run = build("def run(x):\n    return x + k, pack(1, 2)\n", "<test>", space, "run")
    made = again(run)
    assert made(4) == run(4) == (7, pack_two(1, 2)) and made is not run and "unused" not in made.__globals__
    assert again(made)(5)[0] == 8


def test_graphs_are_made_again() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.add.Tensor(x, y, alpha=2.5).view(-1, 2).to(torch.float64)

    module = torch.fx.symbolic_trace(program)
    x, y = torch.ones(4), torch.arange(4.0)
    assert torch.equal(again(module.forward)(x, y), program(x, y))
    module.graph.erase_node(next(iter(reversed(module.graph.nodes))))
    with pytest.raises(NotStorable, match="changed"):
        again(module.forward)


class Own:
    """An object with identity."""


def local() -> Any:
    def inner() -> None: ...

    return inner


class Colour(enum.Enum):
    RED = 1


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [Own(), local(), lambda: 0, CYCLE, (x for x in ()), [].append, torch.ones(1 << 19),
     torch.ones(2, requires_grad=True), torch.ones(2, device="meta"),
     torch.ones(2, 2).t()[:1], torch.Generator(), open],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_nothing_leads_to_is_refused(value: Any) -> None:
    if value is open:  # a name leads to it
        assert again(value) is open
        return
    with pytest.raises(NotStorable):
        again(value)


def test_something_else_in_the_place_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()
    numbers = writer.refs((Own, local, Colour.RED, torch.nn.functional.relu))
    assert Reader(writer.objects).make_all(numbers) == [Own, local, Colour.RED, torch.nn.functional.relu]
    monkeypatch.setattr(Own, "more", lambda self: 0, raising=False)
    monkeypatch.setattr(local, "__code__", (lambda: 5).__code__)
    monkeypatch.setattr(Colour.RED, "_value_", 2)
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x: x)
    for number in numbers:
        with pytest.raises(Stale):
            Reader(writer.objects).make(number)


@pytest.mark.parametrize(
    "recipe",
    [["pickle", "abc"], ["path", "jitney.config", "nothing", ""], ["module", "no_such_module"],
     ["operator", "aten.no_such_operator"], ["globals", "no_such_module"], ["call", "no_such_module:f", []]],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_made_is_stale(recipe: Any) -> None:
    with pytest.raises(Stale):
        Reader([recipe]).make(0)


@given(st.binary(max_size=40))
def test_other_bytes_are_no_container(content: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        unpack(content)


def test_a_backend_with_load_and_serialize_makes_its_graphs_again() -> None:
    asked: list[CompileRequest] = []

    def compile_graph(graph: Any, inputs: Any, request: CompileRequest) -> Any:
        def run(x: torch.Tensor) -> Any:
            return (x * 3,)

        run.serialize = lambda: SerializedGraph({"factor": 3}, (b"code",))  # type: ignore[attr-defined]
        return run

    def load(serialized: SerializedGraph, request: CompileRequest) -> Any:
        asked.append(request)
        assert serialized.blobs == (b"code",)
        return lambda x: (x * serialized.data["factor"],)

    bound = BoundBackend(Backend("mine", compile_graph, level="aten", load=load), None)
    graph = torch.fx.symbolic_trace(lambda x: x * 3)
    compiled = bound.compile(graph, [], bound.request("inference", "fn"))

    def make(reader: Reader, name: str, kind: Any, frame: str, data: Any, blobs: list[int]) -> Any:
        return bound.load(
            name, kind, frame, SerializedGraph(json.loads(json.dumps(data)), tuple(reader.blobs[b] for b in blobs))
        )

    made = again(compiled, kinds={"backend": make})
    assert made(torch.ones(2))[0].tolist() == [3, 3] and asked[0].kind == "inference"
    without = BoundBackend(Backend("mine", compile_graph, level="aten"), None)
    with pytest.raises(NotStorable, match="graphs of the backend mine"):
        again(without.compile(graph, [], without.request("inference", "fn")))
    with pytest.raises(Stale, match="keeps no graphs"):
        without.load("mine", "inference", "fn", SerializedGraph(None))


def test_the_old_name_of_serialize_is_honoured_with_a_warning_at_the_plugins_line() -> None:
    class Old:
        filled = frozenset({0})

        def __call__(self, x: torch.Tensor) -> Any:
            return (x * 3,)

        def keep(self) -> SerializedGraph:
            return SerializedGraph(3)

    def function(x: torch.Tensor) -> Any:
        return (x * 3,)

    function.keep = lambda: SerializedGraph(3)  # type: ignore[attr-defined]
    graph = torch.fx.symbolic_trace(lambda x: x * 3)
    for old in (Old(), function):

        def load(serialized: SerializedGraph, request: CompileRequest) -> Any:
            return lambda x: (x * serialized.data,)

        backend = Backend("mine", lambda graph, inputs, request, old=old: old, level="aten", load=load)
        bound = BoundBackend(backend, None)
        with pytest.warns(
            DeprecationWarning, match="keep of a compiled graph is deprecated: name it serialize"
        ) as said:
            compiled = bound.compile(graph, [], bound.request("inference", "fn"))
        code = old.keep.__code__  # type: ignore[attr-defined]
        assert (said[0].filename, said[0].lineno) == (code.co_filename, code.co_firstlineno)
        make = {"backend": lambda reader, *at, bound=bound: bound.load(*at[:3], SerializedGraph(at[3]))}
        assert again(compiled, kinds=make)(torch.ones(2))[0].tolist() == [3, 3]
        assert getattr(compiled, "filled", frozenset()) == getattr(old, "filled", frozenset())


class Tripled:
    """A compiled graph that is an object, as of the template of ``jitney new-backend``."""

    filled = frozenset({0})

    def __call__(self, x: torch.Tensor) -> Any:
        return self.boxed([x])

    def boxed(self, inputs: list[Any]) -> Any:
        return (inputs.pop() * 3,)

    def serialize(self) -> SerializedGraph:
        return SerializedGraph("tripled")


def test_a_compiled_graph_that_is_an_object_is_kept_too() -> None:
    backend = Backend("mine", lambda *_: Tripled(), level="aten", load=lambda kept, request: Tripled())
    bound = BoundBackend(backend, None)
    compiled: Any = bound.compile(torch.fx.symbolic_trace(lambda x: x * 3), [], bound.request("inference", "fn"))
    assert compiled.boxed([torch.ones(1)])[0].item() == 3 and compiled.filled == {0}

    def make(reader: Reader, name: str, kind: Any, frame: str, data: Any, blobs: list[int]) -> Any:
        return bound.load(name, kind, frame, SerializedGraph(data))

    made = again(compiled, kinds={"backend": make})
    assert made(torch.ones(2))[0].tolist() == [3, 3]
    assert again(made, kinds={"backend": make})(torch.ones(1))[0].item() == 3


class Stepped(collections.OrderedDict[str, Any]):
    """Something for every step."""

    attribute = 3

    def __init__(self) -> None:
        super().__init__(key=7)
        self.plain = 5


@pytest.mark.parametrize("kind", STEPS)
def test_steps_read_what_their_text_reads(kind: str) -> None:
    keys: dict[str, tuple[Any, Any]] = {
        "attr": (Stepped(), "attribute"), "static_attr": (Stepped(), "plain"), "class_dict": (Stepped, "attribute"),
        "item": (Stepped(), "key"), "dict_item": (Stepped(), "key"), "list_item": ([4, 5], 1),
        "tuple_item": ((4, 5), 1),
        "dict_of": (Stepped(), None), "type_of": (Stepped(), None), "keys": (Stepped(), None),
        "values": (Stepped(), None),
    }  # fmt: skip
    base, key = keys[kind]
    text = KINDS[kind]("base", repr(key), key)
    import builtins

    names = {"base": base, "_b": builtins, "_item_of": STEPS["dict_item"]}
    assert eval(text, names) == STEPS[kind](base, key)


def test_loggers_are_found_by_name() -> None:
    logger = logging.getLogger("jitney.tests.of_recipes")
    assert again(logger) is logger
    assert again(logging.getLogger()) is logging.getLogger()
    with pytest.raises(NotStorable):
        Writer().ref(logging.Logger("jitney.tests.of_recipes"))


@functools.lru_cache(None)
def squared(x: int) -> int:
    return x * x


def test_cached_functions_are_found_by_name_and_must_be_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    assert again(squared) is squared
    with pytest.raises(NotStorable):
        Writer().ref(functools.lru_cache(None)(squared.__wrapped__))
    writer = Writer()
    number = writer.ref(squared)
    for other in (functools.lru_cache(None)(lambda x: x + x), lambda x: x * x):
        monkeypatch.setattr(sys.modules[__name__], "squared", other)
        with pytest.raises(Stale):
            Reader(writer.objects, writer.blobs).make(number)
