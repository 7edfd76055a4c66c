"""Between tensors and Python's numbers: numbers read out of tensors, and tensors made of numbers in old ways.

A number is a constant where the graph computes it of constants, else an unknown symbol (``capture_scalar_outputs``, or
``fullgraph``): a node of the graph. What the program computes with it is symbolic, what needs to know it before the
graph runs is a graph break. What ``torch._check`` says of it is checked when the graph runs, as is what torch's rules
for shapes take for granted: where that fails, the frame runs eagerly.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from jitney.capture.interpreter.code import only_raises
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ARRAYS, PLAIN_TENSORS, is_stand_in
from jitney.capture.numpy.constants import constant_of
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.symbols import SYMBOLIC
from jitney.torch_compat import torch_private

special = FunctionTable()

READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}
UNREAD = object()
DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}  # Python's classes
MAKERS = {torch.tensor: 0, torch.as_tensor: 0, torch.Tensor.new_tensor: 1}  # how many arguments come before the data
OF_DATA = {**MAKERS, torch.asarray: 0}  # what reads a dtype off the data
CHECKED = "a tensor's value is not what the program takes it for"  # begins the text of a check that fails
MOST = 64  # numbers that one call reads
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
NUMBERS: dict[type, torch.dtype | None] = {
    bool: torch.bool,
    int: torch.int64,
    torch.SymInt: torch.int64,
    float: None,
    torch.SymFloat: None,
}


def is_float(fake: Any) -> bool:
    """Is it a tensor of one float?"""
    return fake.dtype in FLOATS and fake.numel() == 1


def named_arguments(tracer: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Tensors given where numbers are due, as torch reads them; no generator is not said.

    Of ``randn`` and its like, the overloads with a generator take no symbolic sizes.
    """
    if kwargs.get("generator", kwargs) is None:
        kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
    if not tracer.reads_numbers():
        return kwargs
    return {k: _number(tracer, v) if k in ("value", "alpha") else v for k, v in kwargs.items()}


def _number(tracer: Any, value: Any) -> Any:
    """A one-element tensor given where a number is due, as torch reads it."""
    if is_stand_in(value) and is_float(value):
        return tracer.symbols.read(tracer.node_of(value), tracer.graph)
    return value


