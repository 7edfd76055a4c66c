"""A user's ``autograd.Function`` in a graph: one node that runs it as it is, forward and backward.

Backends may trace through it, forward with the graph and backward later. So whatever its code reads besides its
arguments is guarded, and code that reads what cannot be guarded is not recorded: the graph breaks there.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import types
from collections.abc import Collection, Iterator, Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import trusted
from jitney.capture import metadata, original_functions
from jitney.capture.codegen.graph_runner import run_function, run_function_with
from jitney.capture.interpreter.code import EFFECTFUL, Instr, decode
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.kinds import ATOMS, METADATA, is_stand_in
from jitney.capture.python.c_boundary import SYMBOLIC, expose, specialise
from jitney.capture.python.classes import lookup
from jitney.capture.tables import FunctionTable
from jitney.capture.torch import conversions, launches
from jitney.capture.torch.autograd.own_values import STORES, names_of, operator_of, writes_own
from jitney.capture.world.record import ABSENT
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined] # a classmethod, not a function
ONCE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__  # that of all that are so marked
METHODS = {"forward": False, "setup_context": False, "backward": True, "vjp": True}  # name -> is it for the backward?
WRITES = ("STORE_GLOBAL", *STORES, "DELETE_GLOBAL", "DELETE_SUBSCR", "STORE_DEREF", "DELETE_DEREF")
HINT = "give what it needs as an argument of apply()"
HOOK_HINT = "a hook takes and returns a gradient, changes nothing, and reads what stays as it is"
# What the program's backward decides, not the tensor whose gradient it is.
OF_GRADIENTS = frozenset("stride is_contiguous requires_grad is_leaf grad_fn storage_offset data_ptr dim_order".split())
# Questions that torch answers by its arguments, or by what a graph's guards ask of torch as a whole.
ANSWERED = {"is_tensor", "is_floating_point", "is_complex", "is_grad_enabled", "is_storage", "is_nonzero"}
ASKING = ("is_", "get_", "are_", "has_", "_get_", "_is_", "initial_seed", "seed", "manual_seed", "set_", "backends")


def call(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``cls.apply(*rest)``, recorded as one node."""
    cls, *rest = args
    if cls is torch_private.BackwardHookFunction:
        raise Break("a module's backward hook", "it looks at autograd's own graph; the hooks run as in eager")
    if kwargs:
        raise Break(f"{cls.__qualname__}.apply() with keyword arguments")
    reader = Reader(vm, f"the autograd.Function {cls.__qualname__}")
    reader.check(cls, len(rest))
    once = any(getattr(getattr(cls, name, None), "__code__", None) is ONCE for name in ("backward", "vjp"))
    vm.tracer.tape.once |= once
    call_args = [reader.number(a) if type(a) in SYMBOLIC else expose(vm, a) for a in rest]
    held = {i: reader.excerpt(cls, i, len(rest), v) for i, v in enumerate(call_args) if _is_object(v)}
    for i, value in enumerate(call_args):
        if i not in held:
            reader.argument(value)
    held.update({i: value for i, value in enumerate(call_args) if isinstance(value, types.FunctionType)})
    call_args = [value for i, value in enumerate(call_args) if i not in held]
    apply = run_function_with(cls, held) if held else run_function(cls)
    apply.once_differentiable = once  # type: ignore[attr-defined] # backends that trace through it have to know
    written = [_data(vm, reader, value) for value in reader.written_of(cls, rest)]
    vm.tracer.pause = True
    try:
        with launches.left_out() if reader.launches else contextlib.nullcontext():
            result = vm.tracer.run(apply, tuple(call_args), {})
    finally:
        vm.tracer.pause = False
    torch.autograd.graph.increment_version(written)
    if not all(isinstance(r, torch.Tensor) for r in (result if isinstance(result, tuple) else (result,))):
        raise Break(f"the autograd.Function {cls.__qualname__} gives more than tensors")
    vm.world.assumptions.keep_private(f"{cls.__qualname__}, whose forward and backward are recorded as a whole")
    node = vm.tracer.record(apply, tuple(call_args), {}, result)
    if reader.launches and node is not None:
        node.meta["opaque"] = launches.WRITES
        launches.written(list(filter(is_stand_in, call_args)))
    return result


