"""What kernels take: the bytes that go through memory, and operations counted as bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from jitney_lowering.index import Var, product
from jitney_lowering.ir.loops import Extern, Program, Strided
from jitney_lowering.ir.operations import OPERATIONS
from jitney_lowering.ir.values import Apply, Load, Position, Value, spacing, walk
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.size_guess import guess

LAUNCH = 1 << 23  # bytes that go through memory while a kernel is launched
SECTOR = 32  # bytes that are read of memory at least
CACHED = 2  # the cost of an element near one that was loaded: it comes from a cache, not from memory


def work(value: Value, loops: Sequence[Var]) -> float:
    """Cost of the operations for one iteration of the loops; what inner loops do not change counts as its share.

    Of several elements of a buffer, all but one are loaded from a cache, which costs as much as operations do.
    """
    total = guess(product(loops)) or 1
    depth = {var: number for number, var in enumerate(loops, 1)}
    varies: dict[Value, int] = {}  # how many of the loops it is inside of
    loaded: dict[str, list[float]] = {}
    spent = 0.0
    for v in walk(value):
        here = max((varies[p] for p in v.parts), default=0)
        if isinstance(v, (Load, Position)):
            here = max(here, *(depth.get(a, 0) for a in v.index.atoms), 0)  # type: ignore[call-overload]
        varies[v] = here
        share = min(1.0, guess(product(loops[:here])) / total)
        if isinstance(v, Apply):
            spent += OPERATIONS[v.op].cost * share
        elif isinstance(v, Load):
            loaded.setdefault(v.buffer, []).append(share)
    return spent + CACHED * sum(sum(shares) - max(shares) for shares in loaded.values())


def lines(value: Value, loops: Sequence[Var], buffers: Collection[str]) -> int:
    """Lines of a cache beyond the first that neighbours lie in, of what the innermost loop loads from the buffers.

    One coordinate of points lies apart from the next point's: the cache hands out several lines for it.
    """
    if not loops:
        return 0
    reads = [v for v in walk(value) if isinstance(v, Load) and v.buffer in buffers and loops[-1] in v.index.atoms]
    return sum(spacing(load, loops, guess) - 1 for load in reads)


def time_of(program: Program, items: Sequence[Group | Extern], policy: Policy) -> float:
    """What the kernels take, in bytes of memory traffic."""
    fixed = pinned(program, items)
    readers: dict[str, set[int]] = {}
    for number, item in enumerate(items):
        for name in loaded(item):
            readers.setdefault(name, set()).add(number)
    total = 0.0
    for number, item in enumerate(items):
        if isinstance(item, Extern):
            continue
        stored = {name for name in item.makers if name in fixed or readers.get(name, set()) - {number}}
        stored |= {load.buffer for m in item.members for load in m.loads if load.indirect} & item.makers.keys()
        total += LAUNCH + sum(bytes_of(program, name) for name in stored)
        total += sum(read_bytes(program, item, name) for name in {*loaded(item)} - item.makers.keys())
        for member in item.members:
            loops = member.step.loops
            total += work(member.step.value, loops) * guess(product(loops)) / max(policy.recompute, 1)
    return total


def bytes_of(program: Program, name: str) -> int:
    """How much memory a buffer's elements take: what it spans, or less for a part of another one."""
    buffer = program.buffers[name]
    return min(guess(buffer.extent), math.prod(map(guess, buffer.size))) * buffer.dtype.itemsize


def read_bytes(program: Program, item: Group | Extern, name: str) -> int:
    """How much of a buffer an item reads: all of it, or what lies around a few places that are computed."""
    whole = bytes_of(program, name)
    if isinstance(item, Extern):
        return whole
    reads = [(load, m.step.loops) for m in item.members for load in m.loads if load.buffer == name]
    if not all(load.indirect for load, _ in reads):
        return whole
    return min(whole, SECTOR * sum(guess(product(loops)) for _, loops in reads))


def pinned(program: Program, items: Sequence[Group | Extern]) -> frozenset[str]:
    """Buffers that must be in memory: somebody reads them who is no kernel, or they are parts of others."""
    found = {o.buffer for o in program.outputs if isinstance(o, Strided)} | {check[0] for check in program.checks}
    for buffer in program.buffers.values():
        if buffer.home is not None:
            found |= {buffer.name, buffer.home[0]}
    for item in items:
        if isinstance(item, Extern):
            found |= item.reads | item.written
    return frozenset(found)


def loaded(item: Group | Extern) -> Iterator[str]:
    """Buffers that somebody in the item reads, its own too."""
    if isinstance(item, Extern):
        yield from item.reads
    else:
        yield from {load.buffer for member in item.members for load in member.loads}