def in_other_terms(tracer: Any, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation gives that the graph has by other ones; ``UNREAD`` where it has this one."""
    if func in MAKERS and needs_graph(func, args):
        with tracer:
            return made_of_data(func, args, kwargs)
    if func is torch.Tensor.new_tensor and len(args) == 2 and all(type(leaf) in DTYPES for leaf in _leaves(args[1])):
        with tracer:  # whose values are known
            return torch.tensor(args[1], **_as_of(args[0], kwargs))
    if name == "where" and not kwargs and len(args) == 3:
        at = 1 if func is torch.Tensor.where else 0
        if is_stand_in(args[at]) and args[at].dtype is torch.uint8:  # eager converts it, torch's stand-ins refuse it
            with tracer:
                return func(*args[:at], args[at].to(torch.bool), *args[at + 1 :])
    if kwargs or name not in ("__getitem__", "nonzero", "masked_select"):
        return UNREAD
    return _in_known_places(tracer, name, args)


def _in_known_places(tracer: Any, name: str, args: tuple[Any, ...]) -> Any:
    """What a mask of constants selects: how many places these are is known, and the graph looks for so many."""
    if name == "nonzero":
        count = _count(tracer, args[0]) if len(args) == 1 else None
        if count is None:
            return UNREAD
        with tracer:
            return torch.nonzero_static(args[0], size=count)
    keys = args[1] if type(args[1]) is tuple else (args[1],)
    if name == "masked_select" and not (is_stand_in(args[1]) and args[1].shape == args[0].shape):
        return UNREAD
    counts = [_count(tracer, key) if _is_mask(key) else None for key in keys]
    if all(count is None for count in counts) or not _masks_fit(args[0], keys):
        return UNREAD
    with tracer:
        places: list[Any] = []
        for key, count in zip(keys, counts, strict=True):
            places += [key] if count is None else torch.nonzero_static(key, size=count).unbind(1)
        return args[0][tuple(places)]


def _is_mask(key: Any) -> bool:
    return is_stand_in(key) and key.dtype is torch.bool


def _masks_fit(tensor: Any, keys: tuple[Any, ...]) -> bool:
    """Have masks in a subscript the sizes of the dimensions that they select from? Places alone would not tell."""
    taken = []  # how many dimensions each key is for
    for key in keys:
        if key is None or key is Ellipsis or isinstance(key, (bool, torch.SymBool)):
            taken.append(0)
        elif isinstance(key, (int, torch.SymInt, slice)):
            taken.append(1)
        elif is_stand_in(key):
            taken.append(key.dim() if _is_mask(key) else 1)
        else:
            return False
    spare = tensor.dim() - sum(taken)
    at = 0
    for key, count in zip(keys, taken, strict=True):
        if _is_mask(key) and tensor.shape[at : at + count] != key.shape:
            return False
        at += spare if key is Ellipsis else count
    return spare >= 0


def _count(tracer: Any, tensor: Any) -> int | None:
    """How many elements of a tensor of constants are not zero; None if nobody knows."""
    known = constant_of(tracer, tensor) if is_stand_in(tensor) and tensor.dim() else None
    if known is None:
        return None
    with torch_private.without_modes():
        return int(torch.count_nonzero(known))


# ------------------------------------------------------------------ reading


def read(tracer: Any, name: str, args: tuple[Any, ...]) -> Any:
    """What ``item`` and its like give; ``UNREAD`` where only the running graph could say."""
    tensor = args[0]
    if not is_stand_in(tensor) or len(args) > 1:
        return UNREAD
    known = constant_of(tracer, tensor)
    if known is not None:
        return _asked(known, name)
    if name == "item" and tensor.numel() == 1 and (tracer.reads_numbers() or _batch(tracer, tensor) is not None):
        return number(tracer, tensor)
    if name == "tolist" and tracer.symbols.reads_numbers:
        return _listed(tracer, tensor)
    return UNREAD


@special(torch.equal, torch.Tensor.equal)
def _equal(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    """False for tensors of other sizes; else a branch on the comparison of their elements."""
    plain = len(args) == 2 and not kwargs and all(is_stand_in(t) and vm.call(type, t) in PLAIN_TENSORS for t in args)
    if not plain or len({(t.dtype, t.device, t.layout) for t in args}) > 1:
        return vm.native(torch.equal, *args, **kwargs)
    one, other = args
    if one.dim() != other.dim() or any(vm.truth(n != m) for n, m in zip(one.shape, other.shape, strict=True)):
        return False
    return vm.truth(vm.native(torch.Tensor.all, vm.native(torch.Tensor.eq, one, other)))


def _asked(known: torch.Tensor, name: str) -> Any:
    with torch_private.without_modes():
        return getattr(known, name)()


def _batch(tracer: Any, tensor: Any) -> Any:
    return tracer.symbols.batch_of(tracer.nodes.get(id(tensor)))


def number(tracer: Any, tensor: Any) -> Any:
    """The unknown number that a tensor of one element holds; ``UNREAD`` of dtypes that symbols do not have."""
    batch = _batch(tracer, tensor)
    if batch is not None:
        return batch
    flag = tensor.dtype is torch.bool
    if not is_float(tensor) and not (tracer.symbols.reads_numbers and (flag or tensor.dtype in INTEGERS)):
        return UNREAD
    if flag:
        with tracer:
            tensor = tensor.to(torch.int64)
    made = tracer.symbols.read(tracer.node_of(tensor), tracer.graph, integer=not is_float(tensor))
    tracer.op_count += 1
    return made == 1 if flag else made


def converted(vm: Any, cls: type, tensor: Any) -> Any:
    """``int(tensor)`` or ``float(tensor)`` as an unknown number; ``UNREAD`` where C code is to say."""
    tracer = vm.tracer
    batch = _batch(tracer, tensor)
    if batch is not None:
        return batch if cls is int else UNREAD
    numbers = tracer.symbols.reads_numbers and tensor.numel() == 1 and constant_of(tracer, tensor) is None
    if not numbers or cls not in (int, float) or (cls is int and tensor.dtype in FLOATS):
        return UNREAD
    if tensor.dtype not in (*INTEGERS, *FLOATS, torch.bool):
        return UNREAD
    if cls is float and tensor.dtype not in FLOATS:
        tensor = vm.native(tensor.to, torch.float64)
    if cls is int and tensor.dtype is torch.bool:
        tensor = vm.native(tensor.to, torch.int64)
    return number(tracer, tensor)


def _listed(tracer: Any, tensor: Any) -> Any:
    shape = tensor.shape
    if not all(type(n) is int for n in shape) or tensor.numel() > MOST:
        return UNREAD
    with tracer:
        flat = tensor.reshape(-1)
        numbers = [flat[i].item() for i in range(tensor.numel())]
    if any(n is UNREAD for n in numbers):
        return UNREAD
    for size in reversed(shape[1:]):
        count = len(numbers) // size if size else 0
        numbers = [numbers[i * size : (i + 1) * size] for i in range(count)]
    return numbers if len(shape) else numbers[0]


def in_place_of_tensors(
    tracer: Any, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of an operation that wants numbers (sizes, ends of slices), read out of the tensors given."""
    found = 0

    def read_one(value: Any) -> Any:
        nonlocal found
        if is_stand_in(value) and value.dim() == 0 and value.dtype in INTEGERS:
            known = constant_of(tracer, value)
            made = tracer.held(value) if known is None else _asked(known, "item")
            made = number(tracer, value) if made is None else made
            found += made is not UNREAD
            return value if made is UNREAD else made
        if type(value) in (list, tuple):
            return type(value)(map(read_one, value))
        return value

    def ends(value: Any) -> Any:
        if type(value) is slice:
            return slice(read_one(value.start), read_one(value.stop), read_one(value.step))
        return tuple(map(ends, value)) if type(value) is tuple else value

    if name in ("__getitem__", "__setitem__"):
        args = (args[0], ends(args[1]), *args[2:])
    else:
        own = 1 if getattr(torch.Tensor, name, None) is func else 0
        args = (*args[:own], *map(read_one, args[own:]))
        kwargs = {key: read_one(value) for key, value in kwargs.items()}
    return (args, kwargs) if found else None


def has_tensor_end(key: Any) -> bool:
    """Is an end of a slice in this index a tensor?"""
    if type(key) is slice:
        return is_stand_in(key.start) or is_stand_in(key.stop)
    return type(key) is tuple and any(map(has_tensor_end, key))


# ------------------------------------------------------------------ what the program says of such numbers


@special(torch_private.expect_true)
def _expect_true(vm: Any, args: Args, kwargs: Kwargs) -> bool:
    """What ``torch._check`` asks: of an unknown number it is checked when the graph runs."""
    condition = args[0]
    if type(condition) is not torch.SymBool or vm.symbols.is_known(condition):
        return vm.truth(condition)
    check(vm, condition)
    return True


def check(vm: Any, condition: torch.SymBool) -> None:
    """Take this for granted from now on; the graph checks it."""
    if not vm.native(condition.node.expect_true, "", 0):
        raise Break("what is known of a number read from a tensor contradicts a check of it")
    vm.tracer.record_checks()


def settled(vm: Any, frame: Any, instr: Any, value: Any, jumps_if: bool) -> bool:
    """The truth of what a jump asks. Where one of its ways only raises, the graph checks that it takes the other one.

    A check that fails has the frame run eagerly, which raises what the program does: so nothing may be written before.
    """
    symbol = type(value) is torch.SymBool and not vm.symbols.is_known(value)
    tensor = is_stand_in(value) and value.device.type == "cpu" and value.numel() == 1
    if not (symbol or (tensor and constant_of(vm.tracer, value) is None)) or vm.tracer.mutates_inputs():
        return vm.truth(value)
    if only_raises(frame.info, instr.target):
        taken = not jumps_if
    elif only_raises(frame.info, frame.ip):
        taken = jumps_if
    else:
        return vm.truth(value)
    if symbol:
        check(vm, value if taken else torch.sym_not(value))
    else:
        vm.native(torch_private.assert_async, value if taken else vm.native(torch.logical_not, value), CHECKED)
        vm.tracer.checked = True
    return taken


@special(torch_private.advise_is_size)
def _advise_is_size(vm: Any, args: Args, kwargs: Kwargs) -> None:
    """Nothing that ``_check`` has not said."""


# ------------------------------------------------------------------ made in old ways

HINT = "use torch.tensor(data) or torch.empty(sizes)"


def _constructed(cls: Any, vm: Any, args: Args, kwargs: Kwargs) -> Any:
    """``torch.FloatTensor(...)``: of sizes, without numbers of its own, or of data, which is converted."""
    name = f"{cls.__module__}.{cls.__name__}"
    base = cls is torch.Tensor
    if kwargs or (base and str(torch_private.default_tensor_device()) != "cpu"):
        raise Break(f"{name} with a device, or keywords", HINT)
    dtype = torch.get_default_dtype() if base else cls.dtype
    device = "cuda" if not base and cls.is_cuda else "cpu"
    first: Any = args[0] if args else ()
    if type(first) is torch.Size or all(type(v) in (int, torch.SymInt) for v in args):
        sizes = tuple(first) if type(first) is torch.Size else args or (0,)
        return vm.native(torch.empty, sizes, dtype=dtype, device=device)
    if len(args) == 1 and type(first) in (list, tuple):
        return vm.call(torch.tensor, first, dtype=dtype, device=device)
    if len(args) == 1 and type(first) in ARRAYS and device == "cpu" and not first.scalar:
        return vm.native(vm.call(torch.from_numpy, first).to, dtype)
    raise Break(f"{name} of a {type(first).__qualname__}", HINT)


for _cls in (torch.Tensor, *(c for c in torch_private.tensor_classes if not c.is_sparse)):
    special.add(_cls, functools.partial(_constructed, _cls))


@special(torch.autograd.Variable)
def _variable(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    """``Variable(x)`` is ``x.detach()``."""
    named = dict(zip(("data", "requires_grad", "volatile"), args, strict=False)) | kwargs
    data = named.pop("data", None)
    wants = named.pop("requires_grad", False)
    if any(named.values()) or type(data) is not torch_private.FakeTensor or type(wants) not in (bool, type(None)):
        raise Break("a Variable of no tensor, or with volatile", "use the tensor itself")
    made = vm.native(data.detach)
    return vm.native(made.requires_grad_) if wants else made


def needs_graph(func: Any, args: tuple[Any, ...]) -> bool:
    """Is ``torch.tensor`` or its like called with lists that hold tensors, or with numbers that a graph computes?"""
    data = args[MAKERS[func] :][:1]
    return not is_stand_in(data[0] if data else None) and any(
        is_stand_in(leaf) or type(leaf) in SYMBOLIC for leaf in _leaves(data)
    )


def made_of_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``torch.tensor`` or its like gives for data that the graph computes."""
    own = MAKERS[func]
    return of_data(*args[own:], **(_as_of(args[0], kwargs) if own else kwargs))


def _as_of(tensor: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The dtype and device of a tensor, where ``new_tensor`` is not told others."""
    return {"dtype": tensor.dtype, "device": tensor.device} | {k: v for k, v in kwargs.items() if v is not None}


def with_dtype(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    """Its keyword arguments in the graph, which has NumPy's numbers as Python's: what dtype they had is said there."""
    if func not in OF_DATA or kwargs.get("dtype") is not None:
        return kwargs
    data = args[OF_DATA[func]] if len(args) > OF_DATA[func] else kwargs.get("data", kwargs.get("obj"))
    has_own = any(type(leaf) in ARRAYS or isinstance(leaf, np.generic) for leaf in _leaves(data))
    return {**kwargs, "dtype": result.dtype} if has_own else kwargs


def of_data(data: Any, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    """``torch.tensor`` of numbers and tensors of one element, in lists: a stack of them."""
    there = torch.device("cpu" if device is None else device)
    if there.type != "cpu" or str(torch_private.default_tensor_device()) != "cpu":
        raise Break("torch.tensor of tensors and other data on another device", "use torch.stack")
    made = _stacked(data, dtype or functools.reduce(torch.promote_types, map(_dtype, _leaves(data))))
    return made.requires_grad_() if requires_grad else made


def _leaves(data: Any) -> list[Any]:
    return [leaf for item in data for leaf in _leaves(item)] if type(data) in (list, tuple) else [data]


def _dtype(leaf: Any) -> torch.dtype:
    """The dtype that torch would choose for one item."""
    if is_stand_in(leaf):
        if leaf.requires_grad or leaf.numel() != 1 or leaf.device.type != "cpu":
            raise Break("torch.tensor of tensors that require grad, or have more elements than one", "use torch.stack")
        return leaf.dtype
    if type(leaf) not in NUMBERS:
        raise Break(f"torch.tensor of tensors and a {type(leaf).__qualname__}", "use torch.stack")
    return NUMBERS[type(leaf)] or torch.get_default_dtype()


def _stacked(data: Any, dtype: torch.dtype) -> Any:
    if type(data) in (list, tuple):
        made = [_stacked(item, dtype) for item in data]
        parts = [part.reshape(()) if is_stand_in(item) else part for part, item in zip(made, data, strict=True)]
        if any(part.shape != parts[0].shape for part in parts):
            raise Break("torch.tensor of items of several shapes", "")
        return torch.stack(parts) if parts else torch.empty(0, dtype=dtype)
    return data.detach().to(dtype) if is_stand_in(data) else torch.full((), data, dtype=dtype)


def source_of_script(fn: Any) -> Any:
    """The Python function that a function of TorchScript was compiled from; None if nobody knows."""
    return getattr(fn, "_torchdynamo_inline", None) if type(fn) is torch.jit.ScriptFunction else None


@special(torch.jit.annotate)
def _annotate(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    return args[1] if len(args) == 2 else kwargs["the_value"]
