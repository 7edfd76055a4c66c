"""Every private torch name that jitney uses, each with its reason. Checked with torch 2.11 to 2.13.

A name that a future torch drops fails here, at import, by name; nothing else in jitney reaches past torch's face, but
``torch_private_symbolic.py``. That has what needs sympy, and is imported when somebody asks for one of its names here:
a process that finds everything on disk never does.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import operator
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

# The memory format that many kernels give their results, by the strides of their argument.
from torch._prims_common import suggest_memory_format

# Hooks around the steps of all optimizers.
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

if TYPE_CHECKING:
    from jitney.torch_compat.torch_private_symbolic import (
        NEEDS_DATA,
        DataDependentOutputException,
        DimDynamic,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
        GuardOnDataDependentSymNode,
        LeanFakeTensorMode,
        NamedSource,
        PythonArithmetic,
        PythonPrinter,
        ShapeEnv,
        StatelessSymbolicContext,
        TorchShapeEnv,
        TorchSource,
        UnsupportedFakeTensorException,
        advise_is_size,
        constrain_size,
        data_symbols,
        expect_true,
        forget_reals,
        numpy,
        run_on_stand_ins,
        statically_known_true,
        sympy_interp,
        value_when_captured,
    )

_C: Any = torch._C  # its stubs lack some of what follows

# The method table through which a tensor's C methods are recognised.
TensorBase: Any = _C.TensorBase
# What a distribution's lazy property is when asked of the class: a new object each time.
LazyOfClass: Any = torch.distributions.utils._lazy_property_and_property
# Namespaces of operations behind torch.nn.functional, torch.fft, torch.linalg, torch.special.
OP_NAMESPACES: tuple[Any, ...] = (
    _C._VariableFunctions,
    _C._nn,
    _C._fft,
    _C._linalg,
    _C._special,
    _C._sparse,
    _C._nested,
)
# torch.ops.namespace.name and its overloads: a call of such an object is one operation.
OPERATOR_CLASSES: tuple[type, ...] = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
OPTIMIZER_HOOKS: tuple[Any, ...] = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)
# Changes the grad mode; what torch.no_grad calls.
set_grad_enabled: Callable[[bool], None] = _C._set_grad_enabled
# What torch.library.custom_op returns; its operator is what a graph records.
CustomOpDef: Any = torch._library.custom_ops.CustomOpDef
# The same of an operator's overload; None if it was declared otherwise.
declared_operator: Callable[[Any], Any] = torch._library.custom_ops._maybe_get_opdef
# The object behind torch.inference_mode.
InferenceModeGuard: Any = _C._InferenceMode
# The current stream of a CUDA device as a number; builds without CUDA lack it.
current_raw_stream: Callable[[int], int] = getattr(
    _C, "_cuda_getCurrentRawStream", lambda device: int(torch.cuda.current_stream(device).cuda_stream)
)
# What this thread takes from torch's CUDA allocator comes from a pool; that ends, if a recording fails not by itself.
allocate_to_pool: Callable[..., None] | None = getattr(_C, "_cuda_beginAllocateCurrentThreadToPool", None)
end_allocate_to_pool, release_pool = (getattr(_C, f"_cuda_{n}", None) for n in ("endAllocateToPool", "releasePool"))
# Memory on the CPU and on a CUDA device without the parsing of arguments that torch.empty_strided does.
_guards = getattr(getattr(_C, "_dynamo", None), "guards", None)
empty_strided_cpu: Callable[..., torch.Tensor] | None = getattr(_guards, "_empty_strided_cpu", None)
empty_strided_cuda: Callable[..., torch.Tensor] | None = getattr(_guards, "_empty_strided_cuda", None)
# Are the tensors at these positions of a list where the addresses at the same positions say? In builds with CUDA.
same_addresses: Callable[[list[Any], list[int], list[int]], bool] | None = getattr(
    _C, "_tensors_data_ptrs_at_indices_equal", None
)
# Which of CUDA's libraries compute, and how exactly: read whenever an operator is called, each a C function. The latter
# is asked by torch's newer name: once a program has used it, torch refuses the older one.
_LIBRARIES = (
    r"_get_(cublas_allow_[bf].*|cudnn_(benchmark|deterministic|enabled)|.*_sdp_.*reduction|.*_sdp_enabled"
    r"|(blas|linalg)_preferred_backend|deterministic_algorithms)"
)
_USES = (("generic", "all"), ("cuda", "matmul"), ("cuda", "all"), ("cuda", "conv"), ("cuda", "rnn"))
_precision = getattr(_C, "_get_fp32_precision_getter", None)
_tf32 = [getattr(_C, f"_get_{name}_allow_tf32") for name in ("cublas", "cudnn")]
library_settings = [
    *(getattr(_C, name) for name in sorted(dir(_C)) if re.fullmatch(_LIBRARIES, name)),
    *(_tf32 if _precision is None else [functools.partial(_precision, *use) for use in _USES]),
]
storage_users: Callable[[int], int] = _C._storage_Use_Count  # how many tensors, and wrappers, hold a memory's number
parse_to = _C._nn._parse_to  # the device and dtype that ``module.to(...)`` asks for
# Is torch's profiler running? Its public face has no such question.
is_profiling: Callable[[], bool] = torch.autograd._profiler_enabled
# The innermost hooks on what autograd saves; None if there are none.
saved_tensors_hooks: Callable[[bool], Any] = _C._autograd._top_saved_tensors_default_hooks
# Lets go of what an autograd function has saved, unless the graph is to be kept (``ctx`` as argument).
clear_saved: Callable[[Any], None] = getattr(_C._FunctionBase, "maybe_clear_saved_tensors", lambda ctx: None)
# What an autograd function has saved, one by one, written to since or not (``ctx`` as argument).
entries_saved: Callable[[Any], Iterable[Any]] = _C._FunctionBase._raw_saved_tensors.__get__
# What torch.utils.checkpoint raises through what it runs again as soon as it has what it needs.
STOPS_RECOMPUTATION: type[Exception] = torch.utils.checkpoint._StopRecomputationError
# How many torch function modes (such as `with torch.device(...)`) are active.
function_mode_depth: Callable[[], int] = _C._len_torch_function_stack
# The __torch_function__ of a tensor class that has none.
disabled_torch_function: Any = _C._disabled_torch_function_impl
# How many dispatch modes are active.
dispatch_mode_depth: Callable[[], int] = _C._len_torch_dispatch_stack
# Is any torch function mode active? Library code asks, and must not see capture's own.
function_mode_enabled: Callable[[], bool] = _C._is_torch_function_mode_enabled
# Is the module's forward being traced by torch.jit?
tracing_state: Callable[[], Any] = _C._get_tracing_state
# The innermost proxy mode: what make_fx and torch.export record with.
_proxy_mode: Callable[[], Any] = functools.partial(_C._get_dispatch_mode, _C._TorchDispatchModeKey.PROXY)
_symbolic_trace: Any = torch.fx._symbolic_trace


def traces_symbolically() -> bool:
    """Does torch.fx call the program with proxies, with nn.Module.__call__ patched?"""
    return bool(_symbolic_trace._is_fx_tracing_flag)


def is_traced() -> bool:
    """Does torch record what this thread computes: torch.jit.trace, torch.fx, make_fx, torch.export?"""
    return tracing_state() is not None or traces_symbolically() or _proxy_mode() is not None


# What torch.autocast and torch.are_deterministic_algorithms_enabled ask: part of the state that is guarded as a whole.
autocast_available: Callable[[str], bool] = _C._is_autocast_available
deterministic_algorithms: Callable[[], bool] = _C._get_deterministic_algorithms
# Library classes call it when made; it tells nobody anything that a program can see.
log_api_usage: Callable[..., None] = _C._log_api_usage_once
# The name of the out-of-tree device: torch.utils asks, and it is fixed in a process.
out_of_tree_device: Callable[[], str] = _C._get_privateuse1_backend_name
# torch wraps functions that it keeps from being compiled (Optimizer.zero_grad) in one function, of this code.
DISABLED_CODE: types.CodeType = torch._compile._disable_dynamo(lambda: None).__code__
# The kernels that Python code has registered for operators: "aten/relu/CPU".
python_kernels: set[str] = torch.library._impls
# How FX names the target of a node in the code that it generates, and which targets that code calls by name.
qualified_name: Callable[[Any], str] = torch.fx.node._get_qualified_name
is_from_torch: Callable[[Any], bool] = torch.fx.graph._is_from_torch
# Do tensors of these classes, or a mode, take a call over? torch's Python functions ask first thing.
has_torch_function: tuple[Callable[..., bool], ...] = (
    _C._has_torch_function,
    _C._has_torch_function_unary,
    _C._has_torch_function_variadic,
)
# Which kind of accelerator the process has: fixed.
current_accelerator: Callable[[], Any] = _C._accelerator_getAccelerator
# How the optimizers sort their parameters for the foreach operations.
group_tensors: Callable[..., Any] = _C._group_tensors_by_device_and_dtype
# The body of nn.Module.__call__: a module that has its own is not called as its ``forward``.
_call_impl = torch.nn.Module._call_impl
module_call: Any = _call_impl if _call_impl.__globals__ is vars(torch.nn.modules.module) else None


@contextlib.contextmanager
def dispatch_kept() -> Iterator[None]:
    """If an operator raises here, the dispatcher is left as it was.

    Torch prints tensors with transforms switched off by a local variable (of ``torch._tensor_str``). A traceback that
    holds such a frame, since printing has raised, keeps them off.
    """
    outside = sys.exception()
    include, exclude = _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()
    with _C._ForceDispatchKeyGuard(include, exclude):
        try:
            yield
        except Exception as error:
            seen: BaseException | None = error
            while seen is not None and seen is not outside:
                traceback.clear_frames(seen.__traceback__)
                seen.__traceback__, seen = None, seen.__context__
            raise


# What ties a module's backward hooks into autograd's graph.
BackwardHookFunction: Any = torch.nn.modules._functions.BackwardHookFunction
# The module whose code handles the exceptions of that body, unless told that it is being compiled.
MODULE_CALL_FILE: str = torch.nn.modules.module.__name__

# Containers as torch's function transforms see them, and which dimension each leaf of vmap's arguments is mapped over.
TreeSpec: Any = torch.utils._pytree.TreeSpec
tree_flatten: Callable[[Any], tuple[list[Any], Any]] = torch.utils._pytree.tree_flatten
tree_unflatten: Callable[[Any, Any], Any] = torch.utils._pytree.tree_unflatten
broadcast_to_and_flatten: Callable[[Any, Any], list[Any] | None] = torch.utils._pytree._broadcast_to_and_flatten
# What functions call that torch.func.grad, grad_and_value and vmap have made.
grad_impl: Callable[..., Any] = torch._functorch.eager_transforms.grad_impl
grad_and_value_impl: Callable[..., Any] = torch._functorch.eager_transforms.grad_and_value_impl
vmap_impl: Callable[..., Any] = torch._functorch.vmap.vmap_impl


def jacobians() -> dict[str, types.CodeType]:
    """The code of the functions that torch.func.jacrev and jacfwd make; what they are made of is in their closures."""
    found = {}
    for name in ("jacrev", "jacfwd"):
        for code in getattr(torch.func, name).__code__.co_consts:
            if isinstance(code, types.CodeType) and {"func", "argnums", "has_aux"} <= set(code.co_freevars):
                found[name] = code
    return found


def control_flow() -> dict[str, Any]:
    """torch's loops and branches as operators, by name, but for torch.cond; not every version has all."""
    ops = torch._higher_order_ops
    found = {name: getattr(ops, name, None) for name in ("while_loop", "map", "scan")}
    return {name: getattr(op, name, op) for name, op in found.items() if op is not None}


