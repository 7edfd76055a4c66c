"""What is done with a function of torch or of a library: an operation, run as a whole, looked into, or refused."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from typing import Any

import torch

from jitney._util.code_cache import cached_by_code
from jitney.torch_compat import torch_private

_op_names = {n for ns in torch_private.OP_NAMESPACES for n in dir(ns) if not n.startswith("__")}
TORCH_OPS = {id(getattr(ns, n)) for ns in torch_private.OP_NAMESPACES for n in _op_names if hasattr(ns, n)}
_functions = [v for v in vars(torch).values() if isinstance(v, types.BuiltinFunctionType)]
TORCH_OPS |= {id(v) for v in _functions if v.__name__ in _op_names}
_OP_OWNERS = {id(getattr(torch.relu, "__self__", None)), *(id(ns) for ns in torch_private.OP_NAMESPACES)}

STATE_QUERIES = [
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.is_autocast_enabled, torch.get_autocast_dtype,
    torch.is_autocast_cache_enabled, torch.is_autocast_cpu_enabled, torch.get_default_dtype,
    torch_private.tracing_state, torch_private.autocast_available, torch_private.current_accelerator,
    torch_private.log_api_usage, torch_private.deterministic_algorithms,
]  # fmt: skip
STATE_CHANGES = [
    torch_private.set_grad_enabled, torch.set_autocast_enabled, torch.set_autocast_dtype,
    torch.set_autocast_cache_enabled, torch.autocast_increment_nesting, torch.autocast_decrement_nesting,
    torch.clear_autocast_cache,
]  # fmt: skip
_state = {id(f) for f in (*STATE_QUERIES, *STATE_CHANGES)}

# Modules whose Python functions are operations (or constants) as a whole.
LEAF_MODULES = (
    "torch.nn.functional", "torch.functional", "torch._tensor", "torch._jit_internal", "torch._VF", "torch._refs",
    "torch.overrides", "torch._ops", "torch.fft", "torch.linalg", "torch.special", "torch.backends", "torch.jit",
    "torch.onnx", "torch._utils_internal", "torch.nn.init", "torch.cuda", "torch._utils", "torch.fx._symbolic_trace",
    "re", "inspect", "typing", "enum", "string", "textwrap", "torch.version", "torch.nested",
    "torch.utils._pytree_is_leaf", "torch._meta_registrations", "torch.distributed", "torch.xpu", "torch.mps",
    "packaging", "importlib",
)  # fmt: skip
LEAF_ONLY_QUERIES = ("torch.cuda", "torch.distributed", "torch.jit", "torch.onnx", "torch.xpu", "torch.mps")
# Functions that leave an argument out when they ask modes first: ambiguity_check, weight, out.
FORGETFUL = {("torch._tensor", "dim_order"), ("torch.nn.functional", "l1_loss"), ("torch.functional", "chain_matmul")}
LEAF_FUNCTIONS = {"is_tensor", "is_storage", "typename", "is_deterministic_algorithms_warn_only_enabled"}


def is_torch_op(fn: Any) -> bool:
    """Is this C function (or operator object) a tensor operation?"""
    if isinstance(fn, torch_private.OPERATOR_CLASSES):
        return True
    if not isinstance(fn, types.BuiltinFunctionType):
        return False
    return id(fn) in TORCH_OPS or id(fn.__self__) in _OP_OWNERS


# What these tell inside a capture is not what they tell of the interpreter, which has modes of its own active.
CONSTANTS: dict[int, Any] = {
    id(torch_private.function_mode_enabled): False,
    id(torch_private.function_mode_depth): 0,
    id(torch_private.dispatch_mode_depth): 0,
    id(torch_private.tracing_state): None,
    id(torch_private.out_of_tree_device): torch_private.out_of_tree_device(),
}
QUERY_PREFIXES = ("_get_", "_is_", "is_", "get_", "_has_", "has_")


def is_query(fn: Any) -> bool:
    """Does this C function of torch only tell something about torch's state?"""
    return getattr(fn, "__module__", None) == "torch._C" and fn.__name__.startswith(QUERY_PREFIXES)


def is_free(fn: Any) -> bool:
    """A C function that is no method, though pybind11 gives it a ``__self__``."""
    return id(fn) in _state or id(fn) in CONSTANTS or type(fn.__self__).__module__ == "pybind11_builtins"


def is_state(fn: Any) -> bool:
    """Does this C function of torch ask for, or change, global state that capture follows?"""
    return id(fn) in _state


@functools.lru_cache(maxsize=4096)
def is_leaf_module(module: str) -> bool:
    """Are the functions of this module called as a whole?"""
    return module == "torch" or any(module == m or module.startswith(m + ".") for m in LEAF_MODULES)


# Those that read and write attributes of the program's classes, which may have pending writes.
WRITING = ("__getattr__", "__setattr__", "__delattr__", "__setitem__", "__delitem__")


@cached_by_code(maxsize=1024)
def _stores_attributes(code: types.CodeType) -> bool:
    return any(instr.opname in ("STORE_ATTR", "DELETE_ATTR") for instr in dis.get_instructions(code))


