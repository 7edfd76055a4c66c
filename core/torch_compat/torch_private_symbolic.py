"""Private torch names for stand-ins, symbolic sizes and ``flex_attention``; ``torch_private.py`` has the others."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable
from typing import Any

import torch

# NumPy's functions in terms of torch's.
import torch._numpy as numpy
import torch.fx.experimental._config as _shapes_config

# Runs those operators that torch has written in Python too (``matmul``) in that form.
from torch._dispatch.python import enable_python_dispatcher

# ShapeEnv asks for a torch Source to name a symbol; the base class is part of its signature.
from torch._guards import Source as TorchSource

# What flex_attention calls with its score and mask functions, after it has checked all that it was given.
from torch._higher_order_ops.flex_attention import flex_attention as flex_operator

# Shapes, dtypes and devices of results without computing them.
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch._subclasses.meta_utils import MetaConverter

# Symbolic sizes.
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    StatelessSymbolicContext,
    expect_true,
    free_unbacked_symbols,
    statically_known_true,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv as TorchShapeEnv
from torch.fx.experimental.symbolic_shapes import _advise_is_size as advise_is_size
from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size as constrain_size

# Refuses gradients on CPUs, as torch's kernel there has none; is a function one of scores, or of masks?
from torch.nn.attention.flex_attention import _get_mod_type as flex_kind
from torch.nn.attention.flex_attention import _ModificationType as FlexKinds
from torch.nn.attention.flex_attention import _validate_device as flex_refuse_devices

# Turns a size expression into calls on FX proxies, and into Python text.
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

from jitney.torch_compat.lazy_imports import defer_imports

# What C++ says of a size that it wants as a number, before anything is done.
_NO_SYMBOLS = ("on tensor with symbolic sizes/strides", "expected to contain only concrete integers")
# What an operation raises on a stand-in if it needs data.
NEEDS_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
# Of a packed sequence these read how long it is from memory, from address 0 where its sizes are symbolic.
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def run_on_stand_ins(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Callable[..., Any] | None = None
) -> Any:
    """Call an operator, by ``caller`` if it is given; one whose C++ does not take symbolic sizes, in its Python form.

    Such as ``matmul`` in torch 2.11, and those in place that functionalization first tries without data (``clamp_``).
    """
    if getattr(func, "__name__", "") in _RECURRENT and len(args) > 3 and isinstance(args[3], list | tuple):
        raise UnsupportedFakeTensorException("the lengths of a packed sequence are data")
    try:
        return func(*args, **kwargs) if caller is None else caller(func, args, kwargs)
    except RuntimeError as error:
        of_many = getattr(func, "__name__", "").startswith("_foreach_")  # some of them may be done
        if of_many or not any(text in str(error) for text in _NO_SYMBOLS):
            raise
    with enable_python_dispatcher():
        return func(*args, **kwargs)


def data_symbols(size: Any) -> Any:
    """The symbols for what depends on data in a size as it was made: what is known to be equal may be no such."""
    return free_unbacked_symbols(size.node._expr)


def _called(function: Any, *args: Any) -> Any:
    """A call; of proxies, a node: ``math``'s functions ask no proxy, nor do torch's where torch functions are off."""
    proxy = next((a for a in args if isinstance(a, torch.fx.Proxy)), None)
    return function(*args) if proxy is None else proxy.tracer.create_proxy("call_function", function, args, {})


def _conversion(function: Any) -> Any:
    """What takes the dtype of its result, too, which Python's numbers have not."""
    return staticmethod(lambda x, dtype: _called(function, x))