_scan = getattr(torch._higher_order_ops, "associative_scan", None)
# torch.associative_scan's own code, which capture looks into: its calls of torch.vmap are recognised by it.
SCAN_CODE: types.CodeType | None = getattr(getattr(_scan, "associative_scan", _scan), "__code__", None)


def program_kernels() -> list[str]:
    """The kernels that programs have registered in Python for torch's operators, in order.

    Not among them: shapes of results, and what torch.vmap registers when it is called first.
    """
    own: set[str] = set()
    for name in ("torch._functorch.predispatch", "torch._functorch.vmap"):  # one or the other, by version
        own |= getattr(getattr(sys.modules.get(name), "VMAP_DECOMPOSITIONS_LIB", None), "_op_impls", set())
    return sorted(k for k in python_kernels if k.startswith("aten/") and not k.endswith("/Meta") and k not in own)


def storage_of(tensor: torch.Tensor) -> int:
    """The address of the object that holds a tensor's memory."""
    return int(tensor.untyped_storage()._cdata)


# One C call that checks grad mode, autocast, default dtype, deterministic mode and their like.
GlobalStateGuard: Any = getattr(_guards, "GlobalStateGuard", None)
# One C call that checks the metadata of all tensors (13 us for 150).
TensorGuards: Any = getattr(_guards, "TensorGuards", None)


