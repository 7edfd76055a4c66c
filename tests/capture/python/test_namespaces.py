"""Names that classes, modules and globals gain, lose or change after compiling, special methods included."""

from __future__ import annotations

import abc
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_scenario, outcome, t

import jitney

Compile = Callable[[Any], Any]


def as_item(obj: Any, x: torch.Tensor) -> Any:
    obj[1] = 3
    return x * 1


def as_attribute(obj: Any, x: torch.Tensor) -> Any:
    obj.other = 3
    return x * 1


def as_manager(obj: Any, x: torch.Tensor) -> Any:
    with obj as entered:
        return x * 1, entered


def added_in_place(obj: Any, x: torch.Tensor) -> Any:
    obj += x
    return obj


SPECIAL: dict[str, tuple[Callable[[Any, Any], Any], Callable[..., Any]]] = {
    "__add__": (lambda obj, x: obj + x, lambda self, other: other * 5),
    "__radd__": (lambda obj, x: x + obj, lambda self, other: other * 5),
    "__iadd__": (added_in_place, lambda self, other: other * 5),
    "__len__": (lambda obj, x: x * len(obj), lambda self: 3),
    "__call__": (lambda obj, x: obj(x), lambda self, x: x * 7),
    "__getitem__": (lambda obj, x: x * obj[1], lambda self, key: 4),
    "__setitem__": (as_item, lambda self, key, value: None),
    "__contains__": (lambda obj, x: x * (1 in obj), lambda self, key: True),
    "__bool__": (lambda obj, x: x + 1 if obj else x - 1, lambda self: False),
    "__eq__": (lambda obj, x: x + 1 if obj == 3 else x - 1, lambda self, other: True),
    "__ne__": (lambda obj, x: x + 1 if obj != 3 else x - 1, lambda self, other: False),
    "__lt__": (lambda obj, x: x + 1 if obj < 3 else x - 1, lambda self, other: True),
    "__hash__": (lambda obj, x: x * (hash(obj) == 5), lambda self: 5),
    "__iter__": (lambda obj, x: x * sum(obj), lambda self: iter([1, 2])),
    "__next__": (lambda obj, x: x * next(obj), lambda self: 4),
    "__reversed__": (lambda obj, x: (x * 1, list(reversed(obj))), lambda self: iter([2])),
    "__neg__": (lambda obj, x: x * -obj, lambda self: 9),
    "__abs__": (lambda obj, x: x * abs(obj), lambda self: 9),
    "__round__": (lambda obj, x: x * round(obj), lambda self: 9),
    "__int__": (lambda obj, x: x * int(obj), lambda self: 9),
    "__float__": (lambda obj, x: x * float(obj), lambda self: 9.0),
    "__index__": (lambda obj, x: x * [1, 2, 3][obj], lambda self: 2),
    "__str__": (lambda obj, x: (x * 1, str(obj)[:2] == "zz"), lambda self: "zz"),
    "__repr__": (lambda obj, x: (x * 1, repr(obj)[:2] == "zz"), lambda self: "zz"),
    "__format__": (lambda obj, x: (x * 1, f"{obj}"[:2] == "zz"), lambda self, spec: "zz"),
    "__enter__": (as_manager, lambda self: 8),
    "__getattr__": (lambda obj, x: x * obj.absent, lambda self, name: 6),
    "__getattribute__": (lambda obj, x: x * obj.present, lambda self, name: 6),
    "__setattr__": (as_attribute, lambda self, name, value: None),
    "callable": (lambda obj, x: x * callable(obj), lambda self: None),
}


@pytest.mark.parametrize("base", [object, dict, list])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_method_patched_in_and_removed(name: str, base: type) -> None:
    use, method = SPECIAL[name]
    name = "__call__" if name == "callable" else name

    def scenario(compile: Compile) -> Any:
        parent = type("Parent", (base,), {"present": 1, "__exit__": lambda self, *error: False})
        child = type("Child", (parent,), {})
        out = []
        for cls in (parent, child):
            obj, called = cls(), compile(lambda obj, x: use(obj, x))
            for change in ("as it is", "patched", "removed", "in the parent", "removed there"):
                if change == "patched":
                    setattr(cls, name, method)
                elif change == "removed":
                    delattr(cls, name)
                elif change == "in the parent":
                    setattr(parent, name, method)
                elif change == "removed there":
                    delattr(parent, name)
                result = outcome(called, obj, t())
                out.append(type(result) if isinstance(result, Exception) else result)
        return [None if isinstance(value, base) and base is not object else value for value in out]

    check_scenario(scenario)


