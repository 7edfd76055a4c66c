"""Numbers that are read out of tensors: constants where the graph computes them of constants, else unknown symbols.

An unknown symbol (``config.capture_scalar_outputs``) is a node of the graph; what the program computes with it is
symbolic, what needs to know it before the graph runs is a graph break. What ``torch._check`` says of it is checked when
the graph runs, as is what torch's rules for shapes take for granted: where that fails, the frame runs eagerly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney.capture.interpreter.code import only_raises
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.config import config
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.frame import Frame
    from jitney.capture.interpreter.interpreter import Interpreter
    from jitney.capture.torch.tensors import Tracer

special = FunctionTable()

READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}
UNREAD = object()
CHECKED = "a tensor's value is not what the program takes it for"  # begins the text of a check that fails
MOST = 64  # numbers that one call reads
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# Operations of constants that are run to know what they give: none is random, and autocast leaves all of them alone.
FOLDED = frozenset(
    (
        "tensor as_tensor arange linspace logspace zeros ones full empty_like zeros_like ones_like full_like "
        "to float double long int bool half type item clone detach reshape view flatten unsqueeze squeeze expand "
        "permute transpose t T getitem unbind select stack cat "
        "add sub mul truediv div floordiv floor_divide mod remainder pow neg abs square sqrt exp log log2 sin cos "
        "floor ceil round trunc clamp min max minimum maximum sum prod mean cumsum cumprod flip sort argsort argmax "
        "argmin any all eq ne lt le gt ge and_ or_ xor invert logical_not logical_and logical_or where nonzero numel"
    ).split()
)


def is_float(fake: Any) -> bool:
    """Is it a tensor of one float?"""
    return fake.dtype in FLOATS and fake.numel() == 1


# ------------------------------------------------------------------ reading


def read(tracer: Tracer, name: str, args: tuple[Any, ...]) -> Any:
    """What ``item`` and its like give; ``UNREAD`` where only the running graph could say."""
    tensor = args[0]
    if not is_stand_in(tensor) or len(args) > 1:
        return UNREAD
    known = constant_of(tracer, tensor)
    if known is not None:
        return _asked(known, name)
    if name == "item" and tracer.reads_numbers() and tensor.numel() == 1:
        return number(tracer, tensor)
    if name == "tolist" and config.capture_scalar_outputs:
        return _listed(tracer, tensor)
    return UNREAD


def _asked(known: torch.Tensor, name: str) -> Any:
    with torch_private.without_modes():
        return getattr(known, name)()


def number(tracer: Tracer, tensor: Any) -> Any:
    """The unknown number that a tensor of one element holds; ``UNREAD`` of dtypes that symbols do not have."""
    flag = tensor.dtype is torch.bool
    if not is_float(tensor) and not (config.capture_scalar_outputs and (flag or tensor.dtype in INTEGERS)):
        return UNREAD
    if flag:
        with tracer:
            tensor = tensor.to(torch.int64)
    made = tracer.symbols.read(tracer.node_of(tensor), tracer.graph, integer=not is_float(tensor))
    tracer.op_count += 1
    return made == 1 if flag else made


def converted(vm: Interpreter, cls: type, tensor: Any) -> Any:
    """``int(tensor)`` or ``float(tensor)`` as an unknown number; ``UNREAD`` where C code is to say."""
    tracer = vm.tracer
    numbers = config.capture_scalar_outputs and tensor.numel() == 1 and constant_of(tracer, tensor) is None
    if not numbers or cls not in (int, float) or (cls is int and tensor.dtype in FLOATS):
        return UNREAD
    if tensor.dtype not in (*INTEGERS, *FLOATS, torch.bool):
        return UNREAD
    if cls is float and tensor.dtype not in FLOATS:
        tensor = vm.native(tensor.to, torch.float64)
    if cls is int and tensor.dtype is torch.bool:
        tensor = vm.native(tensor.to, torch.int64)
    return number(tracer, tensor)


def _listed(tracer: Tracer, tensor: Any) -> Any:
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
    tracer: Tracer, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of an operation that wants numbers (sizes, ends of slices), read out of the tensors given."""
    found = 0

    def read_one(value: Any) -> Any:
        nonlocal found
        if is_stand_in(value) and value.dim() == 0 and value.dtype in INTEGERS:
            known = constant_of(tracer, value)
            made = number(tracer, value) if known is None else _asked(known, "item")
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


# ------------------------------------------------------------------ constants


def constant_of(tracer: Tracer, tensor: Any) -> torch.Tensor | None:
    """The tensor that the graph would compute of constants alone, computed now; None if it is not that."""
    node = tracer.nodes.get(id(tensor))
    if node is None or node.op == "placeholder":
        return None
    order: dict[fx.Node, None] = {}
    todo = [node]
    while todo:
        at = todo.pop()
        if at in order:
            continue
        if not _is_folded(at) or len(order) > MOST:
            return None
        order[at] = None
        todo += at.all_input_nodes
    values: dict[fx.Node, Any] = {}
    try:
        with torch_private.without_modes(), torch.no_grad():
            for at in tracer.graph.nodes:
                if at in order:
                    args = fx.node.map_arg(at.args, values.__getitem__)
                    kwargs = fx.node.map_arg(at.kwargs, values.__getitem__)
                    target = at.target if callable(at.target) else getattr(type(args[0]), at.target)
                    values[at] = target(*args, **kwargs)
    except Exception:  # the graph's affair
        return None
    made = values[node]
    return made if isinstance(made, torch.Tensor) and made.shape == tensor.shape else None


def _is_folded(node: fx.Node) -> bool:
    """Does this node compute, on the CPU, something that nobody has written to?"""
    made = node.meta.get("example_value")
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op not in ("call_function", "call_method") or name not in FOLDED:
        return False
    parts = made if isinstance(made, (tuple, list)) else [made]
    return all(is_stand_in(p) and p.device.type == "cpu" and unwritten(p) for p in parts)


def unwritten(fake: Any) -> bool:
    """Has nobody written to it since it was made?"""
    with torch_private.DisableTorchFunction():
        return not fake.is_inference() and fake._version == 0


# ------------------------------------------------------------------ what the program says of such numbers


@special(torch_private.expect_true)
def _expect_true(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    """What ``torch._check`` asks: of an unknown number it is checked when the graph runs."""
    condition = args[0]
    if type(condition) is not torch.SymBool or vm.symbols.is_known(condition):
        return vm.truth(condition)
    check(vm, condition)
    return True


def check(vm: Interpreter, condition: torch.SymBool) -> None:
    """Take this for granted from now on; the graph checks it."""
    if not vm.native(condition.node.expect_true, "", 0):
        raise Break("what is known of a number read from a tensor contradicts a check of it")
    vm.tracer.record_checks()


def settled(vm: Interpreter, frame: Frame, instr: Any, value: Any, jumps_if: bool) -> bool:
    """The truth of what a jump asks. Where one of its ways only raises, the graph checks that it takes the other one.

    A check that fails has the frame run eagerly, which raises what the program does: so nothing may be written before.
    """
    if type(value) is bool:
        return value
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
        vm.native(torch._assert_async, value if taken else vm.native(torch.logical_not, value), CHECKED)
        vm.tracer.checked = True
    return taken


@special(torch_private.advise_is_size)
def _advise_is_size(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    """Nothing that ``_check`` has not said."""