def _data(vm: Interpreter, reader: Reader, tensor: Any) -> Any:
    """``tensor.data`` of what a forward writes to so: a tensor of the frame's, by which others see that it is written.

    Autograd counts no such write. What it has saved of the tensor is what is there when the backward runs, as in eager.
    """
    tracer = vm.tracer
    if type(tensor) is not torch_private.FakeTensor or tracer is not vm.world.tracer or tracer.region is not None:
        raise reader.refusal("writes to something besides its context")
    if metadata.storage(tensor) in map(metadata.storage, tracer.outside()):
        raise reader.refusal("writes to the data of a tensor from outside")
    return vm.native(getattr, tensor, "data")


class Reader:
    """Goes through the code of one ``autograd.Function`` and of the functions that it calls, and guards what they read.

    Args:
        vm: the capture.
        what: it is, for messages.
        for_gradient: is it a tensor's hook?
    """

    def __init__(self, vm: Interpreter, what: str, for_gradient: bool = False) -> None:
        self.vm = vm
        self.what = what
        self.for_gradient = for_gradient
        self.later = for_gradient  # is it the backward's code, which runs when the guards have long been asked?
        self.launches = False  # are kernels of Triton's launched?
        self.forward: Any = None  # the function that may write to its arguments' data
        self.written: set[str] = set()  # the arguments that it writes to
        self.seen: set[tuple[int, bool, type | None]] = set()

    def check(self, cls: type, count: int) -> None:
        """Guard everything that the class does with so many arguments; a break where that cannot be done."""
        if "forward" not in vars(cls):
            raise self.refusal("inherits its forward")
        with_context = original_functions.is_own(self.method(cls, "setup_context"))
        for name, self.later in METHODS.items():
            function = self.method(cls, name)
            self.forward = function if name == "forward" else None
            owner = cls if isinstance(lookup(self.vm, cls, name), classmethod) else None
            if not original_functions.is_own(function):
                given = count + with_context + (owner is not None)
                self.function(function, given if name == "forward" else 0, owner)

    def method(self, cls: type, name: str) -> Any:
        """The function behind one of the class's methods."""
        entry = lookup(self.vm, cls, name)
        return getattr(entry, "__func__", entry)

    def written_of(self, cls: type, args: Sequence[Any]) -> list[Any]:
        """Those of ``apply``'s arguments whose data the forward writes to."""
        code = cls.forward.__code__ if self.written else None  # type: ignore[attr-defined] # it has been read
        if code is None:
            return []
        names = _given_names(cls)
        if len(names) - len(args) not in (0, 1) or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):  # with ctx or without
            raise self.refusal("writes to something besides its context")
        given = dict(zip(names[len(names) - len(args) :], args, strict=True))
        return [given[name] for name in sorted(self.written)]

    def argument(self, value: Any) -> None:
        """What ``apply`` is given, and may not write to: its code runs while the graph is captured, too."""
        if isinstance(value, type) and not original_functions.is_own(value):
            raise self.refusal(f"is given the class {value.__qualname__}")
        if isinstance(value, types.FunctionType):
            for self.later in (False, True):
                self.callee(value, value.__qualname__)
        else:
            self.vm.tracer.check_argument(value)

    def number(self, value: Any) -> Any:
        """A number that changes, as a constant for up to half of all forms: the methods run as they are, on numbers."""
        if not self.vm.foresees:
            raise self.refusal("is given a number that changes")
        return specialise(value)

    def excerpt(self, cls: type, position: int, count: int, value: Any) -> Any:
        """What stands for an object among ``apply``'s arguments: the plain values that the forward reads of it.

        They are guarded. Where the forward does anything else with it, its methods or its backward may read more.
        """
        code, kind = cls.forward.__code__, type(value).__qualname__  # type: ignore[attr-defined] # it has been read
        names = _given_names(cls)
        if len(names) - count != 1 or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
            raise self.refusal(f"is given a {kind}, and has no argument for it alone")
        paths = _attributes_read(code, names[position + 1])
        if paths is None:
            raise self.refusal(f"is given a {kind}, of which it does more than read attributes")
        found = types.SimpleNamespace()
        for *owners, name in paths:
            source, target = value, found
            for owner in owners:
                source = self._attribute_of(source, owner)
                target = vars(target).setdefault(owner, types.SimpleNamespace())
            plain = self._attribute_of(source, name)
            if type(plain) in SYMBOLIC:
                raise self.refusal(f"reads .{name} of a {kind}, a number that changes")
            if not isinstance(plain, (*ATOMS, *METADATA)):
                raise self.refusal(f"reads .{name} of a {kind}, which is no plain value")
            if isinstance(plain, str) and any(instr.op == "IS_OP" for instr in decode(code).instrs):
                raise self.refusal(f"reads .{name} of a {kind}, and asks for the identity of something")
            setattr(target, name, plain)
        return found

    def _attribute_of(self, owner: Any, name: str) -> Any:
        """What lies in an object or its class: what code computes may be another at each time that it is asked for."""
        kind = type(owner)
        own = lookup(self.vm, kind, name)
        stored = name in getattr(owner, "__dict__", ()) or name in _children(owner)
        computed = hasattr(type(own), "__get__") if own is not ABSENT else not stored
        if computed or type(lookup(self.vm, kind, "__getattribute__")) is types.FunctionType:
            raise self.refusal(f"reads .{name} of a {kind.__qualname__}, which code computes")
        try:
            return self.vm.call(getattr, owner, name)
        except UserRaised:
            raise self.refusal(f"reads .{name}, which is not there") from None

    def refusal(self, why: str) -> Break:
        """The break of a class or function that cannot be recorded."""
        return Break(f"{self.what} {why}", HOOK_HINT if self.for_gradient else HINT)

    def function(self, fn: Any, given: int = 0, owner: type | None = None) -> None:
        """The code of a Python function, and the defaults of its arguments, the first of which are given.

        Args:
            fn: it.
            given: how many are.
            owner: the class that it is given first, if it is a class method.
        """
        if not isinstance(fn, types.FunctionType):
            raise self.refusal(f"calls a {type(fn).__qualname__}")
        if (id(fn), self.later, owner) in self.seen:
            return
        self.seen.add((id(fn), self.later, owner))
        world = self.vm.world
        if original_functions.trusted_function(fn) and "__wrapped__" in fn.__dict__:  # a decorator of torch's
            self.function(fn.__dict__["__wrapped__"], given, owner)
            return
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            self.variable(name, cell)
        positional = fn.__defaults__ or ()
        unused = max(0, given - (fn.__code__.co_argcount - len(positional)))
        defaults = (*positional[unused:], *(fn.__kwdefaults__ or {}).values())
        if not all(isinstance(value, (*ATOMS, *METADATA)) for value in defaults):
            raise self.refusal(f"has a default in {fn.__name__} that is no plain value")
        source = world.anchor(fn).source
        world.guard(source.attr("__code__"), "is", fn.__code__)
        world.guard(source.attr("__defaults__"), "is", fn.__defaults__)
        world.guard(source.attr("__kwdefaults__"), "equals" if fn.__kwdefaults__ else "is", fn.__kwdefaults__)
        if owner is not None:
            self.own_class(owner, fn.__code__)
        for code in _codes(fn.__code__):
            self.code(code, fn)

    def own_class(self, owner: type, code: types.CodeType) -> None:
        """What a class method reads of its class: plain values, and methods that it calls."""
        names = _names_read(code, code.co_varnames[0]) if code.co_argcount else None
        if names is None:
            raise self.refusal("does more with its class than read attributes")
        for name in names:
            self.class_attribute(owner, name)

    def class_attribute(self, owner: type, name: str) -> None:
        """A plain value of the class, or a method that is called; not in a backward, before which it may change."""
        if self.later or any(id(base) in self.vm.class_writes for base in owner.__mro__):
            raise self.refusal(f"reads .{name} of its class, which may be another one when it runs")
        found = lookup(self.vm, owner, name)
        if found is ABSENT or hasattr(type(owner), name):  # a metaclass may answer for it
            raise self.refusal(f"reads .{name} of its class")
        if isinstance(found, (*ATOMS, *METADATA)):
            self.vm.world.guard(self.vm.world.const(owner).attr(name), "equals", found)
        elif type(found) in (staticmethod, classmethod, types.FunctionType):
            self.function(getattr(found, "__func__", found), owner=owner if type(found) is classmethod else None)
        else:
            raise self.refusal(f"reads .{name} of its class, a {type(found).__qualname__}")

    def variable(self, name: str, cell: types.CellType) -> None:
        """A variable of the function around it, which must be a plain value or a tensor of the frame's, for good."""
        owner = self.vm.cell_owners.get(id(cell))
        if not self.for_gradient or owner is None or not _set_once(owner, name):
            raise self.refusal(f"reads variables of the function around it ({name})")
        try:
            content = cell.cell_contents
        except ValueError:
            raise self.refusal(f"reads the variable {name} around it, which has no value yet") from None
        if type(content) in SYMBOLIC and self.vm.world.is_fresh(cell):  # a number that changes is a constant in it
            content = cell.cell_contents = specialise(content)
        if not isinstance(content, (*ATOMS, *METADATA)) and type(content) is not torch_private.FakeTensor:
            raise self.refusal(f"reads the variable {name} around it, a {type(content).__qualname__}")

    def code(self, code: types.CodeType, fn: types.FunctionType) -> None:
        """One code object: its names and its operators."""
        if EFFECTFUL.intersection(code.co_names):
            raise self.refusal("may have effects besides its result")
        instrs = decode(code).instrs
        for at, instr in enumerate(instrs):
            inner = instr.op.endswith("DEREF") and (code is not fn.__code__ or instr.argval in code.co_cellvars)
            if instr.op in WRITES and not inner and not writes_own(fn, code, at):
                target = _written_argument(code, at) if fn is self.forward and code is fn.__code__ else None
                if target is None:
                    raise self.refusal("writes to something besides its context")
                self.written.add(target)
            if instr.op.startswith("IMPORT"):
                raise self.refusal("imports")
            if instr.op in ("LOAD_GLOBAL", "LOAD_NAME"):
                path = []
                for following in instrs[at + 1 :]:
                    if following.op not in ("LOAD_ATTR", "LOAD_METHOD"):
                        break
                    path.append(following.argval)
                self.name(fn, instr.argval, path)
            elif instr.op in ("LOAD_ATTR", "LOAD_METHOD"):
                self.attribute(instr.argval)
            else:
                self.operator(operator_of(instr))

    def operator(self, function: Any) -> None:
        """The methods that an operator may call."""
        for name in original_functions.PROTOCOLS.get(id(function), ()):
            self.vm.world.guard_method(name)

    def attribute(self, name: str) -> None:
        """``.name`` of whatever: it may be a tensor's method."""
        if self.for_gradient and name in OF_GRADIENTS:
            raise self.refusal(f"asks for .{name}, which gradients have as they come")
        found = getattr(torch.Tensor, name, ABSENT)
        if isinstance(found, types.FunctionType):
            self.torchs(f"Tensor.{name}", found)
            self.vm.world.guard_method(name)
        elif callable(found):
            self.vm.world.guard_method(name)

    def torchs(self, name: str, fn: types.FunctionType) -> None:
        """A Python function of torch's own that is called."""
        if not original_functions.is_own(fn) or original_functions.is_disturbed(fn):
            raise self.refusal(f"calls {name}, which has been replaced")
        for owner, callee in original_functions.callees(fn):
            self.vm.world.guard_name(owner, callee, original_functions.named(owner, callee))

    def name(self, fn: types.FunctionType, name: str, path: list[str]) -> None:
        """A global and the attributes that are read from it."""
        world, space = self.vm.world, fn.__globals__
        if name not in space:
            found = getattr(builtins, name, None)
            if original_functions.genuine_builtin(name) is None or found in (
                globals,
                locals,
                vars,
                setattr,
                delattr,
                id,
                dir,
            ):
                raise self.refusal(f"uses the name {name}")
            world.guard_disjoint(world.anchor(space).source, name)
            world.guard_path(f"builtins.{name}", found)
            return
        value = space[name]
        source = world.anchor(space).source.item(name)
        if isinstance(value, types.ModuleType) and (trusted(value) or value.__name__ == "triton"):
            world.guard(source, "is", value)
            self.module(value, path, name)
        elif launches.is_kernel(value):
            world.guard(source, "is", value)
            self.launches = True
        elif isinstance(value, (*ATOMS, *METADATA)):
            if self.later:
                raise self.refusal(f"reads the global {name} in its backward, which may be another one by then")
            world.guard(source, "equals", value)
        elif path and type(value) is types.FunctionType and not original_functions.trusted_function(value):
            raise self.refusal(f"reads the attribute {path[0]} of the function {name}, which may change")
        elif isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
            world.guard(source, "is", value)
            self.callee(self.static_method(value, path), ".".join([name, *path[:1]]))
        elif type(conversions.source_of_script(value)) is types.FunctionType:
            world.guard(source, "is", value)
            self.callee(conversions.source_of_script(value), name)
        else:
            raise self.refusal(f"reads the global {name}, a {type(value).__qualname__}")

    def static_method(self, owner: Any, path: list[str]) -> Any:
        """What code calls of a class of the program's, if that is a static method; else the owner itself.

        Not in a backward, before which the class may get another one.
        """
        if not isinstance(owner, type) or len(path) != 1 or self.later or original_functions.is_own(owner):
            return owner
        if not trusted(type(owner)) or hasattr(type(owner), path[0]):  # a metaclass may answer for it
            return owner
        found = lookup(self.vm, owner, path[0])
        return found.__func__ if isinstance(found, staticmethod) else owner

    def module(self, module: types.ModuleType, path: list[str], name: str) -> None:
        """Attributes of a module of torch's or the standard library."""
        value: Any = module
        for part in path:
            if not isinstance(value, types.ModuleType):
                break
            name = f"{name}.{part}"
            found = vars(value).get(part, ABSENT)
            if found is ABSENT or (part.startswith(ASKING) and part not in ANSWERED):
                raise self.refusal(f"reads {name}")
            value = self.vm.world.take(value, part, found)
        if isinstance(value, types.ModuleType):
            raise self.refusal(f"uses the module {name} as a value")
        self.callee(value, name)

    def callee(self, value: Any, name: str) -> None:
        """What a name stands for: a function or class of torch's, a function of the user's, a constant of a module."""
        if isinstance(value, types.FunctionType):
            if original_functions.trusted_function(value) and original_functions.is_own(value):
                self.torchs(name, value)
            else:
                self.function(value)
        elif launches.is_helper(value):
            self.callee(value.fn, name)
        elif not original_functions.is_own(value) and not isinstance(value, (*ATOMS, *METADATA)):
            raise self.refusal(f"uses {name}, a {type(value).__qualname__}")