class PythonArithmetic(PythonReferenceAnalysis):
    """Python's operations for those of a size expression; several of torch's class take no proxies."""

    floor_to_int: Any = _conversion(math.floor)
    ceil_to_int: Any = _conversion(math.ceil)
    trunc_to_int: Any = _conversion(math.trunc)
    round_to_int: Any = _conversion(round)
    to_dtype: Any = _conversion(torch.sym_float)
    maximum: Any = staticmethod(functools.partial(_called, torch.sym_max))
    minimum: Any = staticmethod(functools.partial(_called, torch.sym_min))
    not_: Any = staticmethod(functools.partial(_called, torch.sym_not))

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        """``a / b`` of integers."""
        return a / b


class NamedSource(TorchSource):
    """A torch Source that is a name and no more."""

    def __init__(self, text: str) -> None:
        # torch hashes the name, which it must be able to encode.
        object.__setattr__(self, "_text", text.encode("utf-8", "backslashreplace").decode())

    @property
    def _name_template(self) -> str:
        return str(self._text)  # type: ignore[attr-defined]

    @property
    def name(self) -> Any:  # torch 2.11 calls it, later versions read it
        """The text, called or read."""
        return _Name(self._text)  # type: ignore[attr-defined]

    def is_ephemeral(self) -> bool:
        """It names something that stays."""
        return False

    def __hash__(self) -> int:
        return hash(self._text)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSource) and other._text == self._text  # type: ignore[attr-defined]


class _Name(str):
    """A string that may also be called, as older ShapeEnvs do."""

    def __call__(self) -> str:
        return str(self)


# torch's settings of stand-ins are in torch._dynamo, whose import takes a second. As long as nobody has imported it
# they have these values, unless the environment says something else.
_CONFIG = {
    "fake_tensor_cache_enabled": True,
    "fake_tensor_cache_crosscheck_enabled": False,
    "_custom_ops_profile": None,
}
_PUT_OFF: dict[str, dict[str, Any]] = {
    "torch._dynamo.config": {} if any(name.startswith("TORCH_FAKE_TENSOR") for name in os.environ) else _CONFIG,
    # Names of tensors, for messages.
    "torch._dynamo.source": {
        "ConstantSource": lambda name: NamedSource(name),
        "AttrSource": lambda base, member: NamedSource(f"{base.name}.{member}"),
    },
}


class LeanMetaConverter(MetaConverter):
    """Makes meta tensors like given ones."""

    meta_tensor = defer_imports(MetaConverter.meta_tensor, _PUT_OFF)


class LeanConverter(FakeTensorConverter):
    """Makes FakeTensors like given tensors."""

    __init__ = defer_imports(FakeTensorConverter.__init__, {}, {"MetaConverter": LeanMetaConverter})
    _made = defer_imports(FakeTensorConverter.from_real_tensor, _PUT_OFF)

    def from_real_tensor(self, *args: Any, **options: Any) -> Any:
        """One FakeTensor. torch's own log is not told: that symbolizes a stack, which imports torch._inductor."""
        return self._made(*args, **{**options, "trace": False})


# What is itself a part of a key of the stand-ins' cache, beside its type: 1 and 1.0 are equal, and mean other results.
_PLAIN = frozenset({
    int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
})  # fmt: skip
_STAND_IN = object()  # marks the metadata of a stand-in in a key
_HASHED = ["self", "result", "args", "state", "id_hashed_objects"]