def dispatch_keys(tensor: torch.Tensor) -> str:
    """Which of the dispatcher's keys a tensor has: part of what ``TensorGuards`` compares."""
    return str(_C._dispatch_keys(tensor))


# The base of what records operators as they are dispatched.
TorchDispatchMode: Any = torch.utils._python_dispatch.TorchDispatchMode
# In which mode, or by what, a view was made: autograd looks at it where the view or its base is written to.
creation_of: Callable[[torch.Tensor], Any] = _C._autograd._get_creation_meta
Creation: Any = _C._autograd.CreationMeta
# Counts a write to each of these tensors: ``torch.autograd.graph.increment_version`` without its look at the argument.
increment_version: Callable[[tuple[torch.Tensor, ...]], None] = _C._increment_version
# Takes tensors, and how often each is to have been written to.
set_version_counters: Callable[[tuple[torch.Tensor, ...], tuple[int, ...]], None] = (
    _C._autograd._unsafe_set_version_counter
)
# Copies many tensors in one call.
foreach_copy: Callable[..., Any] = torch._foreach_copy_
functorch_active: Callable[[], bool] = _C._are_functorch_transforms_active
_is_batched: Callable[[Any], bool] = _C._functorch.is_legacy_batchedtensor
_forward_ad: Any = torch.autograd.forward_ad