def _is_object(value: Any) -> bool:
    """Is it neither a tensor, plain data, nor code, but an object with attributes?"""
    code = (type, types.FunctionType, types.MethodType, types.ModuleType, functools.partial)
    return isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, (torch.Tensor, *code))


def _children(owner: Any) -> Collection[str]:
    """The names of a module's modules, which torch's own ``__getattr__`` finds."""
    plain = isinstance(owner, torch.nn.Module) and type(owner).__getattr__ is torch.nn.Module.__getattr__
    return owner._modules if plain else ()


def _given_names(cls: Any) -> tuple[str, ...]:
    """The names of the forward's arguments, without the class that a class method is given."""
    code = cls.forward.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names[isinstance(cls.forward, types.MethodType) :]


def _names_read(code: types.CodeType, name: str) -> list[str] | None:
    """The attributes and methods that code reads of a variable; None where it does anything else with it."""
    instrs, found = decode(code).instrs, []
    if name in code.co_cellvars:
        return None
    for at, instr in enumerate(instrs):
        if "FAST" in instr.op and name in names_of(instr):
            read, plain = (
                instrs[at + 1],
                instr.op.startswith("LOAD_FAST") and names_of(instr).index(name) == len(names_of(instr)) - 1,
            )
            if not plain or read.op not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            found.append(read.argval)
    return found


