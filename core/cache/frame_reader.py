"""A frame that another process has kept, made again for a call: only if all that it took for granted is so here."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitney.cache.digest import of_code
from jitney.cache.frame_writer import LOOKING, at_name, described, is_fixed, look_up
from jitney.cache.frames import unpack
from jitney.cache.recipes import Reader, Stale, module
from jitney.cache.source_steps import step
from jitney.guards.program import MISS
from jitney.guards.tensors import TensorFact, tensor_check
from jitney.torch_compat.global_state import state_check, state_difference, state_text

# Recipes of objects that are told apart by identity: two of them must not have become one.
BY_IDENTITY = {"path", "source", "module", "globals", "global", "known", "code", "bare_code", "cell", "part"}


class Held(BaseException):
    """Raised in the place of the graph: the guards have held."""


class StoredFrame:
    """One frame from disk, for one call.

    Args:
        content: what ``write_frame`` made.
        known: the objects that it was given by name.
        arguments: the call's, by parameter name: where objects that the guards found are looked for.
        load: ``load(name, kind, frame, data, blobs)``: a compiled graph that a backend has kept.
        revive: ``revive(name, places, layouts, absent, runs, blobs)``: the backward of a graph.
        further: makers of further recipes, as ``Reader`` takes them.

    Raises:
        Stale: it is for another state of the program, or of torch.
        ValueError: it is damaged.
    """

    def __init__(
        self,
        content: bytes,
        known: Mapping[str, Any],
        arguments: Mapping[str, Any],
        load: Callable[..., Any],
        revive: Callable[..., Any],
        further: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        data, blobs = unpack(content)
        now = state_text()
        if data["state"] != now:
            raise Stale(state_difference(data["state"], now))
        self.data = data
        self.source: str = data["source"]
        self.report = blobs[data["report"]]
        self.arguments = arguments
        kinds: dict[str, Callable[..., Any]] = {
            "source": self._at,
            "code": self._code,
            "bare_code": self._bare_code,
            "part": self._part,
            "constant": _constant,
            "cell": lambda reader, i, function: reader.make(function).__closure__[i],
            "global": lambda reader, owner, name: getattr(module(owner), name),
            "backend": lambda reader, name, kind, frame, data, numbers: load(
                name, kind, frame, data, tuple(reader.blobs[n] for n in numbers)
            ),
            "backward": lambda reader, facts, numbers: revive(
                *reader.make_all(facts), [reader.blobs[n] for n in numbers]
            ),
            **(further or {}),
        }
        self.reader = Reader(data["objects"], blobs, known, kinds)
        self.has_graph = data["graph"] is not None
        self.namespace: dict[str, Any] = {}
        try:
            self._make()
        except BaseException:
            self.discard()
            raise

    def _make(self) -> None:
        data = self.data
        self._check_taken()
        self.reader.make_all(data["functions"])
        for cls, other, answer in data["subclasses"]:
            if issubclass(self.reader.make(cls), self.reader.make(other)) is not answer:
                raise Stale("an abstract class has other subclasses")
        self.namespace.update(self.reader.space(data["space"]))
        self.facts = [self._fact(*row) for row in data["tensors"]]
        self._check_apart()
        self.namespace.update(_state=state_check(), _tensors=self._first_check, _graph=_reached, _held=_reached)

    @property
    def fixed(self) -> bool:
        """See ``FrameWriter.fixed``."""
        return is_fixed(self.data["objects"])

    @property
    def bound(self) -> tuple[int, ...]:
        """The ids of the objects that were looked for: what tells two frames apart that were made of one."""
        return tuple(id(value) for n, value in self.reader.made.items() if self.data["objects"][n][0] in LOOKING)

    def graph(self) -> Any:
        """The compiled graph, made again; what it is made of may be ``Stale``."""
        return self.reader.make(self.data["graph"])

    def forget(self) -> None:
        """Let go of the call, whose arguments must not live as long as the frame."""
        self.arguments = {}
        for part in ("reader", "data"):
            self.__dict__.pop(part, None)

    def discard(self) -> None:
        """Let go of all: the frame is not used, and waits for no collector to drop what it was tried on."""
        self.forget()
        self.namespace.clear()

    def _first_check(self, *tensors: Any) -> bool:
        """The first check of tensors, which makes the one that later calls use of the tensors that pass."""
        if len(tensors) != len(self.facts) or not all(f.holds(t) for f, t in zip(self.facts, tensors, strict=True)):
            return False
        if len({*map(id, tensors)}) != len(tensors):
            return False
        check = tensor_check(tensors, self.facts)
        if not check(*tensors):
            return False
        self.namespace["_tensors"] = check
        return True

    def _fact(self, cls: int, dtype: int, device: int, grad: bool, keys: str, *rest: Sequence[Any]) -> TensorFact:
        made = self.reader.make
        sizes, strides = map(tuple, rest)
        return TensorFact(made(cls), made(dtype), made(device), grad, keys, sizes, strides)

    def _check_taken(self) -> None:
        for owner, path, name, expected in self.data["taken"]:
            module(owner)
            if described(self.reader.prints, look_up(owner, path, name)) != expected:
                raise Stale(f"{owner}.{path + '.' * bool(path)}{name} is not what it was")
        for owner, path, names in self.data["lacking"]:
            module(owner)
            space = getattr(at_name(owner, path), "__dict__", None)
            if space is None or any(name in space for name in names):
                raise Stale(f"{owner}.{path} has got names that it lacked")

    def _check_apart(self) -> None:
        made = self.reader.made
        apart = [made[n] for n in made if self.data["objects"][n][0] in BY_IDENTITY]
        if len({*map(id, apart)}) != len(apart):
            raise Stale("two objects have become one")

    # ------------------------------------------------------------------ recipes of a frame's own

    def _at(self, reader: Reader, root: Any, steps: Sequence[Any], expected: str) -> Any:
        return reader.check(self._walk(reader, root, steps), expected)

    def _code(self, reader: Reader, root: Any, steps: Sequence[Any], expected: str) -> Any:
        """The code of a function that may be another one in each call."""
        function = self._walk(reader, root, steps)
        if type(function) is not types.FunctionType:
            raise Stale("no function where there was one")
        return reader.check(function, expected).__code__

    def _bare_code(self, reader: Reader, root: Any, steps: Sequence[Any], expected: str) -> Any:
        """The code of a function of which only that is certain: of the ``__exit__`` of a block that a break is in."""
        function = self._walk(reader, root, steps)
        if type(function) is not types.FunctionType or of_code(function.__code__) != expected:
            raise Stale("another function, or none, where there was one")
        return function.__code__

    def _walk(self, reader: Reader, root: Any, steps: Sequence[Any]) -> Any:
        value = self.arguments[root] if isinstance(root, str) else reader.make(root)
        for kind, key in steps:
            try:
                value = step(value, kind, reader.make(key))
            except Exception as error:  # of torch's and the standard library's code, such as a module's ``__getattr__``
                raise Stale(f"{type(error).__name__}: {error}") from None
        return value

    @staticmethod
    def _part(reader: Reader, part: str, owner: int) -> Any:
        value = reader.make(owner)
        return value.__dict__.keys() if part == "keys" else getattr(value, part)


def _constant(reader: Reader, owner: int, expected: str, way: Sequence[int]) -> Any:
    """The code of a function that is made while other code runs."""
    found = reader.make(owner)
    if of_code(found) != expected:
        raise Stale(f"{found.co_qualname:.80} is not what it was")
    for index in way:
        found = found.co_consts[index]
    return found


def _reached(*inputs: Any) -> Any:
    raise Held


def holds(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Do the guards of an emitted function, whose graph is not there yet, hold for a call?"""
    try:
        return function(*args, **kwargs) is not MISS
    except Held:
        return True


def without_graph(function: types.FunctionType) -> types.FunctionType:
    """An emitted function for ``holds``, whose graph is there and is not to run."""
    space = {**function.__globals__, "_graph": _reached, "_held": _reached}
    made = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made