def transforms_active() -> bool:
    """Is a transform of torch.func (vmap, grad, ...) or forward-mode AD at work?

    The former's tensors are wrappers that capture must not see; the latter's have tangents that compiled code drops.
    The level of forward-mode AD is one for the whole process.
    """
    return _forward_ad._current_level >= 0 or functorch_active()


def forward_ad_active() -> bool:
    """Is forward-mode AD at work?"""
    return bool(_forward_ad._current_level >= 0)


def undecided(tensor: Any) -> str:
    """Why a tensor has no one value now: it is a "batch" of vmap's, or a "stand-in"; or an empty string.

    What torch.func's transforms wrap is looked into. Raises ``RuntimeError`` where AOT traces.
    """
    functorch = _C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return "batch"
        tensor = functorch.get_unwrapped(tensor)
    if torch._is_functional_tensor(tensor):
        raise RuntimeError("what a tensor's value decides is decided when the graph runs")
    return "stand-in" if isinstance(tensor, __getattr__("FakeTensor")) else ""


def batched(tensors: Iterable[Any]) -> bool:
    """May one stand for a batch of gradients, or have a tangent, where compiled code sees a plain tensor?

    By ``is_grads_batched``, or ``torch.vmap`` or forward-mode AD around a backward.
    """
    return transforms_active() or any(tensor is not None and _is_batched(tensor) for tensor in tensors)


# What a FakeTensor's .device arrives as in a dispatch mode: no operation.
PRIM_DEVICE: Any = torch.ops.prim.device.default
# The autograd node that the engine is running, in whose name a backward operator is called.
current_autograd_node: Callable[[], Any] = _C._current_autograd_node
# The number of the pass that autograd's engine is in, -1 outside; and whether that pass will run a node.
current_pass: Callable[[], int] = _C._current_graph_task_id
will_run: Callable[[Any], bool] = _C._will_engine_execute_node
# Through which ``Tensor.backward`` and ``torch.autograd.grad`` start one; None if another version has it elsewhere.
start_of_pass: Any = getattr(torch.autograd.graph, "_engine_run_backward", None)
# The class of an autograd function's nodes, whose methods put hooks on them: this one for ``Tensor.register_hook``.
node_class: Callable[[Any], type] = operator.attrgetter("_backward_cls")
HOOKS_OF_TENSOR = "_register_hook_dict"
# The number that the next autograd node will get: ties a backward operator to the forward one.
next_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr
# Autocast rewrites operators as they are called; compiled graphs have its casts in them already.
DisableAutocast: Any = _C._DisableAutocast