def is_leaf(fn: types.FunctionType) -> bool:
    """Is this function of a leaf module really one? Those that only ask are; those that change state are not."""
    module = fn.__module__
    if module == "torch":
        return fn.__name__ in LEAF_FUNCTIONS
    if module == "enum" and not fn.__qualname__.startswith(("EnumType.", "EnumMeta.")):
        return False  # it reads what a member has, which is guarded
    if module.startswith("torch.nn.init") or (module == "inspect" and not fn.__name__.startswith("is")):
        return False
    if module.startswith(LEAF_ONLY_QUERIES) or module.startswith("torch.backends"):
        return fn.__name__.startswith(("is_", "_is_", "device_count", "get_device_capability", "current_device"))
    if not module.startswith("torch") and fn.__name__ != "__init__" and _stores_attributes(fn.__code__):
        return False  # maybe of the program's objects
    gives_iterator = not module.startswith("torch") and fn.__name__ in ("__iter__", "__reversed__")
    return not (gives_iterator or fn.__code__.co_flags & inspect.CO_GENERATOR or fn.__name__ in WRITING)


def is_forgetful(fn: types.FunctionType) -> bool:
    """Does this function of torch not tell a mode all that it was called with?"""
    return (fn.__module__, fn.__name__) in FORGETFUL


def may_answer_otherwise(fn: types.FunctionType) -> bool:
    """Does this function, which is called as a whole, tell something that the program can change?"""
    asks = fn.__module__.startswith((*LEAF_ONLY_QUERIES, "torch.backends"))
    fixed = ("_available", "is_built", "is_compiled", "device_count", "get_device_capability", "is_scripting")
    return asks and not any(word in fn.__name__ for word in fixed)


REFUSED = {
    "torch.nn.modules.lazy": "makes parameters of what is uninitialised, at the first call",
    "torch.utils.checkpoint": "runs its function again in the backward",
    "torch.distributed": "talks to other processes",
    "torch.autograd.function": "is autograd's own machinery",
    "torch.autograd": "runs the autograd engine",
    "torch.serialization": "reads or writes files",
    "torch.random": "changes the random number generator's state",
    "torch.cuda": "changes the device's state",
    "torch._dynamo": "belongs to torch.compile",
    "torch._functorch": "is a function transform",
    "torch.func": "is a function transform",
    "torch._higher_order_ops": "is a higher-order operator",
    "torch.jit": "belongs to TorchScript",
    "torch.hub": "reads files",
    "warnings": "writes a warning",
    "random": "draws from Python's random number generator",
    "threading": "is about threads",
    "_thread": "is about threads",
    "subprocess": "starts a process",
    "pdb": "starts the debugger",
    "bdb": "starts the debugger",
    "traceback": "looks at the stack",
    "asyncio": "is asynchronous",
    "inspect": "looks at objects past their guards",
    "tempfile": "touches files",
    "shutil": "touches files",
    "pickle": "serialises",
    "numpy": "is NumPy's",
    "importlib._bootstrap": "imports",
    "torch.fx": "traces",
    "torch._library": "defines operators",
    "torch.library": "defines operators",
}
# Functions that make classes or functions out of text.
REFUSED_FUNCTIONS = {
    ("collections", "namedtuple"), ("dataclasses", "dataclass"), ("dataclasses", "make_dataclass"),
    ("dataclasses", "_process_class"), ("typing", "NamedTuple"),
}  # fmt: skip
REFUSED_EXCEPT = {
    "numpy._core.getlimits",
    "torch.autograd.grad_mode",
    "torch.random.fork_rng",
    "warnings.catch_warnings",
    "torch.cuda.amp.common",  # asks whether there is a device
    "torch.cuda.amp.autocast_mode",  # torch.autocast by an older name
    "torch.fx._symbolic_trace",
    "torch.fx.experimental.proxy_tensor.<lambda>",  # how a torch.Size is taken apart as a tree
    "torch.fx.graph_module.GraphModule.recompile.<locals>.call_wrapped",  # how a module that holds a graph is called
    "torch.fx.graph_module._WrappedCall",
    "torch._higher_order_ops.associative_scan",
    "torch.utils.checkpoint.checkpoint_sequential",
}


def refused(module: str, name: str) -> str:
    """Why a Python function of this module is not looked into, or an empty string."""
    named = {module, f"{module}.{name.partition('.')[0]}", f"{module}.{name}"}
    if not named.isdisjoint(REFUSED_EXCEPT):
        return ""
    if (module, name) in REFUSED_FUNCTIONS:
        return "makes a class"
    at = module
    while at:
        if at in REFUSED:
            return REFUSED[at]
        at = at.rpartition(".")[0]
    if module == "torch" and name.startswith(("set_", "manual_seed", "seed", "compile", "save", "load", "use_")):
        return "changes torch's global state"
    return ""


def refused_class(cls: type) -> str:
    """Why instances of a Python class are not made while capturing."""
    if issubclass(cls, torch.Tensor):
        return "tensors of a subclass belong to autograd and the dispatcher"
    if issubclass(cls, (torch.autograd.Function, type)):
        return "it is torch's own machinery" if not issubclass(cls, type) else "it makes a class"
    module = cls.__module__ or ""
    if module in REFUSED_EXCEPT:
        return ""
    if module.startswith(("threading", "multiprocessing", "subprocess", "torch.cuda", "torch.utils.data")):
        return "it has effects outside Python"
    if module.startswith("numpy"):
        return "it is NumPy's"
    return ""
