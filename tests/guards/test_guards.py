"""A call with changed surroundings compiles again; a call with equal ones does not."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from helpers import Compiled, compile_fn, t

SCALE: Any = 2.0
TABLE: dict[str, Any] = {}


class Config:
    """An object with attributes."""

    kind = "class"

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


# --- must compile again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [(2.0, "two"), (True, False), (None, 1), ((1, 2), (1, 3)), ("a", "b"), ([1], [1, 2]), (torch.relu, torch.sin)],
)
def test_changed_global(values: tuple[Any, Any]) -> None:
    global SCALE
    first = values[0]

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return x * 2 if SCALE == first else x * 3, SCALE

    compiled = Compiled(fn)
    SCALE = values[0]
    compiled(t())
    compiled(t())
    compiled.expect(1)
    SCALE = values[1]
    compiled(t())
    compiled.expect(2)
    SCALE = values[0]
    compiled(t())
    compiled.expect(2)


def test_changed_closure_cell() -> None:
    mode = "double"

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if mode == "double" else x * 3

    compiled = Compiled(fn)
    compiled(t())
    compiled.expect(1)
    mode = "triple"
    compiled(t())
    compiled.expect(2)


def test_changed_closure_function() -> None:
    act = lambda x: x * 2
    compiled = Compiled(lambda x: act(x) + 1)
    compiled(t())
    act = lambda x: x * 3
    compiled(t())
    compiled.expect(2)


def test_changed_attribute_of_argument() -> None:
    compiled = Compiled(lambda x, c: x * 2 if c.flag == "a" else x * 3)
    config = Config(flag="a")
    compiled(t(), config)
    compiled(t(), config)
    compiled.expect(1)
    config.flag = "b"
    compiled(t(), config)
    compiled.expect(2)


def test_attribute_appears_and_disappears() -> None:
    compiled = Compiled(lambda x, c: x + (1 if hasattr(c, "extra") else 2))
    config = Config()
    compiled(t(), config)
    config.extra = 0
    compiled(t(), config)
    compiled.expect(2)
    del config.extra
    compiled(t(), config)
    compiled.expect(2)


def test_class_attribute_shadowed_later_by_instance() -> None:
    compiled = Compiled(lambda x, c: x * 2 if c.kind == "class" else x * 3)
    config = Config()
    compiled(t(), config)
    config.kind = "instance"
    compiled(t(), config)
    compiled.expect(2)


def test_class_attribute_changed() -> None:
    class Local(Config):
        kind = "class"

    compiled = Compiled(lambda x, c: x * 2 if c.kind == "class" else x * 3)
    config = Local()
    compiled(t(), config)
    Local.kind = "other"
    compiled(t(), config)
    compiled.expect(2)


def test_changed_dict_values_keys_and_order() -> None:
    def fn(x: torch.Tensor, d: dict[str, Any]) -> tuple[Any, ...]:
        return x * len(d) + len(d.get("a", "")), [k + "!" for k in d], "z" in d

    compiled = Compiled(fn)
    compiled(t(), {"a": "one", "b": "two"})
    compiled(t(), {"a": "one", "b": "two"})
    compiled.expect(1)
    compiled(t(), {"a": "eins", "b": "two"})
    compiled.expect(2)
    compiled(t(), {"a": "one", "c": "two"})
    compiled.expect(3)
    compiled(t(), {"b": "two", "a": "one"})
    compiled.expect(4)
    compiled(t(), {"a": "one", "b": "two", "z": 1})
    compiled.expect(5)


def test_dict_membership_of_an_absent_key() -> None:
    compiled = Compiled(lambda x, d: x * 2 if "k" in d else x * 3)
    compiled(t(), {"a": "x"})
    compiled(t(), {"k": "x"})
    compiled.expect(2)


def test_global_dict_filled_later() -> None:
    TABLE.clear()
    compiled = Compiled(lambda x: x + TABLE.get("bias", 0))
    compiled(t())
    TABLE["bias"] = t()
    compiled(t())
    compiled.expect(2)


def test_changed_list_length_and_items() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> Any:
        for item in items:
            x = x + (1 if item == "a" else 2)
        return x

    compiled = Compiled(fn)
    compiled(t(), ["a"])
    compiled(t(), ["a"])
    compiled.expect(1)
    compiled(t(), ["a", "a"])
    compiled.expect(2)
    compiled(t(), ["b"])
    compiled.expect(3)


def test_tuple_becomes_list() -> None:
    compiled = Compiled(lambda x, items: (x + 1, type(items) is tuple, items))
    compiled(t(), (1, 2))
    compiled(t(), [1, 2])
    compiled.expect(2)


@pytest.mark.parametrize(
    "other",
    [
        t().double(),
        t().to(torch.int64),
        t(3, 1),
        t(3, requires_grad=True),
        torch.nn.Parameter(t()),
        t(6)[::2],
        torch.empty(3, device="meta"),
    ],
    ids=["dtype", "int dtype", "rank", "requires_grad", "parameter", "stride", "device"],
)
def test_changed_tensor_metadata(other: torch.Tensor) -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return (
            x + 1,
            x.dtype,
            x.requires_grad,
            x.stride(),
            x.device,
            isinstance(x, torch.nn.Parameter),
            x.is_contiguous(),
        )

    compiled = Compiled(fn)
    compiled(t())
    compiled(t() * 3)
    compiled.expect(1)
    compiled(other)
    compiled.expect(2)
    compiled(t())
    compiled.expect(2)


def test_changed_type_of_argument() -> None:
    class Other(Config):
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * 5

    compiled = Compiled(lambda x, c: c.scaled(x))
    compiled(t(), Config())
    compiled(t(), Config())
    compiled.expect(1)
    compiled(t(), Other())
    compiled.expect(2)


@pytest.mark.parametrize("values", [(1.5, "s"), (None, 2.5), (True, 1), (1, 1.0), (0, False)])
def test_changed_type_of_a_constant(values: tuple[Any, Any]) -> None:
    compiled = Compiled(lambda x, v: (x + 1, type(v).__name__, v))
    for value in values:
        compiled(t(), value)
    compiled.expect(2)


def test_none_becomes_tensor() -> None:
    compiled = Compiled(lambda x, b=None: x + 1 if b is None else x + b)
    compiled(t())
    compiled(t(), t())
    compiled.expect(2)
    compiled(t(), None)
    compiled.expect(2)


def test_training_flag() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    compiled = Compiled(model)
    compiled(t(2, 3))
    model.eval()
    compiled(t(2, 3))
    compiled.expect(2)
    model.train()
    compiled(t(2, 3))
    compiled.expect(2)
    model[1].eval()
    compiled(t(2, 3))


def test_grad_mode() -> None:
    compiled = Compiled(lambda x: (x * 2, torch.is_grad_enabled()))
    x = t(3, requires_grad=True)
    compiled(x)
    with torch.no_grad():
        compiled(x)
    compiled.expect(2)
    with torch.inference_mode():
        compiled(t())
    compiled(x)


def test_autocast() -> None:
    compiled = Compiled(lambda x, y: x @ y)
    compiled(t(2, 2), t(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled(t(2, 2), t(2, 2))
    compiled.expect(2)
    with torch.autocast("cpu", dtype=torch.float16):
        compiled(t(2, 2), t(2, 2))
    compiled.expect(3)
    compiled(t(2, 2), t(2, 2))
    compiled.expect(3)


def test_default_dtype() -> None:
    compiled = Compiled(lambda x: x + torch.ones(3) + torch.tensor(1.0))
    compiled(t())
    torch.set_default_dtype(torch.float64)
    try:
        compiled(t())
        compiled.expect(2)
    finally:
        torch.set_default_dtype(torch.float32)


def test_default_device() -> None:
    compiled = Compiled(lambda n: torch.ones(n).device)
    compiled(3)
    with torch.device("meta"):
        compiled(3)
    compiled(3)


def test_deterministic_algorithms() -> None:
    compiled = Compiled(lambda x: (x + 1, torch.are_deterministic_algorithms_enabled()))
    compiled(t())
    torch.use_deterministic_algorithms(True)
    try:
        compiled(t())
        compiled.expect(2)
    finally:
        torch.use_deterministic_algorithms(False)


def test_monkeypatched_method() -> None:
    class Local:
        def f(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    compiled = Compiled(lambda x, c: c.f(x))
    obj = Local()
    compiled(t(), obj)
    Local.f = lambda self, x: x * 3  # type: ignore[method-assign]
    compiled(t(), obj)
    compiled.expect(2)
    obj.f = lambda x: x * 4  # type: ignore[method-assign]
    compiled(t(), obj)
    compiled.expect(3)


def test_monkeypatched_forward_of_a_module_instance_and_class() -> None:
    class Local(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = torch.nn.Sequential(Local())
    compiled = Compiled(model)
    compiled(t())
    model[0].forward = lambda x: x * 3
    compiled(t())
    compiled.expect(2)
    del model[0].forward
    Local.forward = lambda self, x: x * 5  # type: ignore[method-assign]
    compiled(t())
    compiled.expect(3)


def test_monkeypatched_library_function() -> None:
    compiled = Compiled(lambda x: torch.nn.functional.silu(x))
    compiled(t())
    original = torch.nn.functional.silu
    torch.nn.functional.silu = lambda x: x * 100  # type: ignore[assignment]
    try:
        compiled(t())
        compiled.expect(2)
    finally:
        torch.nn.functional.silu = original


def test_replaced_submodule_parameter_and_buffer() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer: Any = torch.nn.Linear(3, 3)
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.scale

    model = Model()
    compiled = Compiled(model)
    compiled(t(2, 3))
    model.layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    compiled(t(2, 3))
    compiled.expect(2)
    model.scale = torch.full((3,), 7.0)
    compiled(t(2, 3))
    model.layer[0].weight = torch.nn.Parameter(torch.ones(3, 3))
    compiled(t(2, 3))
    with torch.no_grad():
        model.layer[0].weight.zero_()
    compiled(t(2, 3))
    model.scale = None
    model.layer = None
    with pytest.raises(TypeError):
        compiled.compiled(t(2, 3))


def test_hook_added_and_removed_later() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    compiled = Compiled(model)
    compiled(t(2, 3))
    handle = model[0].register_forward_hook(lambda m, a, out: out * 10)
    compiled(t(2, 3))
    compiled.expect(2)
    handle.remove()
    compiled(t(2, 3))
    compiled.expect(2)


def test_module_list_grows() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model = Model()
    compiled = Compiled(model)
    compiled(t(2, 3))
    model.layers.append(torch.nn.Linear(3, 3))
    compiled(t(2, 3))
    compiled.expect(2)


def test_changed_defaults_and_code_of_a_callee() -> None:
    def callee(x: torch.Tensor, n: str = "a", *, k: str = "b") -> torch.Tensor:
        return x + len(n) + len(k)

    compiled = Compiled(lambda x: callee(x))
    compiled(t())
    callee.__defaults__ = ("aaa",)
    compiled(t())
    compiled.expect(2)
    callee.__kwdefaults__ = {"k": "bbbbb"}
    compiled(t())
    compiled.expect(3)
    callee.__code__ = (lambda x, n="a", *, k="b": x - 1).__code__
    compiled(t())
    compiled.expect(4)


def test_aliasing_of_arguments() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    compiled = Compiled(fn)
    a = t()
    compiled(a, t())
    compiled(a, a)
    compiled(a, t())
    compiled(t(), a)


def test_identity_of_list_arguments() -> None:
    def fn(x: torch.Tensor, a: list[Any], b: list[Any]) -> tuple[Any, ...]:
        a.append(1)
        return x + len(b), a is b

    compiled = Compiled(fn)
    items: list[Any] = []
    compiled(t(), [], [])
    eager, got = fn(t(), items, items), compiled.compiled(t(), items, items)
    assert eager[1] == got[1] is True
    assert torch.equal(got[0], t() + 2)


def test_keyword_and_positional_calls() -> None:
    def fn(x: torch.Tensor, n: str = "a", *rest: Any, **kw: Any) -> tuple[Any, ...]:
        return x + len(n), rest, kw

    compiled = Compiled(fn)
    compiled(t())
    compiled(t(), "a")
    compiled(x=t(), n="a")
    compiled(t(), "bb")
    compiled(t(), "bb", 5)
    compiled(t(), z="q")
    compiled(t(), y="q")


# --- must not compile again ----------------------------------------------------------------------------------------


def test_same_values_do_not_compile_again() -> None:
    def fn(x: torch.Tensor, d: dict[str, Any], items: list[Any], c: Config, s: str) -> torch.Tensor:
        return x * len(d["k"]) + len(items) + c.n + len(s)

    compiled = Compiled(fn)
    for i in range(4):
        compiled(t() * i, {"k": "".join(["a", "b"])}, [1, "x"], Config(n=1000 * 1000), "s" * 3)
    compiled.expect(1)


def test_values_that_are_not_looked_at_do_not_compile_again() -> None:
    def fn(x: torch.Tensor, d: dict[str, Any], c: Config) -> torch.Tensor:
        return x * len(d["k"]) + c.used

    compiled = Compiled(fn)
    for i in range(4):
        compiled(t(), {"k": "ab", "other": str(i)}, Config(used=1.5, unused=str(i)))
    compiled.expect(1)


def test_new_equal_lambda_does_not_compile_again() -> None:
    compiled = Compiled(lambda x, f: f(x) + 1)
    for _ in range(4):
        compiled(t(), lambda v: v * 2)
    compiled.expect(1)


def test_new_closure_with_other_value_is_seen() -> None:
    def scaled(word: str) -> Any:
        return lambda v: v * len(word)

    compiled = Compiled(lambda x, f: f(x) + 1)
    compiled(t(), scaled("aa"))
    compiled(t(), scaled("aa"))
    compiled.expect(1)
    compiled(t(), scaled("aaa"))
    compiled.expect(2)


def test_new_list_and_fresh_objects_of_one_class_do_not_compile_again() -> None:
    compiled = Compiled(lambda x, items: x + sum(len(i.name) for i in items))
    for _ in range(3):
        compiled(t(), [Config(name="ab"), Config(name="c")])
    compiled.expect(1)


def test_training_loop_does_not_compile_again() -> None:
    model = torch.nn.Linear(3, 2)
    compiled = Compiled(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        out = compiled(t(2, 3))
        out.sum().backward()
        opt.step()
        opt.zero_grad()
    compiled.expect(1)


def test_counter_attribute_does_not_compile_every_time() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return x * self.steps

    model = Model()
    compiled = Compiled(model)
    for i in range(6):
        model.steps = 5 + i
        eager = copy.deepcopy(model)(t())
        assert torch.equal(compiled.compiled(t()), eager)
        assert model.steps == 6 + i
    compiled.expect(2)


# --- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_compiled", [False, True])
def test_no_module_is_kept_alive(keep_compiled: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    refs = [weakref.ref(model), weakref.ref(model[0]), weakref.ref(model[0].weight)]
    compiled = compile_fn((lambda m, x: m(x)) if keep_compiled else model)
    if keep_compiled:
        compiled(model, t(2, 3))
    else:
        compiled(t(2, 3))
        del compiled
    del model
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_no_closure_or_global_is_kept_alive_by_the_entries() -> None:
    holder = Config(w=t())
    compiled = Compiled(lambda x, c: x + c.w)
    ref = weakref.ref(holder.w)
    compiled.compiled(t(), holder)
    holder.w = t()
    gc.collect()
    assert ref() is None


def test_no_tensor_or_object_argument_is_kept_alive() -> None:
    compiled = Compiled(lambda x, c: x + c.w)
    x, config = t(), Config(w=t())
    refs = [weakref.ref(x), weakref.ref(config), weakref.ref(config.w)]
    compiled.compiled(x, config)
    del x, config
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]