class functionalization:  # a namespace
    """torch's C++ functionalization: the pass that turns in-place operators and views into functional ones."""

    enable = staticmethod(torch._enable_functionalization)
    disable = staticmethod(torch._disable_functionalization)
    wrap = staticmethod(torch._to_functional_tensor)
    unwrap = staticmethod(torch._from_functional_tensor)
    is_wrapped = staticmethod(torch._is_functional_tensor)
    sync = staticmethod(torch._sync)
    has_data_mutation = staticmethod(getattr(torch, "_functionalize_has_data_mutation"))  # noqa: B009 (not in the stubs)
    has_metadata_mutation = staticmethod(torch._functionalize_has_metadata_mutation)
    replace = staticmethod(torch._functionalize_replace)
    commit = staticmethod(torch._functionalize_commit_update)
    storage_changed = staticmethod(torch._functionalize_was_storage_changed)


_reapply_views: Callable[[bool], bool] = getattr(torch, "_functionalize_enable_reapply_views")  # noqa: B009 (as above)
_FUNCTIONALIZE = _C.DispatchKeySet(_C.DispatchKey.Functionalize)


def functionalization_skipped() -> Any:
    """A context in which operators go past functionalization, whatever their arguments are."""
    return _C._ExcludeDispatchKeyGuard(_FUNCTIONALIZE)


@contextlib.contextmanager
def functionalization_first() -> Iterator[None]:
    """Below everything, in a dispatch mode: operators go to functionalization once more."""
    included = _C._dispatch_tls_local_include_set() | _FUNCTIONALIZE
    excluded = _C._dispatch_tls_local_exclude_set() - _FUNCTIONALIZE
    with _C._ForceDispatchKeyGuard(included, excluded):
        before = _reapply_views(True)
        try:
            yield
        finally:
            _reapply_views(before)


def functionalization_active() -> bool:
    """Do operators go to functionalization even if none of their arguments asks for it?"""
    return bool(_C._dispatch_tls_is_dispatch_key_included(_C.DispatchKey.Functionalize))


# torch's decompositions to core ATen operators, without those of composite operators (which autograd takes apart).
core_decompositions: Callable[[], dict[Any, Callable[..., Any]]] = torch._decomp._core_aten_decompositions_post_autograd


def is_composite(operator: Any) -> bool:
    """Is the operator written in terms of others, with no kernel of its own? In inference mode such ones arrive whole.

    ``silu_backward`` is written in terms of others, in place, but for devices that lack a kernel.
    """
    found = _composite.get(operator)
    if found is None:
        has, name = _C._dispatch_has_kernel_for_dispatch_key, operator.name()
        try:
            found = has(name, "CompositeImplicitAutograd") and not has(name, "CPU") and not has(name, "CUDA")
        except RuntimeError:  # one of TorchScript's own, such as aten::size: the dispatcher does not know it
            found = False
        _composite[operator] = found
    return bool(found)


_composite: dict[Any, bool] = {}


@functools.cache
def op_database() -> tuple[Any, ...]:
    """torch's table of operators with sample inputs for each; takes seconds to import, and needs ``expecttest``.

    Its import forbids setting ``torch.backends`` flags in the whole process: that is undone. Random operators come
    wrapped in code that seeds; here they are called as they are.
    """
    flag = "__allow_nonbracketed_mutation_flag"
    before = getattr(torch.backends, flag)
    from torch.testing._internal import common_methods_invocations as database

    setattr(torch.backends, flag, before)
    database.wrapper_set_seed = lambda operation, *args, **kwargs: operation(*args, **kwargs)
    return tuple(database.op_db)


