"""Every private torch name that this plugin uses, each with its reason. Checked with torch 2.11 to 2.13.

The class is torch's own ``torch.nn.parallel.DistributedDataParallel``, which ``import torch`` has loaded; nothing here
imports torch.distributed's machinery.
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

DDP: Any = torch.nn.parallel.DistributedDataParallel
DEFAULT_FIRST_BUCKET = 1024 * 1024  # bytes; torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
OPTIMIZERS = "_in_backward_optimizers"  # torch.distributed.optim._apply_optimizer_in_backward sets it on parameters


class Sync(enum.Enum):
    """What ``require_backward_grad_sync`` is while a forward runs whose gradients the reducer is not to see.

    As good as False; and not False, so that it is told from ``no_sync`` if the forward ends without any hook.
    """

    ELSEWHERE = 0

    def __bool__(self) -> bool:
        return False


def is_ddp(module: object) -> bool:
    """Is it a DDP module, or of a class made of it?"""
    return isinstance(module, DDP)


def active_module() -> Any:
    """The DDP module whose forward runs, None outside: DDP notes it around its module's call."""
    return DDP._active_ddp_module


def parameters_of(ddp: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that DDP reduces, by name, each once, in the order in which its reducer has them."""
    ignored = ddp.parameters_to_ignore
    return [(n, p) for n, p in ddp.module.named_parameters() if p.requires_grad and n not in ignored]


def expects_sparse(ddp: Any) -> bool:
    """Has the module embeddings whose gradients are sparse?"""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return any(isinstance(m, kinds) and m.sparse for m in ddp.module.modules())


def bucket_limits(ddp: Any) -> list[int]:
    """The sizes of DDP's own buckets in bytes: of the first, the second...; the last one counts for all that follow.

    ``bucket_bytes_cap_default``: did the user leave ``bucket_cap_mb`` alone? Then the first is smaller.
    """
    listed = list(getattr(ddp, "bucket_bytes_cap_list", ()) or ())
    cap = int(ddp.bucket_bytes_cap)
    return listed or [min(DEFAULT_FIRST_BUCKET, cap) if ddp.bucket_bytes_cap_default else cap, cap]


def has_comm_hook(ddp: Any) -> bool:
    """Was a communication hook registered, from Python or one of torch's own in C++? Asked at each step: microseconds.

    Optimizers that run within the backward become one at the first forward.
    """
    if ddp._comm_hooks or (not ddp._lazy_init_ran and any(hasattr(p, OPTIMIZERS) for p in ddp._module_parameters)):
        return True
    logger = getattr(ddp, "logger", None)
    return bool(logger is not None and logger._get_ddp_logging_data().strs_map.get("comm_hook"))


def in_join(ddp: Any) -> bool:
    """Is the module within ``join()``, where ranks that ran out of data answer the collectives of DDP's reducer?"""
    return bool(ddp._join_config.enable)


def uses_reducer(ddp: Any) -> bool:
    """Does DDP's reducer in C++ do the work? Not with torch.compile's own Python reducer, nor where all is delayed."""
    return not ddp._use_python_reducer and not ddp._delay_all_reduce_all_params


def after_backward(call: Callable[[], None]) -> None:
    """Within a backward: run ``call`` when all of it is done. What it raises, ``backward()`` raises."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def backward_pass() -> int:
    """A number for the backward that runs in this thread; -1 outside."""
    return int(torch._C._current_graph_task_id())


def accumulates(parameters: Iterable[torch.Tensor]) -> bool:
    """Will the backward that runs add to the ``.grad`` of any of them? ``torch.autograd.grad`` does not.

    Asked of one of them only, unless ``backward(inputs=...)`` leaves that one out. torch says so of nodes that are not
    what ``torch.autograd.grad`` was asked for, and raises for those.
    """
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        node = torch.autograd.graph.get_gradient_edge(parameter).node
        try:
            if torch._C._will_engine_execute_node(node):
                return True
        except RuntimeError:
            return False
    return False


def collectives() -> Any:
    """torch's functional collectives as operators; the import gives them rules for tensors without data."""
    importlib.import_module("torch.distributed._functional_collectives")
    return torch.ops._c10d_functional


def default_store() -> Any:
    """The key-value store through which the processes found each other."""
    return sys.modules["torch.distributed"].distributed_c10d._get_default_store()
