"""Which parameters are reduced together: as DDP does it, in the order in which gradients are ready."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney_ddp_bucketing.options import DDPOptions
from jitney_ddp_bucketing.private import bucket_limits

MIB = 1024 * 1024
LARGE = 2  # times the limit of a bucket


@dataclass(frozen=True)
class Item:
    """A parameter, as buckets see it.

    Args:
        name: in the module that DDP wraps.
        nbytes: of its gradient.
        kind: what gradients must have in common to be reduced together: dtype and device.
    """

    name: str
    nbytes: int
    kind: Hashable

    @classmethod
    def of(cls, name: str, parameter: torch.Tensor) -> Item:
        """Of a parameter of that name."""
        return cls(name, parameter.numel() * parameter.element_size(), (parameter.dtype, parameter.device))


def limits_of(ddp: Any, options: DDPOptions) -> list[int]:
    """Sizes in bytes of the first bucket, the second...; the last one counts for all that follow."""
    own = bucket_limits(ddp)
    if options.bucket_cap_mb is not None:
        own = [_bytes(options.bucket_cap_mb)]
    if options.first_bucket_cap_mb is not None:
        own = [_bytes(options.first_bucket_cap_mb), own[-1]]
    return own


def _bytes(mib: float) -> int:
    """Of so many MiB, which may be infinitely many."""
    return int(min(mib, sys.maxsize // MIB) * MIB)


def assign(items: Sequence[Item], limits: Sequence[int]) -> list[list[int]]:
    """Positions of the items of each bucket; a bucket is full when it has reached its limit.

    As DDP's ``compute_bucket_assignment_by_size``: one bucket is open for each dtype and device, an item larger than
    the limit fills one, and buckets come in the order of their first items.
    """
    open_buckets: dict[Hashable, list[int]] = {}
    sizes: dict[Hashable, int] = {}
    filled: dict[Hashable, int] = {}
    done: list[list[int]] = []
    for at, item in enumerate(items):
        open_buckets.setdefault(item.kind, []).append(at)
        sizes[item.kind] = sizes.get(item.kind, 0) + item.nbytes
        number = filled.get(item.kind, 0)
        if sizes[item.kind] >= limits[min(number, len(limits) - 1)]:
            done.append(open_buckets.pop(item.kind))
            sizes[item.kind] = 0
            filled[item.kind] = number + 1
    done += open_buckets.values()
    return sorted(done)


def in_graph(items: Sequence[Item], limits: Sequence[int]) -> list[list[int]]:
    """As ``assign``, for collectives in the graph: a large item has a bucket of its own, and parts those around it.

    The matrix of an embedding is ready last, and nothing is left to compute while it is reduced: what is ready sooner
    does not wait for it.
    """
    large = [at for at, item in enumerate(items) if item.nbytes > LARGE * limits[-1]]
    found: list[list[int]] = []
    begin = 0
    for at in [*large, len(items)]:
        left = limits[min(len(found), len(limits) - 1) :]
        found += [[begin + i for i in bucket] for bucket in assign(items[begin:at], left)]
        found += [[at]] if at < len(items) else []
        begin = at + 1
    return found


def table(rows: Sequence[tuple[Sequence[Item], int | None]]) -> list[str]:
    """Lines for ``explain``: each bucket's parameters, MB and operations.

    Args:
        rows: for each bucket, in the order in which they are reduced, its parameters and the number of operations of
            its piece; None where the graph is whole.
    """
    lines = ["bucket  parameters        MB   ops  from"]
    for number, (items, ops) in enumerate(rows, 1):
        size = sum(item.nbytes for item in items) / 1e6
        names = ", ".join(item.name for item in itertools.islice(items, 3)) + (", ..." if len(items) > 3 else "")
        lines.append(f"{number:6}  {len(items):10}  {size:8.3f}  {'' if ops is None else ops:4}  {names or '(none)'}")
    return lines