class LeanFakeTensorMode(FakeTensorMode):
    """torch's FakeTensorMode, which does without importing torch._dynamo where it can."""

    __init__ = defer_imports(FakeTensorMode.__init__, _PUT_OFF, {"FakeTensorConverter": LeanConverter})
    _dispatch_impl = defer_imports(FakeTensorMode._dispatch_impl, _PUT_OFF)

    if [*inspect.signature(FakeTensorMode._prep_args_for_hash).parameters] == _HASHED:

        def _prep_args_for_hash(self, result: list[Any], args: Any, state: Any, id_hashed_objects: list[Any]) -> None:
            """As torch's, for static sizes in a quarter of the time: most of what operators cost here is this key."""
            if isinstance(args, (list, tuple)):
                result += (type(args), len(args))
            elif type(args) is dict:
                super()._prep_args_for_hash(result, args, state, id_hashed_objects)
                return
            for arg in args:
                kind = type(arg)
                if kind in _PLAIN:
                    result += (kind, arg)
                elif kind is list or kind is tuple:
                    self._prep_args_for_hash(result, arg, state, id_hashed_objects)
                elif kind is not FakeTensor or not self._static(result, arg):
                    super()._prep_args_for_hash(result, (arg,), state, id_hashed_objects)

    def _static(self, result: list[Any], x: Any) -> bool:
        """All that torch's key has of a strided stand-in without symbols; False for another one."""
        if x.fake_mode is not self or x.constant is not None or x._has_symbolic_sizes_strides:
            return False
        if x.layout is not torch.strided:
            return False
        offset, size = x.storage_offset(), x.untyped_storage().nbytes()
        if type(offset) is not int or type(size) is not int:
            return False
        result += (
            _STAND_IN, x.dtype, x.shape, x.stride(), x.device, offset, size,
            x.requires_grad, x.is_quantized, x.is_conj(), x.is_neg(), x.is_inference(),
        )  # fmt: skip
        return True


def _translation_validation_enabled() -> bool:
    """The function of this name, which is in a module that imports torch._dynamo."""
    if not _shapes_config.translation_validation:
        return False
    from torch.fx.experimental.validator import translation_validation_enabled

    return translation_validation_enabled()


class ShapeEnv(TorchShapeEnv):
    """torch's ShapeEnv, which does without importing torch._dynamo before there is a symbol."""

    _VALIDATOR = {
        "torch.fx.experimental.validator": {"translation_validation_enabled": _translation_validation_enabled}
    }
    __init__ = defer_imports(TorchShapeEnv.__init__, _VALIDATOR)
    _init = defer_imports(TorchShapeEnv._init, _VALIDATOR)


def value_when_captured(env: TorchShapeEnv, symbol: Any) -> int | None:
    """What a symbol was when it was made; None if only the running graph knows it. torch 2.11 has the older name."""
    known = getattr(env, "backed_var_to_val", None)
    found = (env.var_to_val if known is None else known).get(symbol)
    return None if found is None else int(found)


def bound_results(most: int) -> None:
    """Forget what operators made of stand-ins, if torch remembers more than ``most`` of them.

    It does so for the life of the process, by their arguments, numbers included: each new constant is another entry.
    """
    if len(FakeTensorMode.cache) > most:
        FakeTensorMode.cache.clear()


def forget_reals(mode: Any) -> None:
    """Let go of the weak references to real tensors that a mode has made stand-ins for.

    It needs them while it meets tensors; and ``torch.utils.swap_tensors`` refuses tensors to which there are any. So
    with what it remembers of each operator on symbolic sizes: no other mode can use that, and torch's caches of
    expressions (``ShapeEnv._simplify`` and others) hold the last 256 environments of sizes, whatever became of them.
    """
    describer = mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.clear()
    describer.lookup_storage.clear()
    remembered = getattr(mode.shape_env, "fake_tensor_cache", None)
    if remembered is not None:
        remembered.clear()


__all__ = [
    "NEEDS_DATA",
    "DataDependentOutputException",
    "DimDynamic",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "FlexKinds",
    "GuardOnDataDependentSymNode",
    "LeanFakeTensorMode",
    "NamedSource",
    "PythonArithmetic",
    "PythonPrinter",
    "ShapeEnv",
    "StatelessSymbolicContext",
    "TorchShapeEnv",
    "TorchSource",
    "UnsupportedFakeTensorException",
    "advise_is_size",
    "bound_results",
    "constrain_size",
    "data_symbols",
    "expect_true",
    "flex_kind",
    "flex_operator",
    "flex_refuse_devices",
    "forget_reals",
    "numpy",
    "statically_known_true",
    "sympy_interp",
    "value_when_captured",
]