@pytest.mark.parametrize("name, value", [("__bool__", 1), ("__len__", -1), ("__str__", 2), ("__float__", 3)])
def test_special_method_that_gives_the_wrong_class(name: str, value: Any) -> None:
    use = {"__bool__": bool, "__len__": len, "__str__": str, "__float__": float}[name]

    def scenario(compile: Compile) -> Any:
        cls = type("Odd", (), {name: lambda self: value})
        return outcome(compile(lambda obj, x: (x + 1, use(obj))), cls(), t())

    check_scenario(scenario)


def test_own_iteration_of_a_list_is_used_by_builtins() -> None:
    class Backwards(list[Any]):
        def __iter__(self) -> Any:
            return reversed(list(list.__iter__(self)))

    def scenario(compile: Compile) -> Any:
        return compile(lambda items, x: (x * max(items), sum(items), sorted(items), list(items)))(
            Backwards([1, 2]), t()
        )

    check_scenario(scenario)


def test_attribute_of_a_class_appears_in_a_subclass() -> None:
    def scenario(compile: Compile) -> Any:
        class Base:
            data = 2

            @staticmethod
            def static() -> int:
                return 2

            @classmethod
            def made(cls) -> int:
                return 2

            def method(self) -> int:
                return 2

        class Middle(Base):
            pass

        class Leaf(Middle):
            def method(self) -> int:
                return super().method()

        calls = [
            compile(lambda obj, x: x * obj.data),
            compile(lambda obj, x: x * obj.static()),
            compile(lambda obj, x: x * obj.made()),
            compile(lambda obj, x: x * obj.method()),
        ]
        out = [call(Leaf(), t()) for call in calls]
        Middle.data = 3  # type: ignore[misc]
        Middle.static = staticmethod(lambda: 3)  # type: ignore[method-assign, assignment]
        Middle.made = classmethod(lambda cls: 3)  # type: ignore[method-assign, assignment]
        Middle.method = lambda self: 3  # type: ignore[method-assign]
        return out + [call(Leaf(), t()) for call in calls]

    check_scenario(scenario)


def test_method_of_a_list_appears_in_a_subclass() -> None:
    def scenario(compile: Compile) -> Any:
        class Items(list[Any]):
            pass

        called = compile(lambda items, x: x * items.count(1))
        out = [called(Items([1, 1]), t())]
        Items.count = lambda self, value: 7  # type: ignore[method-assign, assignment]
        return out + [called(Items([1, 1]), t())]

    check_scenario(scenario)


@pytest.mark.parametrize("where", ["instance", "class", "module"])
def test_probed_name_appears(where: str) -> None:
    def scenario(compile: Compile) -> Any:
        class Owner:
            pass

        owner = {"instance": Owner(), "class": Owner, "module": types.ModuleType("made_here")}[where]
        has = compile(lambda x: x * 2 if hasattr(owner, "name") else x)
        get = compile(lambda x: x * getattr(owner, "name", 1))
        out = [has(t()), get(t())]
        (Owner if where == "instance" else owner).name = 3  # type: ignore[union-attr]
        return out + [has(t()), get(t())]

    check_scenario(scenario)


def test_dictionary_of_a_class_is_read() -> None:
    def scenario(compile: Compile) -> Any:
        class Owner:
            k = 2

        calls = [
            compile(lambda x: x * Owner.__dict__["k"]),
            compile(lambda x: x * vars(Owner)["k"]),
            compile(lambda x: x * inspect.getattr_static(Owner, "k")),
        ]
        out = [call(t()) for call in calls]
        Owner.k = 3
        return out + [call(t()) for call in calls]

    check_scenario(scenario)


def test_descriptor_and_partialmethod_replaced() -> None:
    def scenario(compile: Compile) -> Any:
        class Constant:
            def __init__(self, value: int) -> None:
                self.value = value

            def __get__(self, obj: Any, cls: Any) -> int:
                return self.value

        class Owner:
            constant: Any = Constant(2)

            def scale(self, k: int, x: torch.Tensor) -> torch.Tensor:
                return x * k

            doubled = functools.partialmethod(scale, 2)

        called = compile(lambda obj, x: (x * obj.constant, obj.doubled(x)))
        out = [called(Owner(), t())]
        Owner.constant = Constant(5)
        out.append(called(Owner(), t()))
        Owner.doubled = functools.partialmethod(Owner.scale, 7)
        return out + [called(Owner(), t())]

    check_scenario(scenario)


