"""From a lowered program to kernels in order, with a place in memory for each buffer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch import fx

from jitney.config import config
from jitney.errors import BackendFailed
from jitney_lowering.index import Names
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Computed, Extern, Program, Strided
from jitney_lowering.ir.matrix_product import matrix_product_of
from jitney_lowering.policy import CPU, Policy
from jitney_lowering.repeats.expansion import unrolled
from jitney_lowering.scheduler.backwards import turned_round
from jitney_lowering.scheduler.build import build
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.loop_split import with_split_loops
from jitney_lowering.scheduler.memory.in_place import root
from jitney_lowering.scheduler.memory.numbers import with_numbers
from jitney_lowering.scheduler.memory.order import ordered
from jitney_lowering.scheduler.memory.peak import peak
from jitney_lowering.scheduler.memory.plan import Memory, plan
from jitney_lowering.scheduler.memory.scatters import scattered_in_place
from jitney_lowering.scheduler.memory.successors import taken_over
from jitney_lowering.scheduler.memory.updates import (
    copied_early,
    filled_in_place,
    guarded,
    updates_last,
    with_late_counters,
    written_inputs,
)
from jitney_lowering.scheduler.postpone import postponed
from jitney_lowering.scheduler.products import Takes, joined
from jitney_lowering.scheduler.rows.interleaved import with_pairs_whole
from jitney_lowering.scheduler.rows.packed import with_integers_whole
from jitney_lowering.scheduler.simplify import clean
from jitney_lowering.scheduler.traffic.early import with_early_parts
from jitney_lowering.scheduler.traffic.fused import Fused
from jitney_lowering.scheduler.traffic.placement import placed
from jitney_lowering.scheduler.traffic.recompute import less_work
from jitney_lowering.scheduler.traffic.running import with_running_values
from jitney_lowering.scheduler.traffic.short_results import with_parted_results
from jitney_lowering.signals import NotRepeated


@dataclass(frozen=True)
class Schedule:
    """What runs, in order.

    Args:
        program: what it was made from; its ``steps`` are not all kept.
        items: kernels and extern calls.
        memory: where temporaries are.
        filled: buffers that share the memory of an input, which they replace: buffer -> the input's.
        allocated: what kernels fill and somebody keeps (outputs, what an operator returns a view of): fresh memory.
        successors: buffers that get the memory of an operator's result, or large temporary, that is no longer needed:
            buffer -> that.
    """

    program: Program
    items: tuple[Kernel | Extern, ...]
    memory: Memory
    allocated: tuple[str, ...]
    filled: Mapping[str, str]
    successors: Mapping[str, str]

    def verify(self) -> None:
        """Kernels are well formed, buffers are filled before they are read; raises ``BackendFailed``."""
        for item in self.items:
            if isinstance(item, Kernel):
                item.verify()
                if item.unused:  # memory may be gone by then: it is kept for what reads it
                    raise BackendFailed(f"kernel {item.name}: nothing is done with {', '.join(sorted(item.unused))}")
        self.memory.verify()

    def __str__(self) -> str:
        return "\n".join(str(item) for item in self.items)


def schedule(
    program: Program,
    updates: Mapping[int, int] = MappingProxyType({}),
    into: Callable[[Extern, Program], bool] = lambda call, program: False,
    fresh: Callable[[Extern, Program], bool] = lambda call, program: False,
    policy: Policy = CPU,
    takes: Takes | None = None,
    large: int | None = None,
    dying: Collection[int] = (),
    apart: Collection[fx.Node] = (),
) -> Schedule:
    """Clean, fuse, build kernels, plan memory.

    Args:
        program: the lowered graph.
        updates: outputs that will be copied into an input: see ``CompileRequest``.
        into: does the backend launch this operator by itself, with memory for its result (``Extern.into``)? Asked for
            operators that make one new tensor.
        fresh: or without such memory (``Extern.fresh``)?
        policy: what suits the machine.
        takes: does the backend want a matrix product as a kernel of its own, with what follows? See ``products.py``.
        large: bytes of a temporary that has memory of its own; None: all share an arena, and keep their order.
        dying: positions of inputs that are gone once they have been read for the last time.
        apart: operators whose steps are kernels of their own: no code could be made of what they were fused to.

    Raises:
        NotRepeated: the program is that of a shorter graph (``lower``: ``once``), and this is not the whole one's.
    """
    names = Names(program.buffers)
    steps = with_late_counters(program, turned_round(clean(program)), updates)
    if policy.split_loop:
        steps = with_split_loops(steps, names, policy.split_loop)
    alone = frozenset(apart)
    steps = [replace(s, apart=True) if isinstance(s, Computed) and alone.intersection(s.nodes) else s for s in steps]
    fused = Fused.of(program, steps, names, policy)
    if policy.recompute:
        replaced = {name for n in updates.values() if isinstance(name := program.inputs[n], str)}
        fused = placed(less_work(with_early_parts(with_parted_results(fused)), replaced))
    fused = with_running_values(fused)
    program, items = fused.program, fused.items
    kernels = [
        _native(item, program, into, fresh) if isinstance(item, Extern) and item.is_plain else item
        for item in _kernels(items, program, names)
        if not isinstance(item, Extern) or not _is_done(item, program)
    ]
    buffers = dict(program.buffers)
    kernels = [with_numbers(item, buffers) if isinstance(item, Kernel) else item for item in kernels]
    program = replace(program, buffers=buffers)
    kept = _kept(program, kernels)
    if takes is not None:
        kernels = joined(kernels, program, frozenset(kept), takes, names)
    if policy.packed:
        kernels = [
            with_integers_whole(item, names, policy.packed)
            if isinstance(item, Kernel) and matrix_product_of(item) is None
            else item
            for item in kernels
        ]
    if policy.paired:
        kernels = [with_pairs_whole(item) if isinstance(item, Kernel) else item for item in kernels]
    # What was written out may need less than what it was made from: `where(1 < 2, a, b)`.
    kernels = [item.without_unused() if isinstance(item, Kernel) else item for item in kernels]
    if program.repetition is not None:
        whole = unrolled(program, kernels)
        if whole is None:
            raise NotRepeated
        program, kernels = whole.program, whole.items
        kept = _kept(program, kernels)
    kernels = postponed(kernels, program.buffers, kept | program.constants.keys())
    if large is not None and not updates:
        gone = {name for n in dying if isinstance(name := program.inputs[n], str)}
        kernels = ordered(kernels, program, kept, gone)
    kernels = updates_last(program, kernels, updates)
    kernels, buffers, filled = scattered_in_place(program, kernels, updates, kept, names)
    program = replace(program, buffers=buffers)
    inputs = {name for name in program.inputs if isinstance(name, str)}
    external = {b for i in kernels if isinstance(i, Extern) and not i.into for b in i.buffers if b is not None}
    filled |= written_inputs(program, updates) | filled_in_place(program, kernels, updates)
    program, kernels, copied = copied_early(program, kernels, updates, filled, names)
    filled |= copied
    kept = _kept(program, kernels)
    kept |= {root(name, program.buffers) for name in kept}
    kernels = guarded(program, kernels, filled)
    owned = inputs | program.constants.keys()
    successors = taken_over(program, kernels, kept, owned | filled.keys(), large)
    outside = owned | kept | external | successors.keys()
    memory = plan(kernels, program.buffers, outside, large, frozenset(successors.values()))
    given = owned | external | filled.keys() | successors.keys()
    allocated = tuple(name for name, b in program.buffers.items() if name in kept - given and b.home is None)
    made = Schedule(program, tuple(kernels), memory, allocated, filled, successors)
    if config.verify:
        made.verify()
    return made


def _kept(program: Program, items: Sequence[Kernel | Extern]) -> set[str]:
    """Buffers that somebody has when the graph has run, or may have."""
    kept = {o.buffer for o in program.outputs if isinstance(o, Strided)} | {c[0] for c in program.checks}
    return kept | {name for item in items if isinstance(item, Extern) and item.aliases for name in item.reads}


def needed_bytes(made: Schedule) -> int:
    """About how much memory a graph's temporaries and results take at a time, without its inputs."""
    return peak(made.program, made.items, {**made.filled, **made.successors, **made.memory.instead_of})