def global_module_hooks() -> dict[str, dict[int, Any]]:
    """The tables of hooks that run at every module's call, by name; public functions only add to them."""
    names = [f"_global_{kind}_hooks" for kind in ("backward_pre", "backward", "forward", "forward_pre")]
    return {f"torch.nn.modules.module.{name}": getattr(torch.nn.modules.module, name) for name in names}


# Look past torch function modes, for one reading.
DisableTorchFunction: Any = torch._C.DisableTorchFunction
# The same for __torch_function__ of classes alone, as tensors of a subclass are looked at (``testing``).
DisableTorchFunctionSubclass: Any = torch._C.DisableTorchFunctionSubclass
# Makes a tensor of a class around another one's data, without history.
make_subclass: Any = torch.Tensor._make_subclass
# What enters and leaves a mode of the program's, which capture interprets.
ENTERS_MODE: tuple[Any, ...] = (torch.overrides.TorchFunctionMode.__enter__, torch.overrides._push_mode)
LEAVES_MODE: tuple[Any, ...] = (torch.overrides.TorchFunctionMode.__exit__, torch.overrides._pop_mode)
# Does torch ask classes for their __torch_function__, here and now?
asks_classes: Callable[[], bool] = torch._C._is_torch_function_enabled


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """The user's hooks on saved tensors do not see what is saved while tracing."""
    before = _C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        yield
    finally:
        _C._autograd._saved_tensors_hooks_set_tracing(before)


@contextlib.contextmanager
def outside_torch_compile() -> Iterator[None]:
    """Python code that runs here is not compiled by torch.compile, though it is called from what that compiles."""
    before = _C._dynamo.eval_frame.set_eval_frame(None)
    try:
        with _undisturbed():
            yield
    finally:
        _C._dynamo.eval_frame.set_eval_frame(before)


def told_of_graphs(kind: str) -> Any:
    """The ids of what torch.compile was told to take as one operation ("allowed"), or to break at ("disallowed")."""
    told = getattr(sys.modules.get("torch._dynamo.trace_rules"), f"_{kind}_callable_ids", None)
    return getattr(told, "function_ids", None) or ()


COMPILER = "torch._dynamo.eval_frame"  # loaded as soon as a program uses torch.compile


def stance_of_torch_compile() -> Any:
    """What ``torch.compiler.set_stance`` has set, with its ``stance`` and ``backend``; None before its first use.

    Asked at calls in which a program's own builtins may be in the place of Python's: it calls none.
    """
    compiler = sys.modules.get(COMPILER)
    return None if compiler is None else compiler.__dict__.get("_stance")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """What torch keeps torch.compile away from is called as it is, as long as nobody has imported torch._dynamo.

    torch wraps such functions, its reference implementations among them. At the first call a wrapper imports
    torch._dynamo, which takes a second, and keeps as an attribute of the function what ``torch._dynamo.disable`` made
    of it. Here that attribute is ``_passed_on``, and it is gone afterwards: torch's wrappers find what they left.
    """
    if "torch._dynamo" in sys.modules:
        yield
        return
    ours = []
    for function, passed_on in _kept_away(len(sys.modules)):
        if _DISABLED not in function.__dict__:
            function.__dict__[_DISABLED] = passed_on
            ours.append((function, passed_on))
    try:
        yield
    finally:
        for function, passed_on in ours:
            if function.__dict__.get(_DISABLED) is passed_on:
                del function.__dict__[_DISABLED]


_DISABLED = "__dynamo_disable"


@functools.lru_cache(maxsize=1)
def _kept_away(modules: int) -> list[tuple[Any, Any]]:
    """Each function that is wrapped, and what calls it as it is; asked anew when more ``modules`` are loaded."""
    if DISABLED_CODE.co_freevars != ("fn", "recursive"):
        return []
    wrappers = [w for w in gc.get_referrers(DISABLED_CODE) if isinstance(w, types.FunctionType)]
    found = [(w, w.__closure__[0].cell_contents) for w in wrappers if w.__closure__]
    return [(inner, _passed_on(wrapper, inner)) for wrapper, inner in found if isinstance(inner, types.FunctionType)]


