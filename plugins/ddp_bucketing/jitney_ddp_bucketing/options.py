"""What users may write in ``options={...}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DDPOptions:
    """Options for modules in DistributedDataParallel.

    Args:
        ddp: ``split``: the graph is cut where buckets end, so that DDP's own reducer starts early; ``in_graph``: the
            graph stays whole, and the collectives are operators of its backward; ``off``: DDP reduces what is compiled
            as one.
        bucket_cap_mb: how many MiB of gradients are reduced at once; DDP's own ``bucket_cap_mb`` if None.
        first_bucket_cap_mb: the same for the bucket that is ready first; as DDP if None: 1 MiB, or ``bucket_cap_mb`` if
            that was given.
    """

    ddp: Literal["split", "in_graph", "off"] = "split"
    bucket_cap_mb: float | None = None
    first_bucket_cap_mb: float | None = None

    def __post_init__(self) -> None:
        for name in ("bucket_cap_mb", "first_bucket_cap_mb"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is a positive number of MiB, got {value}")