def _native(
    call: Extern, program: Program, into: Callable[[Extern, Program], bool], fresh: Callable[[Extern, Program], bool]
) -> Extern:
    """The operator, as the backend calls it."""
    given = into(call, program)
    return replace(call, into=given, fresh=not given and fresh(call, program))


def _is_done(item: Extern, program: Program) -> bool:
    """Does it only join parts which are where they belong, or name what is in memory already?"""
    if item.reason != "joined" or len(item.buffers) != 1 or item.buffers[0] is None:
        return False
    whole = root(item.buffers[0], program.buffers)
    return bool(item.reads) and all(root(name, program.buffers) == whole for name in item.reads)


def _kernels(items: Sequence[Group | Extern], program: Program, names: Names) -> list[Kernel | Extern]:
    readers: dict[str, set[int]] = {}
    for number, item in enumerate(items):
        for name in item.reads:
            readers.setdefault(name, set()).add(number)
    for output in program.outputs:
        if isinstance(output, Strided):
            readers.setdefault(output.buffer, set()).add(-1)
    for check in program.checks:
        readers.setdefault(check[0], set()).add(-1)
    kernels: list[Kernel | Extern] = []
    for number, item in enumerate(items):
        if isinstance(item, Extern):
            kernels.append(item)
            continue
        needed = frozenset(b for b in item.makers if readers.get(b, set()) - {number})
        kernels.append(build(item, f"k{len(kernels)}", program.buffers, needed, names))
    return kernels
