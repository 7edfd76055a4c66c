"""What C code runs of the program while a frame is captured: such frames stay in their process."""

from __future__ import annotations

import cProfile
import sys

import pytest
import torch
from cache.again import run

from jitney.guards.reentry import is_hooked, is_plain, watch_reentry

# What C code enters of a class made by ``mk``, and the use that enters it; ``k`` is the closure's.
ENTERED = {
    "__class_getitem__": ("class A:\n  def __class_getitem__(cls, i): return k", "x * A[0]"),
    "__eq__ and __hash__ of a key": (
        "class A:\n  def __hash__(self): return 1\n  def __eq__(self, o): return k > 2",
        "x * len({A(): 1, A(): 2})",
    ),
    "__index__ of a bound": ("class A:\n  def __index__(self): return k", "x * len([1, 2, 3, 4, 5][: A()])"),
    "__index__ of a tensor's bound": ("class A:\n  def __index__(self): return k - 1", "x[: A()] * 2"),
    "__format__": ("class A:\n  def __format__(self, f): return 'a' * k", "x * len('{:3}'.format(A()))"),
    "__missing__": ("class B(dict):\n  def __missing__(self, q): return k\nA = B", "x * A()['q']"),
    "__set_name__": (
        "class B:\n  def __set_name__(self, o, n): self.v = k\n  def __get__(self, o, t): return self.v\nA = B",
        "x * type('Q', (), {'z': A()})().z",
    ),
    "__init_subclass__": ("class A:\n  def __init_subclass__(cls): cls.z = k", "x * type('Q', (A,), {}).z"),
    "__missing__ of an enumeration": (
        "import enum\nclass A(enum.Enum):\n  g = 2\n  h = 3\n  @classmethod\n  def _missing_(cls, v):"
        " return cls.g if k == 2 else cls.h",
        "x * A(9).value",
    ),
    "__eq__ of a member of a set": (
        "class A:\n  def __hash__(self): return 1\n  def __eq__(self, o): return k > 2",
        "x * len(set([A(), A()]))",
    ),
    "a key of a dictionary from outside": (
        "class B:\n  def __hash__(self): return 1\n  def __eq__(self, o): return k > 2\nA = {B(): 2, 'x': 3}",
        "x * len({**A, **A})",
    ),
    "__instancecheck__": (
        "class M(type):\n  def __instancecheck__(cls, o): return k > 2\nclass A(metaclass=M): pass",
        "x * (2 if isinstance(3, A) else 3)",
    ),
    "__len__ of a metaclass": (
        "class M(type):\n  def __len__(cls): return k\nclass A(metaclass=M): pass",
        "x * len(A)",
    ),
    "__torch_function__": (
        "class A:\n  @classmethod\n  def __torch_function__(cls, f, t, a=(), kw=None): return a[0] * k",
        "x.add(A())",
    ),
}


@pytest.mark.parametrize("name", ENTERED)
def test_what_c_code_enters_is_not_served_with_another_closure(name: str) -> None:
    made, use = ENTERED[name]
    made = made.replace("\n", "\n  ")
    text = f"def mk(k):\n  {made}\n  return A\nA = mk(NUMBER)\ndef fn(x): return {use}\n"
    text += "def arguments(): return [torch.arange(4.) + 1]\n"
    for number in (2, 3, 2):
        found, expected, story = run(text.replace("NUMBER", str(number)))
        torch.testing.assert_close(found, expected, msg=f"{number}: {story.steps}")


def test_a_frame_that_c_code_enters_no_code_in_is_kept() -> None:
    text = """
        class Key:
            def __init__(self, n): self.n = n
            def double(self): return self.n * 2
        keys = [Key(1), Key(2)]
        def fn(x): return x * sum(k.double() for k in keys) + len({k: 1 for k in keys}) + keys[0].n
        def arguments(): return [torch.arange(4.)]
    """
    assert run(text)[2].steps[-1] == "stored"
    found, expected, story = run(text)
    torch.testing.assert_close(found, expected)
    assert story.loaded


def test_capture_may_ask_for_the_class_of_an_object_with_its_own_attribute_access() -> None:
    text = """
        class Settings:
            def __init__(self): self.k = 2
            def __getattribute__(self, name):
                if name == "old": name = "k"
                return super().__getattribute__(name)
        settings = Settings()
        def fn(x): return x * settings.old
        def arguments(): return [torch.arange(4.)]
    """
    assert run(text)[2].steps[-1] == "stored"
    assert run(text)[2].loaded


# ------------------------------------------------------------------ the watch itself


class Plain:
    """Has nothing that C code would call."""

    def method(self) -> int:
        return 1


class Hooked:
    """A key with a hash of its own."""

    def __hash__(self) -> int:
        return 1


class Derived(Hooked): ...


class Meta(type):
    def __len__(cls) -> int:
        return 1


class WithMeta(metaclass=Meta): ...


def test_classes_with_special_methods_in_python_are_hooked() -> None:
    assert [is_hooked(c) for c in (Hooked, Derived, WithMeta)] == [True] * 3
    assert [is_hooked(c) for c in (Plain, int, dict, torch.nn.Linear, torch.Tensor)] == [False] * 5


def test_values_that_lead_to_no_code_of_the_programs_are_plain() -> None:
    assert all(map(is_plain, (1, "a", [1, (2.0, None)], {"a": torch.ones(1)}, torch.relu, [].append, slice(1), int)))
    assert not any(map(is_plain, (Plain(), [Plain()], {Plain(): 1}, Plain, is_hooked.__get__(1), [[[[[1]]]]], Meta)))


def test_a_watch_sees_the_programs_code_only() -> None:
    with watch_reentry() as watch, watch:
        torch.nn.Linear(1, 1)
    assert watch.entered == ""
    with watch_reentry() as watch, watch:
        hash(Hooked())
    assert watch.entered == "Hooked.__hash__, which C code has called"


class Asked:
    """Has its own idea of attributes."""

    def __getattribute__(self, name: str) -> object:
        return super().__getattribute__(name)


def test_asking_for_an_objects_class_is_harmless() -> None:
    value: object = Asked()
    with watch_reentry() as watch, watch:
        assert not isinstance(value, str)
    assert watch.entered == ""
    with watch_reentry() as watch, watch:
        hasattr(value, "other")
    assert watch.entered == "Asked.__getattribute__, which C code has called"


def test_a_watch_gives_the_profile_function_back() -> None:
    with watch_reentry() as watch, watch, watch:
        hash(Plain())
    assert sys.getprofile() is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="profilers and others see side by side")
def test_beside_a_profiler_nothing_is_certain() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with watch_reentry() as watch, watch:
            hash(1)
        assert sys.getprofile() is profiler
    finally:
        profiler.disable()
    assert "profiler" in watch.entered
