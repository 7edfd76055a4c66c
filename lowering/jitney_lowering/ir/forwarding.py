"""Store-to-load forwarding in kernels: values in registers rather than in memory of a row, reductions not cut in two.

The schedule writes down what a row keeps for its later nests. Here such a value is the same one wherever it is read: in
registers if the whole row is there, computed again if the row is gone through piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from jitney_lowering.index import Index, Var
from jitney_lowering.ir.kernel import Accumulate, Kernel, Nest, Reduce, Scan, Scatter, Statement, Store
from jitney_lowering.ir.values import Load, Put, Ref, Value, rebuild, walk


def forward_stores(kernel: Kernel, replaced: Mapping[str, str] = MappingProxyType({})) -> Kernel:
    """The same computation.

    Args:
        kernel: not changed.
        replaced: buffers in whose memory the kernel stores something else -> that. None of these is read after that has
            been stored, nor at another place in the nest that stores it.
    """
    return _without_scratch(_same_variables(_without_pairs(kernel)), replaced)


def _without_pairs(kernel: Kernel) -> Kernel:
    """What is reduced in a nest only to be accumulated after it is accumulated in the nest."""
    readers: dict[str, list[Statement]] = {}
    for nest in kernel.body:
        for s in nest.statements:
            for v in walk(s.value):
                if isinstance(v, Ref):
                    readers.setdefault(v.name, []).append(s)
    taken: dict[str, Accumulate] = {}
    for nest in kernel.body:
        for s in nest.statements:
            if isinstance(s, Reduce) and s.position is None:
                users = readers.get(s.name, [])
                if len(users) == 1 and _only_adds_up(users[0], s):
                    taken[s.name] = users[0]  # type: ignore[assignment]
    if not taken:
        return kernel
    gone = {id(s) for s in taken.values()}
    body = []
    for nest in kernel.body:
        statements: list[Statement] = []
        for s in nest.statements:
            if isinstance(s, Reduce) and s.name in taken:
                into = taken[s.name]
                statements.append(Accumulate(into.buffer, into.index, into.kind, s.value))
            elif id(s) not in gone:
                statements.append(s)
        if statements:
            body.append(Nest(nest.loops, tuple(statements)))
    return replace(kernel, body=tuple(body))


def _only_adds_up(user: Statement, made: Reduce) -> bool:
    return (
        isinstance(user, Accumulate)
        and user.kind == made.kind
        and isinstance(user.value, Ref)
        and user.value.name == made.name
    )


def _same_variables(kernel: Kernel) -> Kernel:
    """Nests over equal ranges have the same variables, so what they compute alike is one value."""
    known: dict[tuple[Index, ...], tuple[Var, ...]] = {}
    body = []
    for nest in kernel.body:
        sizes = tuple(v.size for v in nest.loops)
        if sizes not in known:
            first = sum(len(loops) for loops in known.values())
            known[sizes] = tuple(Var(f"q{first + n}", size) for n, size in enumerate(sizes))
        table: dict[Any, Index] = dict(zip(nest.loops, known[sizes], strict=True))
        memo: dict[Any, Value] = {}
        statements = tuple(_renamed(s, table, memo) for s in nest.statements)
        body.append(Nest(known[sizes], statements))
    return replace(kernel, body=tuple(body))


def _renamed(s: Statement, table: dict[Any, Index], memo: dict[Any, Value]) -> Statement:
    def index(i: Index) -> Index:
        return i.substitute(table)

    value = rebuild(s.value, index=index, memo=memo)
    if isinstance(s, Reduce):
        return replace(s, value=value, position=None if s.position is None else index(s.position))
    if isinstance(s, (Scatter, Scan)):
        return _with_value(s, value)
    return replace(s, index=index(s.index), value=value)


def _with_value(s: Statement, value: Value) -> Statement:
    if isinstance(s, Scatter):
        assert isinstance(value, Put)
        return replace(s, value=value)
    return replace(s, value=value)


def _without_scratch(kernel: Kernel, replaced: Mapping[str, str]) -> Kernel:
    own = {m.name for m in kernel.scratch}
    if not own:
        return kernel
    stuck = _not_forwarded(kernel, own, replaced)
    leaf: dict[Any, Value] = {}
    body = []
    for nest in kernel.body:
        statements: list[Statement] = []
        for s in nest.statements:
            s = _with_value(s, rebuild(s.value, leaf))
            if isinstance(s, Store) and s.buffer in own - stuck:
                leaf |= dict.fromkeys(_loads(kernel, s.buffer), s.value)
            else:
                statements.append(s)
        if statements:
            body.append(Nest(nest.loops, tuple(statements)))
    return replace(kernel, body=tuple(body), scratch=tuple(m for m in kernel.scratch if m.name in stuck))


def _loads(kernel: Kernel, buffer: str) -> Iterator[Load]:
    for nest in kernel.body:
        for s in nest.statements:
            yield from (v for v in walk(s.value) if isinstance(v, Load) and v.buffer == buffer)


def _not_forwarded(kernel: Kernel, own: set[str], replaced: Mapping[str, str]) -> set[str]:
    """Scratch memory that must stay: not read where it is written, filled bit by bit, of running results, or of memory
    that has changed when it is read."""
    running = {s.name for nest in kernel.body for s in nest.statements if isinstance(s, Scan)}
    stuck = {s.buffer for nest in kernel.body for s in nest.statements if isinstance(s, Accumulate)} & own
    stores = [(at, s) for at, nest in enumerate(kernel.body) for s in nest.statements if isinstance(s, Store)]
    by_name = {s.buffer: (at, s) for at, s in stores}
    changed = {old: by_name[new] for old, new in replaced.items() if new in by_name}
    lasting: dict[str, set[Load]] = {}  # what forwarded values read of memory that changes
    for name in [s.buffer for _, s in stores if s.buffer in own - stuck] + sorted(own - stuck - by_name.keys()):
        if name in stuck:
            continue
        _, store = by_name.get(name, (0, None))
        if store is None or any(v.index is not store.index for v in _loads(kernel, name)):
            stuck.add(name)
            continue
        values = list(walk(store.value))
        lasting[name] = {v for v in values if isinstance(v, Load) and v.buffer in replaced}
        for v in values:
            if isinstance(v, Load) and v.buffer in own - stuck:
                lasting[name] |= lasting.get(v.buffer, set())
        if any(isinstance(v, Ref) and v.name in running for v in values) or any(
            _has_changed(v, changed.get(v.buffer), _last_read(kernel, name)) for v in lasting[name]
        ):
            stuck.add(name)
    # A value made of what stays in memory may be read when that is there: which it is, once it has been stored.
    return stuck


def _last_read(kernel: Kernel, buffer: str) -> int:
    """The number of the last nest that reads it."""
    found = [at for at, nest in enumerate(kernel.body) for s in nest.statements for v in walk(s.value)
             if isinstance(v, Load) and v.buffer == buffer]  # fmt: skip
    return max(found, default=-1)


def _has_changed(read: Load, store: tuple[int, Store] | None, last: int) -> bool:
    """Would something else be there if it were read in the nest ``last``? ``store``: what changes it, in which nest."""
    if store is None:
        return True
    at, change = store
    return last > at or (last == at and read.index is not change.index)
