"""Methods of a module, called through the compiled one: what they call is compiled, or one warning says that not."""

from __future__ import annotations

import asyncio
import copy
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import jitney
from jitney.runtime.wrappers.inner_calls import SLOT, WATCHED


class Model(nn.Module):
    """Calls itself in all the ways there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.seen: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) + 1

    def generate(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self)
        return self._step(self._step(x))

    def _step(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self(x)
        return found

    def helped(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = call(self, x)
        return found

    def stream(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for _ in range(2):
            x = self(x)
            yield x

    def streams(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        return self.stream(x)

    async def later(self, x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        found: torch.Tensor = self(x)
        return found

    async def stream_later(self, x: torch.Tensor) -> AsyncIterator[torch.Tensor]:
        for _ in range(2):
            x = self(x)
            yield x

    def __getitem__(self, x: torch.Tensor) -> Any:
        return self(x)

    def encode(self, x: torch.Tensor) -> Any:
        return self.layer(x)

    def straight(self, x: torch.Tensor) -> Any:
        return self.forward(x)

    def count(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def fails(self, x: torch.Tensor) -> None:
        self(x)
        raise KeyError("as it is")


def call(model: Any, x: torch.Tensor) -> Any:
    """From elsewhere."""
    return model(x)


async def gathered(items: Any) -> list[Any]:
    return [item async for item in items]


USES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "a method": lambda m, x: m.generate(x),
    "a function that it is given to": lambda m, x: m.helped(x),
    "a generator": lambda m, x: list(m.stream(x)),
    "a generator that is returned": lambda m, x: list(m.streams(x)),
    "a coroutine": lambda m, x: asyncio.run(m.later(x)),
    "an asynchronous generator": lambda m, x: asyncio.run(gathered(m.stream_later(x))),
    "a special method": lambda m, x: m[x],
    "forward": lambda m, x: m.forward(x),
}


class Runs:
    """A backend that counts the runs of its graphs."""

    def __init__(self) -> None:
        self.graphs = 0
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1

        def run(*values: Any) -> Any:
            self.count += 1
            return graph.forward(*values)

        return run


@pytest.mark.parametrize("how", USES)
def test_calls_of_the_module_from_its_methods_are_compiled(how: str) -> None:
    model, x, runs = Model(), torch.ones(2, 2), Runs()
    compiled = jitney.compile(model, backend=runs)
    wanted = USES[how](model, x)
    assert runs.count == 0
    torch.testing.assert_close(USES[how](compiled, x), wanted)
    assert runs.count == (
        1 if how in ("a coroutine", "a special method", "forward", "a function that it is given to") else 2
    )
    assert SLOT not in model.__dict__  # the original is as it was
    before = runs.count
    USES[how](model, x)
    assert runs.count == before and all(seen is model for seen in model.seen)


def test_the_calls_share_what_is_compiled() -> None:
    model, x, runs = Model(), torch.ones(2, 2), Runs()
    compiled = jitney.compile(model, backend=runs)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
            compiled.generate(x)
            compiled.helped(x)
    assert runs.graphs == 1 and runs.count == 12


def test_only_the_thread_that_is_in_the_method_runs_compiled_code() -> None:
    class Waits(Model):
        def both(self, x: torch.Tensor) -> Any:
            other = threading.Thread(target=lambda: found.append(self(x)))
            other.start()
            other.join()
            return self(x)

    found: list[Any] = []
    model, x, runs = Waits(), torch.ones(2, 2), Runs()
    result = jitney.compile(model, backend=runs).both(x)
    torch.testing.assert_close(result, found[0])
    assert runs.count == 1


def test_a_generator_is_the_programs_in_all_else() -> None:
    class Talks(Model):
        def talk(self, x: torch.Tensor) -> Any:
            told = []
            try:
                while True:
                    try:
                        told.append((yield self(x)))
                    except KeyError as error:
                        told.append(error)
                        if len(told) > 2:
                            return told
            finally:
                self.seen.append("closed")

    for wrapped in (lambda m: m, lambda m: jitney.compile(m, backend="eager")):
        model = Talks()
        talk = wrapped(model).talk(torch.ones(2, 2))
        next(talk)
        talk.send("a")
        error = KeyError()
        talk.throw(error)
        with pytest.raises(StopIteration) as end:
            talk.throw(error)
        assert end.value.value == ["a", error, error] and model.seen == ["closed"]
        other = wrapped(model).talk(torch.ones(2, 2))
        next(other)
        other.close()
        assert model.seen == ["closed", "closed"] and SLOT not in model.__dict__


def test_an_error_leaves_the_module_as_it_was() -> None:
    model = Model()
    compiled = jitney.compile(model, backend="eager")
    with pytest.raises(KeyError, match="as it is"):
        compiled.fails(torch.ones(2, 2))
    assert SLOT not in model.__dict__ and SLOT not in model.layer.__dict__


@pytest.mark.parametrize("name", ["encode", "straight"])
def test_a_method_that_runs_parts_uncompiled_warns_once(name: str) -> None:
    model, x = Model(), torch.ones(2, 2)
    compiled = jitney.compile(model, backend="eager")
    with pytest.warns(
        UserWarning, match=rf"Model.{name} runs uncompiled: .* \(layer\).* jitney.compile\(model.{name}\)"
    ) as told:
        getattr(compiled, name)(x)
    assert told[0].filename == __file__
    getattr(compiled, name)(x)  # says nothing
    runs = Runs()
    setattr(model, name, jitney.compile(getattr(compiled, name), backend=runs))
    with torch.no_grad():
        torch.testing.assert_close(getattr(compiled, name)(x), getattr(Model, name)(model, x))
    assert runs.count == 1


def test_methods_that_call_nothing_say_nothing() -> None:
    compiled = jitney.compile(Model(), backend="eager")
    for _ in range(WATCHED + 1):
        assert compiled.count() == 6
    compiled.eval()
    assert [name for name, _ in compiled.named_modules()] == ["", "layer"]


def test_a_copy_made_in_a_method_is_a_plain_module() -> None:
    class Copies(Model):
        def twin(self) -> Any:
            return copy.deepcopy(self), copy.copy(self), self.__dict__.copy()

    model = Copies()
    deep, shallow, _ = jitney.compile(model, backend="eager").twin()
    assert SLOT not in deep.__dict__ and SLOT not in shallow.__dict__


def test_a_class_with_a_call_of_its_own_keeps_it() -> None:
    class Adds(Model):
        def __call__(self, x: torch.Tensor) -> Any:
            return super().__call__(x) + 1

    model, x, runs = Adds(), torch.ones(2, 2), Runs()
    compiled = jitney.compile(model, backend=runs)
    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(compiled.generate(x), model.generate(x))
    assert runs.count == 3
    with pytest.raises(TypeError, match="Adds has a __call__ of its own"):
        jitney.compile(model, inplace=True)


def test_hooks_run_once_for_each_call() -> None:
    calls: list[str] = []
    model, x = Model(), torch.ones(2, 2)
    compiled = jitney.compile(model, backend="eager")
    compiled.register_forward_hook(lambda *args: calls.append("hook"))
    compiled.generate(x)
    compiled(x)
    assert calls == ["hook"] * 3
    compiled.forward(x)
    assert calls == ["hook"] * 3


def test_an_object_whose_method_calls_it_warns() -> None:
    class Callee:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return self(self(x))

        def each(self, xs: list[torch.Tensor]) -> list[torch.Tensor]:
            return [self(x) for x in xs]

        def other(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    compiled, x = jitney.compile(Callee(), backend="eager"), torch.ones(2)
    for name, args in (("twice", x), ("each", [x])):
        with pytest.warns(UserWarning, match=f"{name} runs uncompiled"):
            getattr(compiled, name)(args)
        getattr(compiled, name)(args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled.other(x)


# --- in place --------------------------------------------------------------------------------------------------------


def test_in_place_the_module_stays_what_it_is() -> None:
    model, x, runs = Model(), torch.ones(2, 2), Runs()
    wanted, names = model.generate(x), list(model.state_dict())
    assert jitney.compile(model, backend=runs, inplace=True) is model and type(model) is Model
    torch.testing.assert_close(model.generate(x), wanted)
    torch.testing.assert_close(call(model, x), model(x))
    assert runs.count == 4 and list(model.state_dict()) == names
    parent = nn.Sequential(model)
    torch.testing.assert_close(parent(x), model(x))
    assert runs.count == 6
    torch.testing.assert_close(jitney.compile(parent, backend="eager", fullgraph=True)(x), model(x))


def test_in_place_copies_are_plain_and_a_second_compile_replaces_the_first() -> None:
    model, x, first, second = Model(), torch.ones(2, 2), Runs(), Runs()
    jitney.compile(model, backend=first, inplace=True)
    twin = copy.deepcopy(model)
    twin(x)
    assert first.count == 0 and SLOT not in twin.__dict__
    jitney.compile(model, backend=second, inplace=True)
    model(x)
    assert first.count == 0 and second.count == 1
    jitney.compile(model, backend=first)(x)  # a proxy besides compiles for itself
    assert first.count == 1


def test_in_place_is_for_modules() -> None:
    for target in (torch.sin, jitney.compile(nn.ReLU(), backend="eager")):
        with pytest.raises(TypeError, match="takes a module"):
            jitney.compile(target, inplace=True)


def test_a_module_in_place_is_explained_and_saved(tmp_path: Any) -> None:
    model = jitney.compile(nn.Linear(2, 2), backend="aot_eager", inplace=True)
    with torch.no_grad():
        model(torch.ones(2, 2))
        assert len(jitney.explain(model)(torch.ones(2, 2)).graphs) == 1
    with pytest.raises(TypeError, match="takes a function or module"):
        jitney.save(nn.Linear(2, 2), tmp_path / "file")
