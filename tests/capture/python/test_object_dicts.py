"""The ``__dict__`` of an object: shared with others, set, or the object itself, as configurations have it."""

from __future__ import annotations

from typing import Any

import torch
from helpers import check, check_made, check_scenario, t

import jitney


class AttrDict(dict[str, Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class DotDict(dict[str, Any]):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__  # type: ignore[assignment]
    __delattr__ = dict.__delitem__  # type: ignore[assignment]


class Plain:
    a: Any
    b: Any


class Options:
    def __init__(self, **options: Any) -> None:
        self.__dict__ = options


class InPython(dict[str, Any]):
    asked = 0

    def __contains__(self, key: object) -> bool:
        type(self).asked += 1
        return not super().__contains__(key)


def test_attributes_of_a_dictionary_that_is_its_own_dict() -> None:
    def reads(x: torch.Tensor, config: Any) -> Any:
        extra = 1 if hasattr(config, "extra") else 0
        return x * getattr(config, "scale", 1.0) + extra, "scale" in vars(config), getattr(config, "other", None)

    def scenario(compiled: Any) -> Any:
        fn, config = compiled(reads), AttrDict(scale=2.0)
        results = [fn(t(2), config)]
        config.extra = 1
        results.append(fn(t(2), config))
        del config["scale"]
        return [*results, fn(t(2), config)]

    check_scenario(scenario)


def test_writes_to_a_dictionary_that_is_its_own_dict() -> None:
    def make() -> Any:
        config = AttrDict(scale=2.0, calls=0, old=1)

        def writes(x: torch.Tensor) -> Any:
            config.calls += 1
            config["double"] = config.calls * 2
            del config.old
            config.old = 3
            return x * config.scale + config.double, len(config)

        return writes, config

    check_made(make, t(2), calls=3, breaks=0)


def test_a_dictionary_made_in_the_frame_is_its_own_dict() -> None:
    def makes(x: torch.Tensor) -> Any:
        config = AttrDict(scale=3)
        config.more = x
        config["most"] = config.scale + 1
        return config, x * config.most, getattr(config, "other", None)

    check(makes, t(2), breaks=0)


def test_attributes_set_by_a_method_of_dictionaries() -> None:
    def writes(x: torch.Tensor, config: Any) -> Any:
        config.calls = (config.calls or 0) + 1
        config.old = 1
        del config.old
        return x * config.calls, config.missing

    check(writes, t(2), DotDict(scale=2.0), calls=3, breaks=0)


def test_dict_set_to_keyword_arguments() -> None:
    def makes(x: torch.Tensor) -> Any:
        options = Options(a=x, b=2)
        options.c = 3
        return options, x * options.b, vars(options)

    check(makes, t(2), breaks=0)


def test_a_dict_that_is_handed_out_stays_the_objects() -> None:
    def makes(x: torch.Tensor, first: bool) -> Any:
        plain = Plain()
        plain.a = x * 2
        names = vars(plain)
        names["b"] = 1
        return (names, plain) if first else (plain, names)

    def makes_empty(x: torch.Tensor, first: bool) -> Any:
        plain = Plain()
        return (vars(plain), plain) if first else (plain, vars(plain))

    for fn in (makes, makes_empty):
        for first in (True, False):
            made = jitney.compile(fn, backend="eager")(t(2), first)
            names, plain = made if first else made[::-1]
            assert vars(plain) is names


def test_a_key_is_looked_for_past_the_programs_own_contains() -> None:
    def make() -> Any:
        InPython.asked = 0
        return lambda x, d: (x * d.get("a", 2), "b" in d), lambda: InPython.asked

    check_made(make, t(2), InPython(b=1), calls=3)


class Odd(int):
    def __index__(self) -> int:
        return 1


def test_an_integer_is_its_own_index_whatever_its_class_says() -> None:
    check(lambda x, i: (x * 2, [10, 20, 30][i], (1, 2, 3)[i]), t(2), Odd(2))


class Listed(list[int]):
    def __iter__(self) -> Any:
        return iter([7])


class Paired(tuple[int, ...]):
    def __iter__(self) -> Any:
        return iter([7])


def test_membership_goes_past_the_iteration_of_a_class() -> None:
    def asks(x: torch.Tensor, outside: Any) -> Any:
        made, pair = Listed([1, 2]), Paired((1, 2))
        return x * 2, 1 in made, 7 in made, 1 in pair, 7 in pair, 1 in outside, 7 in outside

    check(asks, t(2), Listed([1, 2]))
    check(asks, t(2), Paired((1, 2)))
