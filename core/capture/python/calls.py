"""Calling: who is called decides whether a frame is made, a torch operation recorded, or C code run."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import operator
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch

from jitney._util.ownership import HEAP, trusted
from jitney.capture import directive_rules, original_functions, policy
from jitney.capture.codegen.graph_runner import InferenceScope
from jitney.capture.interpreter import arity
from jitney.capture.interpreter.binding import bind_arguments
from jitney.capture.interpreter.code import leaves_traces
from jitney.capture.interpreter.frame import After, Frame
from jitney.capture.interpreter.generators import Reentrant
from jitney.capture.interpreter.signals import Break, GiveUp, UserRaised
from jitney.capture.kinds import ALIASES, ATOMS, STAND_INS
from jitney.capture.marks import (
    DISABLED,
    DISALLOWED,
    frame_only,
    is_allowed,
    is_constant_result,
    is_disabled,
    is_disallowed,
    is_of_torch_compile,
    without_patches,
)
from jitney.capture.numpy.originals import refuse_uncaptured
from jitney.capture.numpy.stand_in import ArrayMethod
from jitney.capture.python import logs, natives
from jitney.capture.python.attributes import instance_get, load_attr, store_attr
from jitney.capture.python.c_boundary import (
    C_METHOD,
    OWN_TYPES,
    PLAIN,
    expose,
    has_tensor,
    is_opaque_instance,
    printable,
    python_method,
    refuse_opaque,
    refuse_protocol,
    specialise,
)
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.python.containers import getitem
from jitney.capture.python.methods import call_bound, stand_ins_method
from jitney.capture.torch import conversions, launches, lazy_modules
from jitney.capture.torch.autograd import functions as autograd_functions
from jitney.capture.torch.classes import objects, tensor_classes, torch_function
from jitney.capture.torch.distributed import collectives
from jitney.capture.torch.optimizers import is_courtesy_break
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.torch.tensors import NeedsValue
from jitney.capture.world.reads import records_read
from jitney.capture.world.record import ABSENT
from jitney.capture.world.writes import writes
from jitney.guards.checks import same
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

Args = list[Any]
Kwargs = dict[str, Any]

GENERIC_ALIASES = (types.GenericAlias, type(Generic[TypeVar("T")]))  # type: ignore[index]
WITH_ITEMS = (list, tuple, dict, set, torch.Tensor, types.FunctionType, types.MethodType)
KNOWN_BY_IDENTITY = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
NO_INSTANCES = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION
CALLER = {"_getframe", "_getframemodulename", "_caller"}
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
MODULE_CALL = torch.nn.Module.__call__ if original_functions.is_own(torch.nn.Module.__call__) else None
MODULE_CALLS = (MODULE_CALL, torch_private.module_call) if MODULE_CALL is not None else ()
MODULE_FORWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")


def dispatch(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """The value of a call, or a ``Frame`` to run for it."""
    if is_disallowed(fn) and not is_of_torch_compile(fn):
        raise Break(f"{getattr(fn, '__qualname__', fn)} is disallowed in graphs", DISALLOWED)
    special = vm.handlers.functions.get(id(fn))
    if special is not None:
        arity.check(fn, args, kwargs)
        if (vm.tracer.rules.classes or vm.tracer.rules.modes) and torch_function.are_asked(vm, fn, args, kwargs):
            return torch_function.ask(vm, fn, args, kwargs)
        return special(vm, args, kwargs)
    refuse_uncaptured(vm, fn, "call of a function")
    caller = CALLERS.get(type(fn))
    if caller is not None:
        return caller(vm, fn, args, kwargs)
    if isinstance(fn, type):
        return _call_class(vm, fn, args, kwargs)
    return _call_object(vm, fn, args, kwargs)


def _call_function(vm: Interpreter, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    fn = without_patches(fn)
    if is_disabled(fn):
        raise Break(f"{fn.__qualname__} is disabled for compiling", DISABLED)
    made = vm.handlers.codes.get(id(fn.__code__))
    if made is not None:
        return made(vm, fn, args, kwargs)
    if fn.__dict__ and is_constant_result(fn):
        return directive_rules.call_constant(vm, fn, args, kwargs)
    if fn.__code__ is torch_private.DISABLED_CODE:
        handler = vm.handlers.functions.get(id(vars(fn).get("__wrapped__")))
        if handler is not None:
            return handler(vm, args, kwargs)
        raise Break(f"{fn.__qualname__} is disabled for compiling by torch", "call it outside the compiled function")
    if fn in MODULE_CALLS:
        frame = _call_module(vm, args, kwargs)
        if frame is not None:
            return frame
    module = fn.__module__ or ""
    if module.startswith("torch.distributed") and collectives.is_one(fn):
        return collectives.call(vm, fn, args, kwargs)
    if is_allowed(fn) or (policy.is_leaf_module(module) and policy.is_leaf(fn) and _is_undisturbed(vm, fn)):
        return _call_leaf(vm, fn, args, kwargs)
    if launches.is_one(fn):
        return launches.call(vm, args, kwargs)
    if fn is autograd_functions.APPLY:
        return autograd_functions.call(vm, args, kwargs)
    why = _refused(fn, module)
    if why and is_courtesy_break(vm, fn):
        return None
    meant = directive_rules.torchs_meaning(fn) if why else None
    if meant is not None:
        return meant(vm, fn, args, kwargs)
    if why:
        raise Break(f"{module}.{fn.__qualname__} {why}", "call it outside the compiled function")
    if fn.__code__.co_flags & ASYNC:
        raise Break(f"{fn.__qualname__} is a coroutine function", "asynchronous code runs in Python")
    return bind_arguments(vm, fn, args, kwargs)


def _refused(fn: types.FunctionType, module: str) -> str:
    """Why a function is not looked into; a decorator may have copied the module's name from another function."""
    if is_of_torch_compile(fn):
        module = "torch._dynamo"
    elif not policy.refused(str(fn.__globals__.get("__name__", module)), fn.__qualname__):
        return ""
    return policy.refused(module, fn.__qualname__)