def _attributes_read(code: types.CodeType, name: str) -> list[list[str]] | None:
    """The attributes, and theirs, that code reads of a variable; None where it does anything else with it."""
    if name in code.co_cellvars:
        return None
    instrs, paths = decode(code).instrs, []
    for at, instr in enumerate(instrs):
        if "FAST" not in instr.op or name not in names_of(instr):
            continue
        path: list[str] = []
        for read in instrs[at + 1 :]:
            if read.op != "LOAD_ATTR" or read.is_method:
                break
            path.append(read.argval)
        if (
            not instr.op.startswith("LOAD_FAST")
            or names_of(instr)[-1] != name
            or name in names_of(instr)[:-1]
            or not path
        ):
            return None
        paths.append(path)
    return paths


def _written_argument(code: types.CodeType, at: int) -> str | None:
    """The argument for which this is ``argument.data[...] = ...``; None if it is something else."""
    info = decode(code)
    depth = info.depth_at(at)
    count = STORES.get(info.instrs[at].op)
    if count is None or depth is None:
        return None
    before = [(i, info.depth_at(i.index)) for i in reversed(info.instrs[:at])]
    load = next((i for i, below in before if below is not None and below <= depth - count + 1), None)
    if (
        load is None
        or not load.op.startswith("LOAD_FAST")
        or any(i.op in ("SWAP", "COPY") for i in info.instrs[load.index : at])
    ):
        return None
    name, read = names_of(load)[-1], info.instrs[load.index + 1]
    stored = any(i.op.startswith(("STORE_FAST", "DELETE_FAST")) and name in names_of(i) for i in info.instrs)
    is_data = read.op == "LOAD_ATTR" and read.argval == "data" and not read.is_method
    return name if is_data and not stored and name in code.co_varnames[: code.co_argcount] else None


def _set_once(code: types.CodeType, name: str) -> bool:
    """Has a variable of this code, which functions in it share, one value for good?"""
    stores = [i for i, instr in enumerate(decode(code).instrs) if _sets(instr, name)]
    loops = any(0 <= instr.target <= store <= i for i, instr in enumerate(decode(code).instrs) for store in stores)
    inner = (instr for part in _codes(code) if part is not code for instr in decode(part).instrs)
    settled = len(stores) + (name in code.co_varnames) <= 1
    return settled and not loops and not any(_sets(i, name) for i in inner)


def _sets(instr: Instr, name: str) -> bool:
    return instr.op in ("STORE_DEREF", "DELETE_DEREF") and instr.argval == name


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)
