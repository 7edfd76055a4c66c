"""Generators that wait in a ``try`` or ``with``: CPython closes one as soon as nothing that runs leads to it.

Capture keeps what the frame has made (``World.fresh``), and so would keep a generator that such an object holds. While
there is a generator that waits so, the way to it is looked at between instructions. Where no way is left, capture
lets go of the objects that lead there, and CPython's own counts of references do the rest, in CPython's own order. A
generator that is alive all the same is in a cycle, or something else holds it: then the frame runs eagerly.
"""

from __future__ import annotations

import functools
import gc
import itertools
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture.interpreter.frame import ExcInfo, Frame
from jitney.capture.interpreter.generators import InterpretedGenerator, Reentrant, ReentrantIterator
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.kinds import ATOMS, CODE_LIKE

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter
    from jitney.capture.world.record import Record

# Instructions that take nothing from any object, nor from a frame that runs.
KEEPING = frozenset(
    "LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_DEREF LOAD_CLOSURE COPY SWAP PUSH_NULL "
    "RESUME NOP CACHE PRECALL KW_NAMES JUMP_FORWARD JUMP_BACKWARD".split()
)
# Those that write to no object: they may take from the frame that runs, but from nothing else.
READING = KEEPING | frozenset(
    "LOAD_FAST_AND_CLEAR STORE_FAST STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST POP_TOP IS_OP BUILD_TUPLE BUILD_LIST "
    "BUILD_MAP POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE "
    "RETURN_GENERATOR COPY_FREE_VARS MAKE_CELL LOAD_ATTR LOAD_METHOD COMPARE_OP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE "
    "POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE "
    "RETURN_VALUE RETURN_CONST".split()
)
FIXED = (tuple, types.MethodType)  # what such an object holds it holds as long as it lives
LEAVES = (*ATOMS, *(kind for kind in CODE_LIKE if kind not in (types.BuiltinFunctionType, types.MethodWrapperType)),
          torch.Tensor, types.FrameType, types.TracebackType)  # fmt: skip
HINT = "close the generator before it is dropped"


@dataclass(slots=True)
class Way:
    """How a generator is reached: from a frame, a record or the frame's result, by objects that each hold the next.

    Args:
        root: where it begins.
        depth: of the frame.
        links: the objects, the generator last.
        place: where in the frame the first one is: its index on the stack, or the name of a local variable.
        loose: the pairs of a holder and what it holds, where it may let go of that; and whether C code tells of it.
        runs: is one of the holders a generator, whose frame may run and let go of things by itself?
    """

    root: Frame | Record | None
    depth: int
    links: list[Any]
    loose: list[tuple[bool, Any, Any]]
    runs: bool
    place: int | str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.root, Frame):
            self.place = next(self._places(self.root, self.links[0]), None)

    @staticmethod
    def _places(frame: Frame, value: Any) -> Iterator[int | str]:
        """The lowest of the stack is taken first: instructions take from its top."""
        yield from (i for i, held in enumerate(frame.stack) if held is value)
        yield from (name for name, held in frame.locals.items() if held is value)

    def begins(self, frames: list[Frame]) -> bool:
        """Is the first object still in its place? If not, or if it has none, it may be elsewhere in the frame."""
        place, depth = self.place, self.depth
        if place is None or depth >= len(frames) or (frame := frames[depth]) is not self.root:
            return False
        if isinstance(place, int):
            stack = frame.stack
            return len(stack) > place and stack[place] is self.links[0]
        return frame.locals.get(place) is self.links[0]