def _is_undisturbed(vm: Interpreter, fn: types.FunctionType) -> bool:
    """Is it torch's own function, and what it calls by name too? Guarded; one that is not is looked into."""
    if not original_functions.is_own(fn):
        return False
    if not (fn.__module__ or "").startswith("torch"):
        return True
    if original_functions.is_disturbed(fn):
        return False
    for owner, name in original_functions.callees(fn):
        vm.world.guard_name(owner, name, original_functions.named(owner, name))
    return True


def _may_differ(vm: Interpreter, value: Any) -> bool:
    """Is this an object of which guards know no more than its class?"""
    record = vm.world.record_of(value)
    known = (*KNOWN_BY_IDENTITY, enum.Enum, *ALIASES)  # of aliases, guards know all parts
    return record is not None and not record.source.is_const and not isinstance(value, known)


def _call_leaf(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """A Python function that is one operation: torch sees it as a whole, the graph records it as itself."""
    if objects.are_in(vm, args, kwargs) and (fn.__module__ or "").startswith("torch"):
        return objects.call(vm, fn, args, kwargs)
    args = [expose(vm, a) for a in args]
    kwargs = {k: expose(vm, v) for k, v in kwargs.items()}
    if is_allowed(fn) or policy.is_forgetful(fn):
        return vm.tracer.call_whole(fn, tuple(args), kwargs)
    functional = (fn.__module__ or "").startswith("torch.nn.functional")
    if functional and any(map(is_opaque_instance, (*args, *kwargs.values()))):
        return bind_arguments(vm, fn, args, kwargs)  # which a graph cannot hold: what it is read for is guarded
    if not (fn.__module__ or "").startswith("torch"):
        args, kwargs = [printable(a) for a in args], {k: printable(v) for k, v in kwargs.items()}
        values = [v for v in (*args, *kwargs.values()) if not trusted(type(v)) or isinstance(v, WITH_ITEMS)]
        refuse_protocol(vm, f"{fn.__qualname__}()", *values)
        refuse_opaque(vm, f"{fn.__qualname__}()", *values)
        if fn.__module__ != "inspect" and any(isinstance(v, (types.FunctionType, types.MethodType)) for v in values):
            return bind_arguments(vm, fn, args, kwargs)  # which it may call
        if not CALLER.isdisjoint(fn.__code__.co_names):
            raise Break(f"{fn.__module__}.{fn.__qualname__} looks at its caller", "call it outside compiled code")
        if natives.holds_array([*args, *kwargs.values()]):
            raise Break(f"{fn.__module__}.{fn.__qualname__} is called with an array")
        if has_tensor(values) and fn.__module__ != "inspect":
            raise Break(f"{fn.__module__}.{fn.__qualname__} is called with a tensor")
        if any(_may_differ(vm, v) for v in (*args, *kwargs.values())):
            raise Break(f"{fn.__module__}.{fn.__qualname__} is called with an object from outside, and looks into it")
    if args and isinstance(args[0], enum.EnumType):
        natives.guard_members(vm, args[0])
    if fn.__module__.startswith("importlib"):
        vm.world.assumptions.keep_private(f"what {fn.__qualname__} finds")
    try:
        result = vm.native(fn, *args, **kwargs)
    except NeedsValue:  # of what it decides by, its code may have a way
        if not functional:
            raise
        return bind_arguments(vm, fn, args, kwargs)
    if policy.may_answer_otherwise(fn) and isinstance(result, ATOMS) and not args and not kwargs:
        vm.world.guard(vm.world.const(fn), "true", f"{{v}}() == {result!r}")
    if hasattr(type(result), "__next__"):
        raise Break(f"{fn.__module__}.{fn.__qualname__} gives an iterator")
    return result


def _call_module(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """``nn.Module.__call__`` on a module without hooks is its ``forward``; None where it is more than that."""
    module = args[0]
    world = vm.world
    if (
        not isinstance(module, torch.nn.Module)
        or lookup(vm, type(module), "_call_impl") is not torch_private.module_call
    ):
        return None
    lazy_modules.initialise(vm, module, args[1:], kwargs)
    if torch_private.tracing_state() or not _without_hooks(vm, module):
        return None
    for name, hooks in torch_private.global_module_hooks().items():
        known = world.record_of(hooks)
        if known is not None and known.dirty and not vm.truth(hooks):
            continue
        if hooks or (known is not None and known.dirty):
            return None
        source = world.const(hooks)
        source.label = name
        world.guard(source, "empty")
    forward = vm.call(getattr, module, "forward")
    if frame_only(forward) is not None:  # torch's own code is to break at the call of ``forward``
        return None
    return dispatch(vm, forward, args[1:], kwargs)


def _without_hooks(vm: Interpreter, module: torch.nn.Module) -> bool:
    """Has the module no hooks of its own? One guard for each table of hooks."""
    record = vm.world.record_of(module)
    storage = vm.world.dict_record(record) if record is not None else None
    for name in MODULE_FORWARD_HOOKS:
        if storage is None or name in storage.overlay or storage.content is not None:
            hooks = instance_get(vm, module, name)
            if hooks is ABSENT or vm.truth(hooks):
                return False
        elif storage.value.get(name, True):
            return False
        else:
            source = storage.source.item(name)
            known = vm.world.record_of(storage.value[name])
            if known is not None and (known.dirty or known.source is not source):
                return not vm.truth(instance_get(vm, module, name))
            vm.world.guard(source, "empty")
    return True


def _call_method(vm: Interpreter, fn: types.MethodType, args: Args, kwargs: Kwargs) -> Any:
    inner = fn.__func__
    if type(inner) is types.FunctionType:
        inner = without_patches(inner)
    if is_disabled(inner):
        raise Break(f"{fn.__qualname__} is disabled for compiling", DISABLED)
    if type(fn.__self__) in OWN_TYPES:
        return vm.native(fn, *args, **kwargs)
    if is_allowed(fn):
        return _call_leaf(vm, fn, args, kwargs)
    return dispatch(vm, inner, [fn.__self__, *args], kwargs)


def _call_partial(vm: Interpreter, fn: functools.partial[Any], args: Args, kwargs: Kwargs) -> Any:
    func, first, named = fn.func, fn.args, fn.keywords
    record = vm.world.record_of(fn)
    if record is not None:
        func = vm.world.wrap(func, record.source.attr("func"))
        first = vm.world.wrap(first, record.source.attr("args"))
        storage = vm.world.wrap(named, record.source.attr("keywords"))
        named = vm.world.content(vm.world.anchor(storage))
    if isinstance(func, Reentrant):
        func = func.fn
    return dispatch(vm, func, [*first, *args], {**named, **kwargs})


def _call_builtin(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """A C function, or a C method bound to an object."""
    owner = fn.__self__
    if owner is None or isinstance(owner, types.ModuleType) or policy.is_torch_op(fn) or policy.is_free(fn):
        return _call_c_function(vm, fn, args, kwargs)
    return call_bound(vm, fn, owner, fn.__name__, args, kwargs)


def _call_descriptor(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """A C method through its class: ``list.append(x, 1)``."""
    if not args:
        return vm.native(fn, *args, **kwargs)
    if fn.__objclass__ is object:
        first = specialise(args[0])
        args = [first if a is args[0] else a for a in args]
        if (type(args[0]) in STAND_INS or type(args[0]) in OWN_TYPES) and fn.__name__ != "__init__":
            return stand_ins_method(vm, args[0], fn.__name__, args[1:], kwargs)
    if fn.__objclass__ in (torch_private.TensorBase, torch.Tensor):
        if objects.are_in(vm, args, kwargs):
            return objects.call(vm, fn, args, kwargs)
        return vm.native(fn, *[expose(vm, a) for a in args], **{k: expose(vm, v) for k, v in kwargs.items()})
    if args[0] is None or not issubclass(type(args[0]), fn.__objclass__):  # nothing is bound to None
        return vm.native(fn, *args, **kwargs)
    return call_bound(vm, fn.__get__(args[0], type(args[0])), args[0], fn.__name__, args[1:], kwargs)


def _call_c_function(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    if policy.is_torch_op(fn):
        if objects.are_in(vm, args, kwargs):
            return objects.call(vm, fn, args, kwargs)
        return vm.native(fn, *[expose(vm, a) for a in args], **{k: expose(vm, v) for k, v in kwargs.items()})
    if id(fn) in policy.CONSTANTS:
        return policy.CONSTANTS[id(fn)]
    if policy.is_state(fn):
        if fn in policy.STATE_QUERIES:
            vm.tracer.grad_questions += fn is torch.is_grad_enabled
            return vm.native(fn, *args, **kwargs)
        if vm.tracer.rules.modes and fn is torch_private.set_grad_enabled:  # the only one that asks modes
            return vm.native(vm.tracer.rules.ask, vm.tracer, fn, *map(specialise, args))
        return vm.native(vm.tracer.record_state, fn, *map(specialise, args))
    if policy.is_query(fn) and not has_tensor(args):
        value = vm.native(fn, *args, **kwargs)
        if not kwargs and isinstance(value, ATOMS) and all(isinstance(a, ATOMS) for a in args):
            vm.world.guard(vm.world.const(fn), "true", f"{{v}}({', '.join(map(repr, args))}) == {value!r}")
        return value
    if not natives.is_pure(fn):
        instead = directive_rules.substitute(fn)
        if instead is not None:
            vm.world.assumptions.keep_private(f"{instead.__qualname__} is in the place of a function in C")
            return dispatch(vm, instead, args, kwargs)
        twin = original_functions.written_in_python(fn)
        if twin is not None:
            return _call_twin(vm, fn, twin, args, kwargs)
        name = f"{getattr(fn, '__module__', None) or ''}.{getattr(fn, '__qualname__', fn)}".lstrip(".")
        raise Break(f"call of the C function {name}", "call it outside the compiled function")
    return natives.call_pure(vm, fn, args, kwargs)


def _call_twin(vm: Interpreter, fn: Any, twin: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """A C function by what the standard library has of it in Python, which may raise with other words."""
    try:
        return vm.call(twin, *args, **kwargs)
    except UserRaised as raised:
        raise Break(f"{fn.__name__}() raises {type(raised.value).__name__}") from None


def _call_reentrant(vm: Interpreter, fn: Reentrant, args: Args, kwargs: Kwargs) -> Any:
    return dispatch(vm, fn.fn, args, kwargs)


def _call_numpy(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    raise Break(f"{fn.__module__}.{fn.__name__} is not captured", "it runs in NumPy")


def _call_weakref(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    target = vm.native(fn, *args, **kwargs)
    record = vm.world.record_of(fn)
    if record is not None:
        return vm.world.wrap(target, record.source.step("call"))
    return target


def _call_getter(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """operator.itemgetter, attrgetter, methodcaller: what they stand for."""
    if len(args) != 1 or kwargs:
        raise Break(f"an operator.{type(fn).__name__} takes one object")
    made, first, *_ = fn.__reduce__()
    record = vm.world.record_of(fn)
    if record is not None:
        if made is not type(fn) or not all(type(part) in (str, int) for part in first):
            raise Break(f"an operator.{type(fn).__name__} from outside, with more than names and positions, is called")
        vm.world.guard(record.source, "true", f"{{v}}.__reduce__()[1] == {first!r}")
    if type(fn) is operator.itemgetter:
        values = [getitem(vm, args[0], key) for key in first]
    elif type(fn) is operator.attrgetter:
        values = []
        for path in first:
            value = args[0]
            for name in path.split("."):
                value = load_attr(vm, value, name)
            values.append(value)
    else:
        name = first[0] if made is type(fn) else made.args[0]
        rest, named = (first[1:], {}) if made is type(fn) else (first, made.keywords)
        return vm.call(load_attr(vm, args[0], name), *rest, **named)
    return values[0] if len(values) == 1 else tuple(values)


def _call_lru_cache(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    if logs.only_logs(fn):
        return logs.call_later(vm, fn, args, kwargs)
    if trusted(fn) and not has_tensor(args) and not has_tensor(list(kwargs.values())):
        return vm.native(fn, *[expose(vm, a) for a in args], **kwargs)
    asks = fn.__name__.startswith(("is_", "_is_", "has_", "_has_", "get_", "_get_"))
    written = writes(vm)[0] or vm.class_writes or vm.tracer.mutates_inputs()  # it may ask for what waits
    if asks and not kwargs and not written and all(isinstance(a, ATOMS) for a in args):
        value = vm.native(fn, *args)
        if isinstance(value, ATOMS):
            vm.world.guard(vm.world.const(fn), "true", f"{{v}}({', '.join(map(repr, args))}) == {value!r}")
            return value
    return _call_cached(vm, fn, list(map(specialise, args)), {k: specialise(v) for k, v in kwargs.items()})


def _call_cached(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """What the cache of a function holds for constants comes from outside, like a global.

    The function is interpreted too, to learn that it only computes; for other arguments, that gives the result.
    """
    what = f"call of the cached function {fn.__qualname__} (functools.lru_cache)"
    if any(vm.world.is_fresh(v) and type(v).__dictoffset__ for v in (*args, *kwargs.values())):
        raise Break(f"{what} with an object that the frame has made, to which it may write")
    before, nodes, waiting = _traces(vm), set(vm.tracer.graph.nodes), set(vm.waiting)
    with records_read(vm.world) as read:
        made = vm.call(fn.__wrapped__, *args, **kwargs)
    if not waiting.issuperset(vm.waiting):  # the one that the cache keeps is another one
        raise Break(f"{what}, which leaves a generator waiting in a try or with", "call it outside compiled code")
    constant = all(map(vm.world.constant_key, (*args, *kwargs.values())))
    only_computes = vm.tracer.take_back(nodes) if constant else nodes.issuperset(vm.tracer.graph.nodes)
    if _traces(vm) != before or not only_computes:
        raise Break(f"{what}, which does more than compute", "call it outside compiled code")
    if read.written() or vm.class_writes:  # before it is called: its cache would keep what it is without them
        raise Break(f"{what}, which reads what is written once the graph has run", "call it before")
    if not constant:
        if not _is_plain(made):
            raise Break(f"{what} with objects, for a {type(made).__qualname__}", "call it outside compiled code")
        return made
    source, size = vm.world.anchor(fn).source, fn.cache_parameters()["maxsize"]
    place = source.call((tuple(args), tuple(kwargs.items())))
    if has_tensor(made) and size is not None and len(source.children) > size:
        raise Break(f"{what}, which keeps fewer results than the frame asks for", "give it a larger maxsize")
    value = directive_rules.in_python(vm, functools.partial(_without_drawing, fn), args, kwargs)
    if has_tensor(made) and not _is_alike(value, made):
        raise Break(f"{what}, which holds other tensors than it would compute here", "call it outside compiled code")
    return vm.world.wrap(value, place)


def _traces(vm: Interpreter) -> tuple[Any, ...]:
    return writes(vm), vm.tracer.changes_state, len(vm.log_calls), len(vm.warned)


class _NoDrawing(torch_private.TorchDispatchMode):
    """Numbers are drawn in the order of the program, and what is called ahead of the graph would draw too early."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Break("a cached function (functools.lru_cache) draws random numbers", "call it outside compiled code")
        return func(*args, **(kwargs or {}))


def _without_drawing(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    with _NoDrawing():
        return fn(*args, **kwargs)


def _is_alike(real: Any, made: Any) -> bool:
    """Is this what capture has computed on stand-ins: tensors of the same metadata, otherwise the same values?"""
    if isinstance(made, torch.Tensor):
        names = ("shape", "dtype", "device", "layout", "requires_grad")
        alike = type(real) is torch.Tensor and all(getattr(real, n) == getattr(made, n) for n in names)
        return alike and real.stride() == made.stride() and real.is_inference() == torch.is_inference_mode_enabled()
    if type(made) is dict:
        return type(real) is dict and list(real) == list(made) and all(_is_alike(real[k], v) for k, v in made.items())
    if type(made) in (tuple, list):
        return type(real) is type(made) and len(real) == len(made) and all(map(_is_alike, real, made))
    return _is_plain(made) and same(real, made)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return (type(value) is dict and all(map(_is_plain, value.values()))) or type(value) in PLAIN


def _call_script(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    source = conversions.source_of_script(fn)
    if type(source) is not types.FunctionType:
        raise Break("call of a function of TorchScript", "call the Python function")
    return dispatch(vm, source, args, kwargs)


# ------------------------------------------------------------------ classes and objects


def _call_class(vm: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Any:
    meta_call = lookup(vm, type(cls), "__call__")
    if isinstance(meta_call, type):
        return dispatch(vm, meta_call, args, kwargs)
    native = _native_metaclass(type(cls)) and trusted(getattr(cls, "_missing_", type))  # which Enum's code calls
    if type(meta_call) is PYTHON_FUNCTION and not native:
        return bind_arguments(vm, meta_call, [cls, *args], kwargs)
    return construct(vm, cls, args, kwargs)


def _native_metaclass(meta: type) -> bool:
    return trusted(meta) and meta.__module__ in ("enum", "typing", "torch.nn.parameter", "torch")


def construct(vm: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Any:
    """``type.__call__``: ``__new__`` then ``__init__``."""
    if cls is torch_private.InferenceModeGuard:
        return vm.world.mark_fresh(InferenceScope(*map(specialise, args)))
    if cls is torch_private.DisableTorchFunctionSubclass:
        return vm.world.mark_fresh(torch_function.Unasked())
    if not cls.__flags__ & HEAP or natives.is_value_class(cls):
        return natives.make_value(vm, cls, args, kwargs)
    if cls is torch.autograd.profiler.record_function:
        return dispatch(vm, contextlib.nullcontext, [], {})
    if cls.__flags__ & NO_INSTANCES:
        return vm.native(cls, *args, **kwargs)  # which says so
    why = policy.refused_class(cls)
    if why and not tensor_classes.is_made_in_python(cls):
        raise Break(f"an instance of {cls.__qualname__} is made: {why}", "make it outside the compiled function")
    if any(isinstance(vars(c).get("__del__"), types.FunctionType) for c in cls.__mro__):
        raise GiveUp(f"an instance of {cls.__qualname__}, which has __del__, is made", "make it outside compiled code")
    getter: Any = cls.__getattribute__
    if type(getter) is PYTHON_FUNCTION and leaves_traces(getter.__code__):
        raise GiveUp(f"an instance of {cls.__qualname__} is made, whose __getattribute__ writes")
    new = lookup(vm, cls, "__new__")
    new_function = new.__func__ if type(new) is staticmethod else new
    init = lookup(vm, cls, "__init__")
    if type(new_function) is PYTHON_FUNCTION:
        made = vm.call(new_function, cls, *args, **kwargs)
        if not issubclass(python_type(vm, made), cls):
            return made
        init = lookup(vm, python_type(vm, made), "__init__")
    else:
        made = natives.allocate(vm, cls, new_function, init, args, kwargs)
    if type(init) is PYTHON_FUNCTION:
        frame = dispatch(vm, init, [made, *args], kwargs)
        if type(frame) is Frame:
            frame.after = After.INSTANCE
            frame.instance = made
            return frame
        return vm.instance(made, frame)
    if init is not object.__init__ and not isinstance(made, torch.Tensor):
        call_bound(vm, init.__get__(made, cls), made, "__init__", args, kwargs)
    return made


def _call_object(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """An instance whose class has ``__call__``."""
    original = getattr(type(fn), "_jitney_is_compiled", False) and instance_get(vm, fn, "_jitney_original")
    if original:
        return dispatch(vm, original, args, kwargs)
    if policy.is_torch_op(fn):
        return vm.native(fn, *[expose(vm, a) for a in args], **{k: expose(vm, v) for k, v in kwargs.items()})
    if isinstance(fn, GENERIC_ALIASES) and isinstance(fn.__origin__, type):
        if not getattr(fn, "_inst", True):
            return vm.native(fn, *args, **kwargs)  # typing refuses to make an instance of ``List[int]``
        made = vm.call(fn.__origin__, *args, **kwargs)
        if vm.world.is_fresh(made) and type(made).__dictoffset__:
            store_attr(vm, made, "__orig_class__", fn)
        return made
    if isinstance(fn, torch.library.CustomOpDef):
        return dispatch(vm, fn._opoverload, args, kwargs)
    method = python_method(vm, fn, "__call__")
    if method is not None:
        if is_disabled(fn):
            raise Break(f"a {type(fn).__qualname__} is disabled for compiling", DISABLED)
        return dispatch(vm, method, [fn, *args], kwargs)
    entry = lookup(vm, type(fn), "__call__")
    if entry is ABSENT:
        return vm.native(fn, *args, **kwargs)
    if isinstance(entry, (staticmethod, classmethod)) or callable(entry):
        bound = vm.call(getattr, fn, "__call__") if not isinstance(entry, types.WrapperDescriptorType) else None
        if bound is not None and type(bound) in CALLERS:
            return dispatch(vm, bound, args, kwargs)
    raise Break(f"call of an object of class {type(fn).__qualname__}", "call it outside the compiled function")


CALLERS: dict[type, Callable[[Any, Any, Args, Kwargs], Any]] = {
    types.FunctionType: _call_function,
    types.MethodType: _call_method,
    **dict.fromkeys((types.BuiltinFunctionType, C_METHOD), _call_builtin),
    types.MethodWrapperType: _call_builtin,
    types.MethodDescriptorType: _call_descriptor,
    types.WrapperDescriptorType: _call_descriptor,
    types.ClassMethodDescriptorType: _call_c_function,
    functools.partial: _call_partial,
    Reentrant: _call_reentrant,
    ArrayMethod: lambda vm, fn, args, kwargs: vm.handlers.arrays.call(vm, fn, args, kwargs),
    **dict.fromkeys((weakref.ref, weakref.KeyedRef), _call_weakref),
    type(np.sum): _call_numpy,
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), _call_getter),
    type(functools.lru_cache(lambda: None)): _call_lru_cache,
    torch.jit.ScriptFunction: _call_script,
}
