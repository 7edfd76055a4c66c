"""What a program may be told about a tensor while it is captured: answers that are no tensors become constants.

A stand-in answers for the tensor of this call. The answer holds in the next one if it follows from what is guarded
about every tensor (``guards/tensors.py``: class, dtype, device, sizes, strides, dispatch keys, requires_grad), or if it
is guarded itself. Whatever else torch can tell about a tensor is a graph break.
"""

from __future__ import annotations

from typing import Any

import torch

from jitney.capture import original_functions
from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins.tensor_iterator import hint

# Methods, attributes and functions whose answers follow from what is guarded.
FOLLOWING = frozenset(
    (
        # sizes and strides
        "shape size dim ndim ndimension numel nelement __len__ stride nbytes is_same_size is_contiguous dim_order "
        "is_non_overlapping_and_dense is_strides_like_format _debug_has_internal_overlap "
        "sym_size sym_stride sym_numel sym_is_contiguous "
        # dtype and device
        "dtype type element_size itemsize is_complex is_floating_point is_signed result_type can_cast "
        "device get_device is_cpu is_cuda is_ipu is_maia is_meta is_mps is_mtia is_vulkan is_xla is_xpu is_hpu "
        # class, dispatch keys, requires_grad
        "requires_grad layout is_sparse is_sparse_csr is_mkldnn is_nested is_quantized is_conj is_neg is_inference "
        "is_distributed dense_dim sparse_dim volatile _has_compatible_shallow_copy_type"
    ).split()
)
# Those that are guarded themselves where they are asked of a tensor from outside: whether each is a method.
ASKED = {"is_leaf": False, "output_nr": False, "retains_grad": False, "is_pinned": True}
# Of these, what a stand-in knows about a tensor that the program has made.
KNOWN_OF_RESULTS = {"is_leaf"}
# What is answered otherwise where no gradients are computed.
OF_GRADIENTS = {"requires_grad", "is_leaf", "grad_fn", "retains_grad"}

# Tensor methods whose meaning lies outside a graph: why, and what to do instead.
OUTSIDE: dict[str, str] = {
    "tolist": "reads the tensor's values",
    "numpy": "hands the tensor's memory to NumPy",
    "__array__": "hands the tensor's memory to NumPy",
    "data_ptr": "reads the tensor's address",
    "backward": "runs the autograd engine",
    "register_hook": "registers a Python hook on a tensor",
    "register_post_accumulate_grad_hook": "registers a Python hook on a tensor",
    "retain_grad": "changes how autograd treats a tensor",
    "storage": "hands out the tensor's memory",
    "untyped_storage": "hands out the tensor's memory",
    "set_": "replaces the tensor's memory",
    "share_memory_": "moves the tensor's memory",
    "resize_": "changes the size of the tensor's memory",
    "pin_memory": "moves the tensor's memory",
    "__reduce_ex__": "serialises a tensor",
    "__deepcopy__": "copies a tensor with its autograd state",
    "__dlpack__": "hands out the tensor's memory",
    "is_shared": "looks at the tensor's memory",
    "__setstate__": "serialises a tensor",
    "module_load": "replaces a parameter",
    "to_sparse": "makes a sparse tensor",
    **dict.fromkeys(
        ("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"), "makes a quantized tensor"
    ),
    "__format__": "reads the tensor's values",
    "__repr__": "reads the tensor's values",
    "storage_offset": "looks at the tensor's memory",
    "storage_type": "looks at the tensor's memory",
    "is_set_to": "looks at the tensor's memory",
    "_is_view": "looks at the tensor's memory",
}


def question(func: Any) -> str:
    """The name of what a function, method or getter of torch's asks; of an operator, without its overload."""
    name = str(getattr(func, "__name__", ""))
    if isinstance(func, torch_private.OPERATOR_CLASSES):
        return name.partition(".")[0]
    return str(getattr(func.__self__, "__name__", "")) if name == "__get__" else name


def follows(func: Any) -> bool:
    """Does its answer follow from what is guarded? Programs' own functions and operators say so by being operations."""
    if isinstance(func, torch_private.OPERATOR_CLASSES) and str(func).partition(".")[0] not in (
        "aten",
        "prim",
        "prims",
    ):
        return True
    return question(func) in FOLLOWING or not original_functions.is_own(func)


def ask(real: torch.Tensor, name: str) -> Any:
    """What a real tensor answers."""
    with torch_private.without_modes():
        found = getattr(real, name)
        return found() if ASKED[name] else found


def version_of(fake: Any) -> int:
    """How often the tensor was written to; tensors made in inference mode do not know."""
    with torch_private.DisableTorchFunction():
        return -1 if fake.is_inference() else int(fake._version)


def is_reshaped(fake: Any, real: torch.Tensor) -> bool:
    """Has a tensor of inference mode, which counts no writes, got another shape?"""
    with torch_private.DisableTorchFunction():
        if not fake.is_inference():
            return False
        shape, stride = ([hint(n) for n in sizes] for sizes in (fake.shape, fake.stride()))
        return shape != [*real.shape] or stride != [*real.stride()]


def storage(fake: Any) -> int:
    """Which memory a stand-in is a view of."""
    with torch_private.DisableTorchFunction():
        return int(fake.untyped_storage()._cdata)