class WaitingGenerators:
    """Those of one capture, each with the way to it that was found last."""

    def __init__(self, vm: Interpreter) -> None:
        self.vm = vm
        self.ways: dict[int, tuple[weakref.ref[InterpretedGenerator], Way | None]] = vm.waiting
        self.unwound: list[Frame] = []  # whose locals a traceback keeps, who knows how long
        self.result: Any = None  # of the outermost frame

    def check(self, opcode: str = "") -> None:
        """Drop what the program has dropped by the instruction before; called between two instructions."""
        reading, frames = opcode in READING, self.vm.frames
        lost = []
        for key, (reference, way) in list(self.ways.items()):
            if way is not None and (way.begins(frames) or self._begins(way)):
                if (reading and not way.runs) or self._goes_on(way):
                    continue
            way = self._found(reference())
            self.ways[key] = (reference, way)
            if way is None:
                lost.append(reference)
        way = None
        # What only the way found before led to is gone with it, by now.
        if lost := [reference for reference in lost if reference() is not None]:
            self._drop(lost)

    def unwind(self, frame: Frame) -> None:
        """An exception leaves the frame, the locals of which its traceback keeps from now on, but not the stack."""
        self.unwound.append(frame)
        frame.saved = []
        frame.stack.clear()

    def finish(self, value: Any) -> None:
        """The outermost frame has returned a value: what neither this nor a write that waits leads to is dropped."""
        self.result = value
        self.check()

    # ------------------------------------------------------------------ ways

    def _is_running(self, way: Way) -> bool:
        frames = self.vm.frames
        return 0 <= way.depth < len(frames) and frames[way.depth] is way.root

    def _begins(self, way: Way) -> bool:
        """Is the first object elsewhere in what the way begins in?"""
        begin: Iterable[Any]
        if isinstance(way.root, Frame):
            begin = self._of_frame(way.depth) if self._is_running(way) else ()
        else:
            begin = _of_record(way.root) if way.root is not None else [self.result]
        return any(part is way.links[0] for part in begin)

    def _goes_on(self, way: Way) -> bool:
        """Does each object of the way still hold the next?"""
        for of_c, holder, held in way.loose:
            for part in gc.get_referents(holder) if of_c else self._parts(holder):
                if part is held:
                    break
            else:
                return False
        return True

    def _way(self, root: Frame | Record | None, depth: int, links: list[Any]) -> Way:
        pairs = [(a, b) for a, b in itertools.pairwise(links) if type(a) not in FIXED]
        loose = [(self._is_of_c(holder), holder, held) for holder, held in pairs]
        return Way(root, depth, links, loose, any(type(holder) is InterpretedGenerator for holder, _ in pairs))

    def _found(self, generator: InterpretedGenerator | None) -> Way | None:
        """A way to the generator, from the innermost frame that leads there."""
        seen: set[int] = set()
        for depth in range(len(self.vm.frames) - 1, -1, -1):
            if links := self._search(self._of_frame(depth), generator, seen):
                return self._way(self.vm.frames[depth], depth, links)
        for record in list(self.vm.world.records.values()):
            if record.dirty and (links := self._search(_of_record(record), generator, seen)):
                return self._way(record, -1, links)
        links = self._search([self.result], generator, seen)
        return self._way(None, -1, links) if links else None

    def _search(self, begin: Iterable[Any], wanted: Any, seen: set[int]) -> list[Any]:
        """The objects on the shortest way, the wanted one last; nothing if there is none."""
        holders: dict[int, Any] = {}
        todo: deque[Any] = deque()

        def take(parts: Iterable[Any], holder: Any) -> bool:
            for part in parts:
                if id(part) not in seen:
                    seen.add(id(part))
                    holders[id(part)] = holder
                    todo.append(part)
                if part is wanted:
                    return True
            return False

        found = take(begin, None)
        while todo and not found:
            holder = todo.popleft()
            found = take(self._parts(holder), holder)
        links = [wanted] if found else []
        while found and (holder := holders[id(links[-1])]) is not None:
            links.append(holder)
        return links[::-1]

    def _of_frame(self, depth: int) -> Iterator[Any]:
        """What a frame holds by itself; where C code is at work in it, the instruction's operands, too."""
        frame = self.vm.frames[depth]
        yield from reversed(frame.stack)
        yield from frame.locals.values()
        yield from frame.cells.values()
        yield from (frame.func, frame.instance, frame.namespace, frame.generator)
        if depth in self.vm.nesting:
            yield from frame.saved

    def _parts(self, holder: Any) -> Iterable[Any]:
        """What an object of the frame's holds. One from outside holds nothing of the frame's before this has run."""
        kind, world = type(holder), self.vm.world
        if kind in ATOMS or isinstance(holder, torch.Tensor):
            return ()
        if kind is InterpretedGenerator:
            frame = holder.frame
            return [*frame.stack, *frame.locals.values(), *frame.cells.values(), holder.handling]
        if kind in (Reentrant, ReentrantIterator):
            return (holder.fn,) if kind is Reentrant else (holder.value, holder.next)
        if kind is ExcInfo:
            return (holder.current, holder.previous)
        is_fresh = world.is_fresh(holder)
        if kind is types.FunctionType:
            own = (holder.__closure__, holder.__defaults__, holder.__kwdefaults__, vars(holder))
            return own if is_fresh else ()
        if not is_fresh and (world.record_of(holder) is not None or isinstance(holder, LEAVES)):
            return ()
        # Containers and iterators of C code; an instance of a class of Python's only if the frame has made it.
        return gc.get_referents(holder) if is_fresh or not kind.__flags__ & HEAP or kind is functools.partial else ()

    def _is_of_c(self, holder: Any) -> bool:
        """Is it an instance that the frame has made, of which the collector knows all that it holds?"""
        kind = type(holder)
        own = (InterpretedGenerator, Reentrant, ReentrantIterator, ExcInfo, types.FunctionType)
        return kind not in own and self.vm.world.is_fresh(holder)

    # ------------------------------------------------------------------ dropping

    def _drop(self, lost: list[weakref.ref[InterpretedGenerator]]) -> None:
        """Let go of what leads to these, for CPython to close them."""
        world = self.vm.world
        keys, outermost = self._holders(lost)
        if len(lost) > 1 and len(outermost) > 1:
            raise GiveUp("several objects are dropped whose generators wait in a try or with", HINT)
        for key, (reference, _) in self.ways.items():
            self.ways[key] = (reference, None)  # they are looked for anew: what leads to one may be no more the frame's
        for key in keys:
            del world.fresh[key]
            self.vm.cell_owners.pop(key, None)
        for reference in lost:
            self.ways.pop(id(reference()), None)
        outermost.clear()
        left = [generator for reference in lost if (generator := reference()) is not None]
        if any(generator.state == "suspended" for generator in left):
            raise GiveUp("a generator that waits in a try or with may have been dropped", HINT)

    def _holders(self, lost: list[weakref.ref[InterpretedGenerator]]) -> tuple[list[int], list[Any]]:
        """The keys of fresh objects that lead to these generators; and those of them that no other one holds."""
        fresh = self.vm.world.fresh
        holders: dict[int, list[int]] = {}  # id of an object: of those that hold it
        alive = list(fresh.values())
        todo = list(alive)
        seen = set(map(id, todo))
        while todo:
            holder = todo.pop()
            for part in self._parts(holder):
                holders.setdefault(id(part), []).append(id(holder))
                if id(part) not in seen:
                    seen.add(id(part))
                    alive.append(part)
                    todo.append(part)
        leading: set[int] = set()
        ids = [id(reference()) for reference in lost]
        while ids:
            for key in holders.get(ids.pop(), ()):
                if key not in leading:
                    leading.add(key)
                    ids.append(key)
        outermost = [key for key in leading if not leading.intersection(holders.get(key, ()))]
        return [key for key in fresh if key in leading], [fresh[key] for key in outermost if key in fresh]


def _of_record(record: Record) -> list[Any]:
    """What is to be written to an object from outside, and the shadow of what is in it."""
    return [*record.pending, *(record.cell or ()), record.overlay, record.slots, record.shadow]