def test_isinstance_changes_its_mind() -> None:
    def scenario(compile: Compile) -> Any:
        @typing.runtime_checkable
        class Scales(typing.Protocol):
            def scale(self) -> int: ...

        class Registry(abc.ABC):
            pass

        class Owner:
            pass

        owner: Any = Owner()
        called = compile(lambda obj, x: (x * 2 if isinstance(obj, Scales) else x, isinstance(obj, Registry)))
        out = [called(owner, t())]
        owner.scale = lambda: 1
        out.append(called(owner, t()))
        Registry.register(Owner)
        return out + [called(owner, t())]

    check_scenario(scenario)


def test_subclasses_are_counted_anew() -> None:
    def scenario(compile: Compile) -> Any:
        class Base:
            pass

        called = compile(lambda x: x * len(Base.__subclasses__()) + len(type.__subclasses__(Base)))
        out = [called(t())]

        class Derived(Base):
            pass

        return out + [called(t()), Derived.__name__]

    check_scenario(scenario)


def test_function_registered_with_singledispatch_later() -> None:
    def scenario(compile: Compile) -> Any:
        @functools.singledispatch
        def scale(kind: Any, x: torch.Tensor) -> torch.Tensor:
            return x

        called = compile(lambda kind, x: scale(kind, x))
        out = [called(3, t())]
        scale.register(int, lambda kind, x: x * 9)
        return out + [called(3, t()), called("a", t())]

    check_scenario(scenario)


def test_code_and_defaults_of_functions_replaced() -> None:
    def scenario(compile: Compile) -> Any:
        def helper(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        def root(x: torch.Tensor, n: int = 2) -> torch.Tensor:
            return helper(x) * n

        called = compile(root)
        out = [called(t())]
        helper.__code__ = (lambda x: x * 5).__code__
        out.append(called(t()))
        root.__defaults__ = (3,)
        return out + [called(t())]

    check_scenario(scenario)


def test_global_hides_a_builtin_and_disappears() -> None:
    text = "def fn(x):\n    try:\n        return x * k + len([1, 2])\n    except NameError:\n        return x"

    def scenario(compile: Compile) -> Any:
        namespace: dict[str, Any] = {"k": 2}
        exec(text, namespace)
        called = compile(namespace["fn"])
        out = [called(t())]
        namespace["len"] = lambda items: 9
        out.append(called(t()))
        del namespace["k"]
        out.append(called(t()))
        namespace["k"] = 4
        del namespace["len"]
        return out + [called(t())]

    check_scenario(scenario)


def test_one_code_object_with_two_globals() -> None:
    def scenario(compile: Compile) -> Any:
        code = compile_text("lambda x: x * k")
        functions = [types.FunctionType(code, {"k": k}) for k in (2, 5)]
        called = compile(lambda fn, x: fn(x))
        return [called(fn, t()) for fn in functions]

    def compile_text(text: str) -> types.CodeType:
        found = eval(text).__code__
        assert isinstance(found, types.CodeType)
        return found

    check_scenario(scenario)


def test_method_of_a_builtin_reached_by_super_across_a_break() -> None:
    def scenario(compile: Compile) -> Any:
        class Loud(list[Any]):
            def __contains__(self, value: Any) -> bool:
                return super().__contains__(value) and value > 1

            def extend(self, values: Any) -> None:
                super().extend(map(int, map(float, values)))

        def fn(items: Any, x: torch.Tensor) -> Any:
            items.extend([x.sum().item(), 3])
            return x + 1, 3 in items, 9 in items

        items = Loud([1])
        return [compile(fn)(items, t()) for _ in range(2)], list(items)

    check_scenario(scenario)


@pytest.mark.parametrize("before", [5, len, None])
def test_what_an_instance_hides_becomes_a_property(before: Any) -> None:
    class Settings:
        scale: Any = before

    settings = Settings()
    settings.scale = 4

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + settings.scale

    compiled = jitney.compile(fn, backend="eager")
    assert compiled(torch.zeros(1)) == 4
    Settings.scale = 7
    assert compiled(torch.zeros(1)) == 4
    Settings.scale = property(lambda self: 6)
    assert compiled(torch.zeros(1)) == 6


def test_a_variable_of_a_closure_is_emptied_and_filled() -> None:
    scale: Any = 1

    def fn(x: torch.Tensor, what: str) -> Any:
        nonlocal scale
        if what == "del":
            del scale
        if what == "set":
            scale = 3
        try:
            return x * scale
        except NameError as error:
            return str(error)

    compiled = jitney.compile(fn, backend="eager")
    x = torch.ones(1)
    told = [compiled(x, what) for what in ("", "del", "", "set", "", "del", "")]
    assert [told[at] for at in (0, 3, 4)] == [1, 3, 3]
    assert all(type(told[at]) is str and "scale" in told[at] for at in (1, 2, 5, 6))
