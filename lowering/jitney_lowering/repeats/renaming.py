"""Items of a schedule that differ in the names of their buffers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from jitney_lowering.ir.canonical import canonical, is_canonical
from jitney_lowering.ir.kernel import Kernel, Nest, Reduce, Scan, Scatter, Statement
from jitney_lowering.ir.loops import Extern, Number, Strided
from jitney_lowering.ir.values import Put, Value, rebuild


@dataclass(frozen=True)
class Named:
    """An item, what it does without names, and the names in the order in which that has them."""

    item: Kernel | Extern
    key: Any
    names: tuple[str, ...]

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """What it was made from."""
        return self.item.nodes


def named(item: Kernel | Extern) -> Named:
    """Take the names out of an item; equal keys do the same."""
    names: list[str] = []
    if isinstance(item, Kernel):
        plain, known = canonical(item)
        names += [*known, *sorted(item.after)]
        return Named(item, (plain, len(item.after)), tuple(names))
    key = (
        item.target, _plain(item.args, names), _plain(item.kwargs, names), _plain(item.buffers, names, True),
        _plain(tuple(sorted(item.written)), names, True), _plain(tuple(sorted(item.after)), names, True),
        item.reason, item.into, item.fresh,
    )  # fmt: skip
    return Named(item, key, tuple(names))


def _plain(value: Any, names: list[str], is_name: bool = False) -> Any:
    if isinstance(value, Strided):
        names.append(value.buffer)
        return type(value), value.dtype, value.size, value.stride, value.offset
    if isinstance(value, str) and is_name:
        names.append(value)
        return str
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *[_plain(v, names, is_name) for v in value]
    if isinstance(value, Mapping):
        return tuple((k, _plain(v, names, is_name)) for k, v in value.items())
    return type(value), repr(value) if isinstance(value, (float, complex)) else value


def renamed(
    named_item: Named, names: Mapping[str, str], nodes: tuple[fx.Node, ...], suffix: str = ""
) -> Kernel | Extern:
    """The item with other buffers.

    Args:
        named_item: the item.
        names: old name -> new one, of those that change.
        nodes: what it was made from.
        suffix: of a kernel's name.
    """
    item = named_item.item
    if isinstance(item, Extern):
        if not names:
            return replace(item, nodes=nodes)
        return replace(
            item,
            buffers=tuple(None if b is None else names.get(b, b) for b in item.buffers),
            args=tuple(_renamed_argument(a, names) for a in item.args),
            kwargs={k: _renamed_argument(v, names) for k, v in item.kwargs.items()},
            written=frozenset(names.get(b, b) for b in item.written),
            after=frozenset(names.get(b, b) for b in item.after),
            nodes=nodes,
        )
    if not names:
        made = replace(item, name=item.name + suffix, nodes=nodes)
    else:
        own = {old: new for old, new in names.items() if old in item.buffers}
        memo: dict[Any, Value] = {}
        made = Kernel(
            item.name + suffix,
            item.outer,
            _renamed_nests(item.body, own, memo),
            {own.get(name, name): dtype for name, dtype in item.buffers.items()},
            _renamed_nests(item.finish, own, memo),
            item.scratch,
            item.partials,
            nodes,
            frozenset(names.get(b, b) for b in item.after),
        )
    plain, known = canonical(item)
    is_canonical(made, plain, tuple(names.get(name, name) for name in known))
    return made


def _renamed_argument(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, (Strided, Number)):
        return replace(value, buffer=names.get(value.buffer, value.buffer))
    if isinstance(value, (tuple, list)):
        return type(value)([_renamed_argument(v, names) for v in value])
    if isinstance(value, Mapping):
        return {k: _renamed_argument(v, names) for k, v in value.items()}
    return value


def _renamed_nests(nests: Sequence[Nest], names: Mapping[str, str], memo: dict[Any, Value]) -> tuple[Nest, ...]:
    return tuple(Nest(n.loops, tuple(_renamed_statement(s, names, memo) for s in n.statements)) for n in nests)


def _renamed_statement(s: Statement, names: Mapping[str, str], memo: dict[Any, Value]) -> Statement:
    value = rebuild(s.value, buffers=names, memo=memo)
    if isinstance(s, (Reduce, Scan)):
        return replace(s, value=value)
    name = names.get(s.buffer, s.buffer)
    if isinstance(s, Scatter):
        assert isinstance(value, Put)
        return Scatter(name, value)
    return replace(s, buffer=name, value=value)
