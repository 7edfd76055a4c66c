"""How the emitted code makes again, for real, the objects that capture made: one small rule per kind of object."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import operator
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture import policy
from jitney.capture.builtin_iterators import VIEWS
from jitney.capture.codegen.graph_runner import InferenceScope
from jitney.capture.codegen.rebuild_iterators import ITERATORS, finished, rebuilt_iterator
from jitney.capture.interpreter import tracebacks
from jitney.capture.interpreter.exception_context import go_on_outside
from jitney.capture.interpreter.frame import NULL, ExcInfo
from jitney.capture.interpreter.generators import InterpretedGenerator, Reentrant, ReentrantIterator
from jitney.capture.interpreter.iterators import OutsideIterator
from jitney.capture.interpreter.resume import generator_code, layout_of, stack_kinds
from jitney.capture.interpreter.resume_serialization import Made
from jitney.capture.interpreter.signals import Break, GiveUp, Restart
from jitney.capture.kinds import ATOMS, CODE_LIKE, METADATA, STAND_INS, is_stand_in
from jitney.capture.numpy.dtypes import DTYPE_CLASSES, SCALARS
from jitney.capture.numpy.memory import as_readonly
from jitney.capture.numpy.stand_in import Array, ArrayMethod
from jitney.capture.python import type_slots
from jitney.capture.python.c_boundary import C_METHOD, OWN_TYPES
from jitney.capture.python.containers import SequenceView
from jitney.capture.torch.autograd import tape
from jitney.capture.torch.parameters import as_buffer, as_parameter
from jitney.capture.world.record import CONTENT_TYPES
from jitney.capture.world.set_order import is_like, ordered_set, table_size
from jitney.guards import Pool, Program
from jitney.torch_compat import torch_private
from jitney.torch_compat.autograd_engine import with_used_up_graph
from jitney.torch_compat.subclasses import of_class

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter


# C objects that may stand in emitted code as themselves: they never change.
UNCHANGING = (
    *CODE_LIKE, *METADATA, *ATOMS, types.FunctionType, torch.device, torch.Generator, range, slice, frozenset, tuple,
    types.GenericAlias, types.UnionType, torch.finfo, torch.iinfo, re.Pattern, re.Match, types.MethodType,
    type(functools.lru_cache(lambda: None)), weakref.ref, BaseException, torch.Tensor,
    *DTYPE_CLASSES, *SCALARS,
)  # fmt: skip


class Rebuilder:
    """Lines that rebuild values, in order; an object is rebuilt once, so aliasing and cycles survive."""

    def __init__(self, vm: Interpreter, pool: Pool, program: Program) -> None:
        self.vm = vm
        self.pool = pool
        self.program = program
        self.lines: list[str] = []
        self.after: dict[str, list[str]] = {}  # names, and what makes them once all is written
        self.outputs: list[Any] = []
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []
        self.made: dict[int, Made] = {}  # by id: how code was made of the user's
        self.owners = {id(r.content): r for r in vm.world.records.values() if r.content is not None}
        self.goes_on = False  # is there a rest of the frame, which runs after the graph?
        self._count = 0

    def expr(self, value: Any) -> str:
        """Python text whose value is the real counterpart of ``value``."""
        kind = type(value)
        if kind in ATOMS:
            return self.pool.name(value)
        found = self.names.get(id(value))
        if found is not None:
            return found
        record = self.vm.world.record_of(value) or self.owners.get(id(value))
        if record is not None:
            return self.remember(value, self.program.expression(record.source))
        return self._rule(value, kind)(value)

    def _rule(self, value: Any, kind: type) -> Callable[[Any], str]:
        rule = RULES.get(kind)
        if rule is None:
            if kind in VIEWS:
                rule = Rebuilder._view
            elif kind in STAND_INS:
                rule = Rebuilder._tensor
            elif kind in ITERATORS:
                rule = rebuilt_iterator
            elif isinstance(value, type) and self.vm.world.is_fresh(value):
                rule = Rebuilder._fresh_class
            elif isinstance(value, BaseException):
                rule = Rebuilder._exception
            elif not isinstance(getattr(kind, "__next__", None), types.FunctionType | None):
                rule = rebuilt_iterator
            elif isinstance(value, (bytearray, memoryview, types.MappingProxyType)):
                rule = Rebuilder._refused
            elif isinstance(value, enum.Enum) or (not self.vm.world.is_fresh(value) and not isinstance(value, tuple)):
                rule = Rebuilder._constant
            else:
                rule = Rebuilder._instance
        return functools.partial(rule, self)

    def remember(self, value: Any, name: str) -> str:
        """``name`` stands for ``value`` from now on."""
        self.names[id(value)] = name
        self.kept.append(value)
        return name

    def assign(self, value: Any, text: str, late: bool = False) -> str:
        """Bind ``text`` to a new variable that stands for ``value`` from now on; ``late``: once all is written.

        What is made of its parts may have been made meanwhile, where one of them leads back to it.
        """
        found = self.names.get(id(value))
        if found is not None:
            return found
        name = f"_r{self._count}"
        self._count += 1
        if late:
            self.after[name] = [f"{name} = {text}"]
        else:
            self.lines.append(f"{name} = {text}")
        return self.remember(value, name)

    def each(self, values: Any) -> str:
        """The values as items of a display, each followed by a comma."""
        return "".join(f"{self.expr(v)}, " for v in values)

    def constant(self, value: Any) -> str:
        """The name of an object that the emitted code holds on to."""
        return self.pool.name(value)

    # ------------------------------------------------------------------ tensors and numbers

    def _tensor(self, value: Any) -> str:
        source = self.vm.tracer.source_of(value)
        if source is not None:
            return self.remember(value, self.program.expression(source))
        used_up = tape.used_up(self.vm.tracer, value)
        self.outputs.append(tape.detached(self.vm.tracer, value) if used_up else value)
        output = text = f"_o{len(self.outputs) - 1}"
        if used_up:
            text = f"{self.constant(with_used_up_graph)}({text}, ({self._ways_back(value)}))"
        elif isinstance(value, torch.nn.Parameter):
            text = f"{self.constant(as_parameter)}({text}, {value.requires_grad})"
        elif isinstance(value, torch.nn.Buffer):
            text = f"{self.constant(as_buffer)}({text}, {value.persistent!r})"
        if (cls := self.vm.tracer.rules.classes.get(id(value))) is not None:
            if value.requires_grad and value.is_leaf:
                raise Break(f"a {cls.__qualname__} that requires gradients is made")
            text = f"{self.constant(of_class)}({text}, {self.constant(cls)})"
        text = self.remember(value, output) if text == output else self.assign(value, text)
        for name, found in self.vm.tracer.attributes.get(id(value), {}).items():
            self.lines.append(f"_b.object.__setattr__({text}, {name!r}, {self.expr(found)})")
        gradient = self.vm.tracer.tape.gradients.get(id(value))
        if gradient is not None:
            self.lines.append(f"{text}.grad = {self.expr(gradient)}")
        return text

    def _ways_back(self, value: Any) -> str:
        """The leaves from outside that the rest of a frame may ask for gradients; who gets a result keeps none."""
        if not self.goes_on:
            return ""
        return self.each([leaf for leaf in tape.leaves((value,)) if self.vm.tracer.source_of(leaf) is not None])

    def _array(self, value: Array) -> str:
        """An array over the tensor's memory, or a scalar with its value."""
        if value.source is not None:
            return self.remember(value, self.program.expression(value.source))
        text = self.vm.elsewhere.text(value.tensor, self.expr(value.tensor), self.vm.tracer.outside())
        if value.scalar:
            text += "[()]"
        elif value.readonly:
            text = f"{self.constant(as_readonly)}({text})"
        return self.assign(value, text)

    def _array_method(self, value: ArrayMethod) -> str:
        return self.assign(value, f"({self.expr(value.owner)}).{value.name}")

    def _key_function(self, value: Any) -> str:
        """What ``functools.cmp_to_key`` gives for a function that capture has handed to it."""
        inner = gc.get_referents(value)
        compare = next((part.fn for part in inner if type(part) is Reentrant), None)
        if compare is None or len([part for part in inner if part is not KEY_FUNCTION]) != 1:
            raise Break("a key made by functools.cmp_to_key is needed after the graph")
        return self.assign(value, f"{self.constant(functools.cmp_to_key)}({self.expr(compare)})")

    def _scope(self, value: InferenceScope) -> str:
        self.outputs.append(value)
        return self.remember(value, f"_o{len(self.outputs) - 1}")

    def _symbol(self, value: Any) -> str:
        if not self.vm.symbols.is_known(value):
            self.outputs.append(value)
            return self.remember(value, f"_o{len(self.outputs) - 1}")
        return f"({self.vm.symbols.text(value, self.program.expression)})"

    # ------------------------------------------------------------------ containers

    def _leaf(self, value: Any) -> bool:
        return type(value) in ATOMS or is_stand_in(value) or id(value) in self.names

    def _tuple(self, value: Any) -> str:
        if type(value) is tuple and not value:
            return "()"
        return self.assign(value, f"({self.each(value)})")

    def _list(self, value: Any) -> str:
        if all(map(self._leaf, value)):
            return self.assign(value, f"[{self.each(value)}]")
        name = self.assign(value, "[]")
        self.lines.append(f"{name}.extend(({self.each(value)}))")
        return name

    def _set(self, value: Any) -> str:
        self.vm.world.set_orders.read(value)
        items, kind = self.each(value), self.constant(type(value))
        if is_like(type(value)(list(value)), list(value), table_size(value)) or not all(map(self._leaf, value)):
            return self.assign(value, f"{kind}(({items}))")
        return self.assign(value, f"{self.constant(ordered_set)}({kind}, ({items}), {table_size(value)})")

    def _pairs(self, value: Any) -> str:
        return "{" + ", ".join(f"{self.expr(k)}: {self.expr(v)}" for k, v in value.items()) + "}"

    def _dict(self, value: Any) -> str:
        if all(map(self._leaf, value.values())) and all(map(self._leaf, value)):
            return self.assign(value, self._pairs(value))
        name = self.assign(value, "{}")
        self.lines.append(f"{name}.update({self._pairs(value)})")
        return name

    def _ordered(self, value: Any) -> str:
        name = self.assign(value, f"{self.constant(collections.OrderedDict)}()")
        self.lines.append(f"{name}.update({self._pairs(value)})")
        self._own_attributes(name, value)
        return name

    def _own_attributes(self, name: str, value: Any) -> None:
        """What was written to an object of a C class that has a ``__dict__``, such as ``state_dict()._metadata``."""
        for key, attribute in vars(value).items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.expr(attribute)}")

    def _defaultdict(self, value: Any) -> str:
        factory = self.expr(value.default_factory)
        name = self.assign(value, f"{self.constant(collections.defaultdict)}({factory})")
        self.lines.append(f"{name}.update({self._pairs(value)})")
        return name

    def _deque(self, value: Any) -> str:
        name = self.assign(value, f"{self.constant(collections.deque)}((), {value.maxlen!r})")
        self.lines.append(f"{name}.extend(({self.each(value)}))")
        return name

    def _slice(self, value: Any) -> str:
        return f"_b.slice({self.each((value.start, value.stop, value.step))})"

    def _size(self, value: Any) -> str:
        if all(type(v) is int for v in value):
            return self.pool.object(value)
        return f"{self.constant(torch.Size)}(({self.each(value)}))"

    def _view(self, value: Any) -> str:
        owner = next(r for r in gc.get_referents(value) if isinstance(r, dict))
        return self.assign(value, f"{self.expr(owner)}.{VIEWS[type(value)]}()")

    # ------------------------------------------------------------------ functions and their parts

    def _cell(self, value: types.CellType) -> str:
        name = self.assign(value, f"{self.constant(types.CellType)}()")
        try:
            content = value.cell_contents
        except ValueError:
            return name
        self.lines.append(f"{name}.cell_contents = {self.expr(content)}")
        return name

    def _function(self, value: types.FunctionType) -> str:
        if not self.vm.world.is_fresh(value):
            return self.constant(value)
        closure = "None" if not value.__closure__ else f"({self.each(value.__closure__)})"
        if id(value) in self.names:  # a recursive function: its own cell has made it
            return self.names[id(value)]
        parts = [
            self.pool.object(value.__code__),
            self.pool.object(value.__globals__, "globals"),
            repr(value.__name__),
            self.expr(value.__defaults__),
            closure,
        ]
        name = self.assign(value, f"{self.constant(types.FunctionType)}({', '.join(parts)})")
        if value.__kwdefaults__:
            self.lines.append(f"{name}.__kwdefaults__ = {self._pairs(value.__kwdefaults__)}")
        if value.__annotations__:
            self.lines.append(f"{name}.__annotations__ = {self.expr(value.__annotations__)}")
        for field in ("__qualname__", "__doc__", "__module__"):
            ours = getattr(value, field)
            plain = {"__qualname__": value.__code__.co_qualname, "__module__": value.__globals__.get("__name__")}
            if ours != plain.get(field, _doc(value.__code__)):
                self.lines.append(f"{name}.{field} = {self.pool.object(ours)}")
        if value.__dict__:
            self.lines.append(f"{name}.__dict__.update({self._pairs(value.__dict__)})")
        return name

    def _method(self, value: types.MethodType) -> str:
        if type(value.__self__) in OWN_TYPES:
            return self.assign(value, f"{self.expr(value.__self__)}.{value.__func__.__name__}")
        text = f"{self.constant(types.MethodType)}({self.expr(value.__func__)}, {self.expr(value.__self__)})"
        return self.assign(value, text)

    def _builtin(self, value: Any) -> str:
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType | type) or policy.is_free(value):
            return self.constant(value)
        found = [vars(c)[value.__name__] for c in type(owner).__mro__ if value.__name__ in vars(c)]
        for hidden in found[1:] if found and type(found[0]) is types.FunctionType else ():  # reached by super()
            if type(hidden) in (types.MethodDescriptorType, types.WrapperDescriptorType):
                return self.assign(value, f"{self.constant(hidden)}.__get__({self.expr(owner)})")
        return self.assign(value, f"({self.expr(owner)}).{value.__name__}")

    def _partial(self, value: Any) -> str:
        text = f"{self.constant(functools.partial)}({self.expr(value.func)}, {self.each(value.args)}"
        name = self.assign(value, f"{text}**{self._pairs(value.keywords)})")
        self._own_attributes(name, value)
        return name

    def _property(self, value: Any) -> str:
        if not self.vm.world.is_fresh(value):
            return self.constant(value)
        return self.assign(value, f"_b.property({self.each((value.fget, value.fset, value.fdel, value.__doc__))})")

    def _getter(self, value: Any) -> str:
        """operator.itemgetter and its like: a class, or a partial of it, and arguments."""
        if not self.vm.world.is_fresh(value):
            return self.constant(value)
        made, args = value.__reduce__()
        named = made.keywords if isinstance(made, functools.partial) else {}
        args = (*made.args, *args) if isinstance(made, functools.partial) else args
        return self.assign(value, f"{self.constant(type(value))}({self.each(args)}**{self._pairs(named)})")

    def _lazy_of_class(self, value: Any) -> str:
        if not self.vm.world.is_fresh(value):
            return self.constant(value)
        return self.assign(value, f"{self.constant(type(value))}({self.expr(value.fget)})")

    def _wrapper(self, value: Any) -> str:
        return self.assign(value, f"{self.constant(type(value))}({self.expr(value.__func__)})")

    def _super(self, value: Any) -> str:
        return self.assign(value, f"_b.super({self.expr(value.__thisclass__)}, {self.expr(value.__self__)})")

    def _reentrant(self, value: Reentrant) -> str:
        return self.expr(value.fn)

    def _reentrant_iterator(self, value: ReentrantIterator) -> str:
        return self.expr(value.value)

    def _outside_iterator(self, value: OutsideIterator) -> str:
        return self.expr(value.iterator)

    def _weakref(self, value: Any) -> str:
        return self.assign(value, f"{self.constant(weakref.ref)}({self.each((value(), value.__callback__))})")

    # ------------------------------------------------------------------ instances

    def _constant(self, value: Any) -> str:
        cls = type(value)
        if cls.__name__ == "SRE_Scanner" or not (cls.__flags__ & (1 << 9) or isinstance(value, UNCHANGING)):
            raise GiveUp(f"a {cls.__qualname__} is needed after the graph")
        if isinstance(value, torch.Tensor):
            raise GiveUp("a tensor reached the emitted code without a source; this is a bug of jitney's")
        return self.constant(value)

    def _refused(self, value: Any) -> str:
        raise GiveUp(f"a {type(value).__qualname__} is needed after the graph")

    def _sequence(self, value: Any) -> str:
        return self.expr(value.value)

    def _fresh_class(self, value: type) -> str:
        step = self.vm.world.class_steps.get(id(value))
        if step is None:
            raise GiveUp(f"the class {value.__qualname__} cannot be made again")
        raise Restart(
            step, f"the class {value.__qualname__} is still needed after the graph", "define it at the top of the file"
        )

    def _instance(self, value: Any) -> str:
        """An object made by capture: allocate without ``__init__``, then fill in content and attributes."""
        cls = type(value)
        made = self.expr(cls)
        if hasattr(cls, "n_fields") and issubclass(cls, tuple):
            return self.assign(value, f"{made}(({self.each(value)}))")
        base = next((b for b in (tuple, int, float, str, frozenset, bytes, complex) if issubclass(cls, b)), None)
        if base is not None:
            content = self.expr(base(value))
            name = self.assign(value, f"{self.constant(base)}.__new__({made}, {content})")
        elif issubclass(cls, CONTENT_TYPES):
            name = self._filled(value, made)
        else:
            plain: Any = types.SimpleNamespace if issubclass(cls, types.SimpleNamespace) else object
            name = self.assign(value, f"{self.constant(plain)}.__new__({made})")
        self._attributes(value, name)
        return name

    def _filled(self, value: Any, made: str) -> str:
        kinds = (collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque)
        base: Any = next(b for b in kinds if isinstance(value, b))
        text = self.constant(base)
        name = self.assign(value, f"{text}.__new__({made})")
        if isinstance(value, dict):
            if isinstance(value, collections.defaultdict):
                self.lines.append(f"{name}.default_factory = {self.expr(value.default_factory)}")
            pairs = "".join(f"({self.expr(k)}, {self.expr(v)}), " for k, v in base.items(value))
            self.lines.append(f"for _k, _x in ({pairs}): {text}.__setitem__({name}, _k, _x)")
        else:
            items = self.each(list(base.__iter__(value)))
            self.lines.append(f"{text}.{'update' if base is set else 'extend'}({name}, ({items}))")
        return name

    def _attributes(self, value: Any, name: str) -> None:
        storage = type_slots.own_namespace(value)
        if storage is not None and (type(storage) is not dict or id(storage) in self.names):  # also something else's
            if isinstance(value, types.SimpleNamespace):  # which keeps its own
                raise GiveUp("the __dict__ of a types.SimpleNamespace is needed after the graph, before the namespace")
            self.lines.append(f"{self.constant(object)}.__setattr__({name}, '__dict__', {self.expr(storage)})")
        elif storage is not None:
            self.remember(storage, f"{name}.__dict__")
            self.lines += [f"{name}.__dict__.update({self._pairs(storage)})"] if storage else []
        for slot, found in _slots(value).items():
            self.lines.append(f"{self.constant(object)}.__setattr__({name}, {slot!r}, {self.expr(found)})")

    def _exception(self, value: BaseException) -> str:
        """Made by the C class below the program's, whose own ``__new__`` has run."""
        cls: Any = type(value)
        base = cls
        while base.__flags__ & HEAP:
            base = base.__base__
        given = ""
        if isinstance(value, BaseExceptionGroup):
            given = f"{value.message!r}, {self.expr(value.exceptions)}"
        name = self.assign(value, f"{self.constant(base)}.__new__({self.expr(cls)}, {given})")
        plain: Any = vars(BaseException)  # not by the attribute, for which the class may have special methods
        for field in ("args", "__cause__", "__context__", "__suppress_context__", "__traceback__"):
            found = plain[field].__get__(value)
            if found or field == "__suppress_context__":  # a cause sets it too
                self.lines.append(f"_b.BaseException.{field}.__set__({name}, {self.expr(found)})")
        if id(value) in self.vm.raised_at and plain["__context__"].__get__(value) is None:
            self.lines.append(f"{self.constant(go_on_outside)}({name})")
        for owner, field, found in _fields(value):
            self.lines.append(f"{self.expr(owner)}.__dict__[{field!r}].__set__({name}, {self.expr(found)})")
        if value.__dict__:
            self.lines.append(f"{name}.__dict__.update({self._pairs(value.__dict__)})")
        return name

    def _traceback(self, value: types.TracebackType) -> str:
        if not tracebacks.never_ran(value.tb_frame):
            raise GiveUp("a traceback is kept")
        rest = self.expr(value.tb_next)
        return self.assign(value, f"{self.constant(tracebacks.before)}({rest}, {self._stand_in(value.tb_frame)})")

    def _frame(self, value: types.FrameType) -> str:
        if not tracebacks.never_ran(value):
            raise GiveUp("a frame is kept")
        return self.assign(value, f"{self.constant(tracebacks.frame_for)}({self._stand_in(value)})")

    def _stand_in(self, frame: types.FrameType) -> str:
        code, offset = tracebacks.entry_of(frame)
        self.made[id(frame.f_code)] = Made("stand_in", code, (offset,))
        return f"{self.pool.object(frame.f_code)}, {frame.f_globals.get('__name__')!r}"

    # ------------------------------------------------------------------ generators

    def _generator(self, value: InterpretedGenerator) -> str:
        frame = value.frame
        if value.state == "finished":
            return self.assign(value, f"{self.constant(finished)}()")
        if value.state == "running":
            raise GiveUp("a generator is running at a graph break")
        waiting = value.state == "suspended"
        index = frame.at if waiting else frame.ip + 1
        layout = layout_of(frame, frame.info.code, index, stack_kinds(frame.stack), waiting)
        code = generator_code(frame.info.code, index, layout, waiting)
        self.made[id(code)] = Made("generator", frame.info.code, (index, layout, waiting))
        function = self.frame_function(frame, code)
        values = self.frame_arguments(frame, layout, frame.stack)
        name = self.assign(value, f"{function}({values})")
        if value.names != (code.co_name, code.co_qualname):
            self.lines.append(f"{name}.__name__, {name}.__qualname__ = {value.names!r}")
        if waiting:
            self.lines.append(f"_b.next({name})")
        return name

    def frame_function(self, frame: Any, code: types.CodeType) -> str:
        """A function of this code over the frame's globals and cells."""
        made = [self.expr(frame.cells[n]) for n in code.co_freevars]
        closure = "None" if not made else "(" + "".join(f"{c}, " for c in made) + ")"
        namespace = self.pool.object(frame.globals, "globals")
        arguments = f"{self.pool.object(code)}, {namespace}, {code.co_name!r}, None, {closure}"
        return f"{self.constant(types.FunctionType)}({arguments})"

    def frame_arguments(self, frame: Any, layout: Any, stack: list[Any]) -> str:
        """The arguments that a layout asks for, from a frame."""
        values = [frame.locals[n] for n in layout.locals]
        values += [v.current if type(v) is ExcInfo else v for v in stack if v is not NULL]
        return self.each(values)