def _passed_on(wrapper: Callable[..., Any], function: Any) -> Callable[..., Any]:
    def passed_on(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if function.__dict__.get(_DISABLED) is passed_on:
            del function.__dict__[_DISABLED]
        return wrapper(*args, **kwargs)

    return passed_on


# The function mode behind `with torch.device(...)` and `torch.set_default_device`.
DeviceContext: Any = importlib.import_module("torch.utils._device").DeviceContext


# What enters, leaves and tells function modes; capture has modes of its own.
FUNCTION_MODE_CALLS: tuple[Callable[..., Any], ...] = (
    DeviceContext.__enter__,
    DeviceContext.__exit__,
    torch.overrides._get_current_function_mode,
    torch.overrides._get_current_function_mode_stack,
)


def function_modes() -> list[Any]:
    """The active torch function modes, the outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def set_function_modes(modes: list[Any]) -> None:
    """Have these torch function modes active, the outermost first, and no other."""
    for _ in range(_C._len_torch_function_stack()):
        _C._pop_torch_function_stack()
    for mode in modes:
        _C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Look at real tensors as they are, whatever modes are active."""
    with _C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        yield


def __getattr__(name: str) -> Any:
    """What is in ``torch_compat/torch_private_symbolic.py``."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module("jitney.torch_compat.torch_private_symbolic"), name)
    return found


# Raises when the graph runs, where a tensor is not true.
assert_async: Callable[[Any, str], None] = torch._assert_async
# What torch.nn.utils.rnn packs sequences with, and takes them apart.
pack_padded: Callable[..., Any] = torch._pack_padded_sequence
pad_packed: Callable[..., Any] = torch._pad_packed_sequence
# A softmax whose rows of minus infinities are zeros.
safe_softmax: Callable[..., torch.Tensor] = torch._safe_softmax
# ``torch.FloatTensor`` and its like: what is called as a class, and names a dtype and a device.
tensor_classes: set[Any] = torch._tensor_classes
# Where ``torch.Tensor(...)`` makes tensors, whatever modes say.
default_tensor_device: Callable[[], Any] = _C._get_default_device

__all__ = [
    "DISABLED_CODE", "ENTERS_MODE", "FUNCTION_MODE_CALLS", "LEAVES_MODE", "MODULE_CALL_FILE", "NEEDS_DATA",
    "OPERATOR_CLASSES", "OPTIMIZER_HOOKS", "OP_NAMESPACES", "PRIM_DEVICE", "SCAN_CODE", "STOPS_RECOMPUTATION",
    "BackwardHookFunction", "CustomOpDef", "DataDependentOutputException", "DeviceContext", "DimDynamic",
    "DisableAutocast", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode", "GlobalStateGuard",
    "GuardOnDataDependentSymNode", "InferenceModeGuard", "LeanFakeTensorMode", "NamedSource", "PythonArithmetic",
    "PythonPrinter", "ShapeEnv", "StatelessSymbolicContext", "TensorBase", "TensorGuards", "TorchDispatchMode",
    "TorchShapeEnv", "TorchSource", "UnsupportedFakeTensorException", "advise_is_size", "asks_classes",
    "assert_async", "autocast_available", "batched", "constrain_size", "control_flow",
    "core_decompositions", "current_accelerator", "current_autograd_node", "data_symbols", "default_tensor_device",
    "deterministic_algorithms", "disabled_torch_function", "dispatch_kept", "dispatch_mode_depth", "expect_true",
    "foreach_copy", "forget_reals", "forward_ad_active", "function_mode_depth", "function_mode_enabled",
    "function_modes", "functionalization", "functionalization_active", "functionalization_first",
    "functionalization_skipped", "functorch_active", "global_module_hooks", "grad_and_value_impl", "grad_impl",
    "group_tensors", "is_composite", "is_traced", "jacobians", "log_api_usage", "make_subclass", "module_call",
    "next_sequence_number", "numpy", "op_database", "out_of_tree_device", "outside_torch_compile", "pack_padded",
    "pad_packed", "python_kernels", "run_on_stand_ins", "safe_softmax", "set_function_modes", "set_grad_enabled",
    "statically_known_true", "suggest_memory_format", "sympy_interp", "tensor_classes", "traces_symbolically",
    "tracing_state", "transforms_active", "undecided", "value_when_captured", "without_modes",
    "without_saved_tensor_hooks",
]  # fmt: skip
