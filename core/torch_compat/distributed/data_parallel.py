"""What ``DistributedDataParallel`` has set up: attributes that only its own code is to read."""

from __future__ import annotations

from typing import Any

import torch


def refused(ddp: Any) -> str | None:
    """What of a module's settings no graph says; None if there is nothing. Interpreted."""
    if ddp._use_python_reducer or ddp._delay_all_reduce_all_params or ddp.mixed_precision is not None:
        return "with mixed_precision, delayed gradients or a reducer in Python"
    if ddp.find_unused_parameters or ddp.static_graph or ddp.gradient_as_bucket_view:
        return "with find_unused_parameters, static_graph or gradient_as_bucket_view"
    if ddp._comm_hooks or ddp._join_config.enable or hasattr(ddp, "buffer_hook"):
        return "with a communication hook, or within join()"
    return None


def reduced(ddp: Any) -> list[torch.Tensor]:
    """The parameters whose gradients are reduced. Interpreted."""
    return [p for p in ddp._module_parameters if p.requires_grad]


def refused_natively(ddp: Any) -> str | None:
    """The same, of what is asked while capturing only: hooks in C++, optimizers in the backward."""
    if any(hasattr(p, "_in_backward_optimizers") for p in ddp._module_parameters):
        return "with optimizers that run in the backward"
    if ddp.logger is not None and ddp.logger._get_ddp_logging_data().strs_map.get("comm_hook"):
        return "with a communication hook"
    return None