def _doc(code: types.CodeType) -> Any:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


KEY_FUNCTION = type(functools.cmp_to_key(max))
BY_NEW = (complex, property)  # whose members in C are what they are made of


def _slots(value: Any) -> dict[str, Any]:
    """Attributes in ``__slots__``."""
    out = {}
    for cls in type(value).__mro__:
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType) and name not in ("__dict__", "__weakref__"):
                if cls in BY_NEW:
                    continue
                if not type_slots.is_own_slot(member):
                    raise Break(f"a {type(value).__qualname__}, which keeps {name} in C, is made")
                try:
                    out[name] = member.__get__(value)
                except AttributeError:
                    continue
    return out


def _fields(error: BaseException) -> Iterator[tuple[type, str, Any]]:
    """What an exception keeps in C: the class, name and value of each field that is not as ``__new__`` leaves it."""
    for cls in type(error).__mro__:
        if cls in (BaseException, BaseExceptionGroup):
            continue
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType) or (cls, name) == (OSError, "characters_written"):
                try:
                    value = member.__get__(error)
                except AttributeError:
                    continue
                if value is not None or cls.__flags__ & HEAP:
                    yield cls, name, value


RULES: dict[type, Callable[[Rebuilder, Any], str]] = {
    KEY_FUNCTION: Rebuilder._key_function,
    torch_private.FakeTensor: Rebuilder._tensor,
    **dict.fromkeys((torch.SymInt, torch.SymFloat, torch.SymBool), Rebuilder._symbol),
    InferenceScope: Rebuilder._scope,
    tuple: Rebuilder._tuple,
    list: Rebuilder._list,
    **dict.fromkeys((set, frozenset), Rebuilder._set),
    dict: Rebuilder._dict,
    collections.OrderedDict: Rebuilder._ordered,
    collections.defaultdict: Rebuilder._defaultdict,
    collections.deque: Rebuilder._deque,
    slice: Rebuilder._slice,
    torch.Size: Rebuilder._size,
    types.CellType: Rebuilder._cell,
    types.TracebackType: Rebuilder._traceback,
    types.FrameType: Rebuilder._frame,
    types.FunctionType: Rebuilder._function,
    types.MethodType: Rebuilder._method,
    **dict.fromkeys((types.BuiltinFunctionType, C_METHOD), Rebuilder._builtin),
    types.MethodWrapperType: Rebuilder._builtin,
    functools.partial: Rebuilder._partial,
    property: Rebuilder._property,
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), Rebuilder._getter),
    torch_private.LazyOfClass: Rebuilder._lazy_of_class,
    **dict.fromkeys((staticmethod, classmethod), Rebuilder._wrapper),
    super: Rebuilder._super,
    Reentrant: Rebuilder._reentrant,
    ReentrantIterator: Rebuilder._reentrant_iterator,
    OutsideIterator: Rebuilder._outside_iterator,
    SequenceView: Rebuilder._sequence,
    InterpretedGenerator: Rebuilder._generator,
    weakref.ref: Rebuilder._weakref,
    Array: Rebuilder._array,
    ArrayMethod: Rebuilder._array_method,
    types.SimpleNamespace: Rebuilder._instance,
}
