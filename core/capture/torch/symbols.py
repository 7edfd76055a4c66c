"""Sizes, ints and floats that may change between calls: ShapeEnv's symbols, their sources, and the guards on them."""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from jitney._util import negative_powers
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import PLAIN_TENSORS
from jitney.capture.torch.classes import wrappers
from jitney.capture.torch.function_names import is_torch_own
from jitney.config import config
from jitney.guards import Source
from jitney.torch_compat import torch_private
from jitney.torch_compat.scalars import OPERATIONS, WHOLE, Definition, Scalars, expression_nodes
from jitney.torch_compat.stand_ins.strides import StandInMode
from jitney.torch_compat.subclasses import Wrapping

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
GEOMETRY = ("size", "stride", "storage_offset")  # what torch takes for at least 2 where it is a symbol


def asks_for_data_sizes(whole: bool) -> bool:
    """Are sizes that depend on data to stay in the graph, whatever that costs? ``whole``: is a graph break an error?"""
    return whole or config.capture_dynamic_output_shape_ops


class Symbols:
    """The symbols of one capture.

    Args:
        dynamic_dims: which dimensions of a tensor get one.
        whole: is a graph break an error? Then numbers and sizes that only the running graph knows are symbols, too.
        data_sizes: may sizes that depend on data be symbols, though nobody has asked for it?
    """

    def __init__(
        self, dynamic_dims: Callable[[Any, Source], list[bool]], whole: bool = False, data_sizes: bool = False
    ) -> None:
        self.dynamic_dims = dynamic_dims
        self.whole = whole
        self.reads_numbers = whole or config.capture_scalar_outputs
        self.env = torch_private.ShapeEnv(
            duck_shape=False,
            allow_scalar_outputs=False,  # what reads a number says so: ``read``
            allow_dynamic_output_shape_ops=data_sizes or asks_for_data_sizes(whole),
        )
        self.fake_mode = StandInMode(shape_env=self.env, allow_non_fake_inputs=False)
        self.sources: dict[Any, Source] = {}  # sympy symbol -> where its value is
        self.values: dict[Any, Any] = {}  # sympy symbol -> a SymInt or SymFloat that is it
        self.unknown: set[Any] = set()  # symbols that only the running graph knows
        self.batches: dict[fx.Node, Any] = {}  # ``batch_sizes`` of packed sequences -> how many sequences there are
        self.fixed = False
        self.dynamic: dict[int, list[bool]] = {}  # id(stand-in) -> dynamic dimensions
        self.scalars = Scalars(self.env)
        self._nodes: dict[Any, fx.Node] = {}
        self._sized: dict[Any, tuple[fx.Node, int, Any]] = {}  # unknown symbol -> tensor, dimension, the size
        self._checked: set[int] = set()  # ids of what the environment wants to be checked, and is
        self._geometry: dict[int, tuple[Any, Any, Any]] = {}  # id(stand-in) -> size, stride, offset at first
        self._wrapped: dict[int, tuple[Wrapping, list[Any]]] = {}  # id(stand-in) -> what it is, its inner stand-ins

    def fake(self, real: Any, source: Source) -> Any:
        """A stand-in with the real tensor's metadata."""
        dims = self._dims(real, source)
        inner = real.requires_grad and not real.is_leaf
        plain = real
        if inner or real.grad is not None or (any(dims) and real._is_view()) or type(real) not in PLAIN_TENSORS:
            # Conversion of an inner node asks for its .grad (a warning); a view's base and a leaf's gradient bring
            # symbols of their own. That gradient may be of another size, where the program has replaced the data.
            plain = _unrelated(real)
            if isinstance(real, torch.nn.Parameter):
                plain = torch.nn.Parameter(plain.detach(), real.requires_grad)
        fake = self._converted(plain, dims, source)
        if inner:
            with self.fake_mode, torch.enable_grad():
                fake = Inner.apply(fake)
        self.dynamic[id(fake)] = dims
        if any(dims):
            self._geometry[id(fake)] = (fake.shape, fake.stride(), fake.storage_offset())
        return fake

    @contextlib.contextmanager
    def sizes_fixed(self, fixed: bool) -> Iterator[None]:
        """No size of a tensor that gets its stand-in meanwhile is symbolic."""
        before, self.fixed = self.fixed, self.fixed or fixed
        try:
            yield
        finally:
            self.fixed = before

    def _dims(self, real: Any, source: Source) -> list[bool]:
        dims = self.dynamic_dims(real, source)
        return [False] * len(dims) if self.fixed else dims

    def wrapper(self, real: Any, parts: Wrapping, inner: list[Any], source: Source) -> Any:
        """A stand-in for a tensor of a subclass, around stand-ins for its inner tensors."""
        dims = self._dims(real, source)
        size, stride = real.size(), real.stride()
        if any(dims):
            like = self._converted(torch.empty_strided(size, stride, dtype=real.dtype, device="meta"), dims, source)
            size, stride = like.size(), like.stride()
        fake = self._made(real, parts, inner, size, stride)
        self.dynamic[id(fake)] = dims
        self._geometry[id(fake)] = (size, stride, 0)
        self._wrapped[id(fake)] = (parts, inner)
        return fake

    def _made(self, real: Any, parts: Wrapping, inner: list[Any], size: Any, stride: Any) -> Any:
        with self.fake_mode, torch.enable_grad():
            try:
                fake = parts.make(inner, size, stride)
            except Exception as error:
                name = parts.cls.__qualname__
                raise Break(
                    f"the __tensor_unflatten__ of {name} raised {type(error).__name__}", wrappers.HINT
                ) from None
            wrappers.check_made(fake, real)
            fake.requires_grad_(real.requires_grad)
            if real.requires_grad and not real.is_leaf:
                fake = Inner.apply(fake)
        if isinstance(real, torch.nn.Parameter):
            fake._is_param = True
        return fake

    def again(self, fake: Any, real: Any) -> Any:
        """A stand-in as ``fake`` was before the program wrote to it; ``real`` is the tensor that it stands for."""
        if id(fake) in self._wrapped:
            parts, inner = self._wrapped[id(fake)]
            inner = [self.again(*pair) for pair in zip(inner, parts.inner(real), strict=True)]
            with torch_private.without_modes():
                return self._made(real, parts, inner, *self._geometry[id(fake)][:2])
        where = self._geometry.get(id(fake), (real.size(), real.stride(), real.storage_offset()))
        size, stride, offset = where
        leaf = real.is_leaf
        with torch_private.without_modes(), self.fake_mode, torch.enable_grad():
            made = torch.empty_strided(size, stride, dtype=real.dtype, device=real.device)
            if not isinstance(offset, int) or offset:
                made = torch.empty(_extent(size, stride) + offset, dtype=real.dtype, device=real.device)
                made = _unrelated(made.as_strided(size, stride, offset))
            made.requires_grad_(real.requires_grad)
            return made if leaf or not real.requires_grad else Inner.apply(made)

    def _converted(self, real: Any, dims: list[bool], source: Source) -> Any:
        if not any(dims):
            try:
                return self.fake_mode.from_tensor(real, static_shapes=True)
            except AssertionError as error:  # one whose data was set in inference mode is half of it
                raise Break(f"torch makes no stand-in for a tensor: {error}", "make it in one mode") from None
        policy = [torch_private.DimDynamic.DYNAMIC if d else torch_private.DimDynamic.STATIC for d in dims]
        fake: Any = self.fake_mode.from_tensor(
            real,
            symbolic_context=torch_private.StatelessSymbolicContext(dynamic_sizes=policy),
            source=torch_private.NamedSource(source.name),
        )
        read: list[tuple[Any, str, int | None]] = [(size, "size", i) for i, size in enumerate(fake.shape)]
        read += [(stride, "stride", i) for i, stride in enumerate(fake.stride())]
        read.append((fake.storage_offset(), "storage_offset", None))
        found = [r for r in read if isinstance(r[0], torch.SymInt)]
        # What is one symbol says where that is; a stride that is a size times another stride must not.
        for value, kind, key in sorted(found, key=lambda r: not r[0].node.expr.is_symbol):
            self._name_all(value, source.step(kind, key))
        return fake

    def scalar(self, value: int | float, source: Source) -> Any:
        """A symbolic int or float for a Python number."""
        named = torch_private.NamedSource(source.name)
        if isinstance(value, int):
            made: Any = self.env.create_unspecified_symint_and_symbol(value, named, torch_private.DimDynamic.DYNAMIC)
        else:
            symbol = self.env.create_unspecified_symbol(value, named, torch_private.DimDynamic.DYNAMIC)
            made = self.env.create_symfloatnode(symbol, hint=value, source=named)
        for symbol in made.node.expr.free_symbols:
            self._name(symbol, source)
            self.values[symbol] = made
        return made

    def _name_all(self, value: Any, source: Source) -> None:
        """A size that is one new symbol is that symbol's value; later ones are made of known symbols."""
        for symbol in value.node.expr.free_symbols:
            self._name(symbol, source)
            self.values.setdefault(symbol, value)

    def _name(self, symbol: Any, source: Source) -> None:
        if symbol not in self.sources:
            self.sources[symbol] = source
            source.wanted = True

    def node(self, value: Any, graph: fx.Graph, placeholder: Callable[[Any, Source], fx.Node]) -> Any:
        """The FX node (or plain number) that computes a symbolic value."""
        expr = _with_sign(value)
        if not expr.free_symbols:
            return value.node.pytype(expr)
        if expr in self.scalars.definitions:
            return self._computed(value, graph, placeholder)
        if expr in self._nodes:
            return self._nodes[expr]
        return self.expression(expr, graph, placeholder)

    def expression(self, expr: Any, graph: fx.Graph, placeholder: Callable[[Any, Source], fx.Node]) -> Any:
        """The FX node (or plain number or truth value) that computes an expression over symbols."""
        symbols = sorted(expr.free_symbols, key=str)
        for symbol in symbols:
            if symbol in self.scalars.definitions:
                self._computed(self.scalars.made[symbol], graph, placeholder)
            elif symbol in self._nodes:
                pass
            elif symbol in self._sized:
                tensor, dim, size = self._sized[symbol]
                self._nodes[symbol] = graph.call_method("size", (tensor, dim))
                self._nodes[symbol].meta.update(example_value=size)
            elif symbol not in self.sources:
                raise Break("a stride or an offset that depends on the values of a tensor")
            else:
                self._nodes[symbol] = placeholder(self.values[symbol], self.sources[symbol])
        return expression_nodes(graph, expr, {symbol: self._nodes[symbol] for symbol in symbols}, "example_value")

    def _computed(self, value: Any, graph: fx.Graph, placeholder: Callable[[Any, Source], fx.Node]) -> fx.Node:
        """The node of a float that Python arithmetic made."""
        symbol = _with_sign(value)
        if symbol not in self._nodes:
            found = self.scalars.definitions[symbol]
            args = tuple(self.node(a, graph, placeholder) if type(a) in SYMBOLIC else a for a in found.args)
            made = graph.call_function(negative_powers.as_a_call(found.target, args), args)
            made.meta.update(example_value=value, scalar=True)
            self._nodes[symbol] = made
        return self._nodes[symbol]

    def read(self, tensor: fx.Node, graph: fx.Graph, *, integer: bool = False) -> Any:
        """The number that a tensor holds, known when the graph runs."""
        made = self.env.create_unbacked_symint() if integer else self.scalars.unknown()
        self.env.pending_fresh_unbacked_symbols.clear()
        node = graph.call_method("item", (tensor,))
        node.meta.update(example_value=made, scalar=True)
        self._nodes[made.node.expr] = node
        self.unknown.add(made.node.expr)
        return made

    def read_by(self, expr: Any) -> tuple[Any, ...]:
        """The tensor's node that a number is read of; empty for other numbers."""
        node = self._nodes.get(expr) if expr in self.unknown else None
        return () if node is None or node.target != "item" else node.args

    def drawn(self, source: Source, kind: type) -> Any:
        """A number that emitted code has before it calls the graph, and nobody knows now."""
        made = self.env.create_unbacked_symint() if kind is int else self.scalars.unknown()
        self.env.pending_fresh_unbacked_symbols.clear()
        self._name(made.node.expr, source)
        self.values[made.node.expr] = made
        return made

    def unknown_size(self) -> Any:
        """A size of the next result, known when the graph runs."""
        made = self.env.create_unbacked_symint()
        torch_private.constrain_size(made)
        return made

    def sequences(self, packed: Any) -> Any:
        """How many sequences these ``batch_sizes`` are of; None where nobody knows, say after a write."""
        known = self.batches.get(packed) if self.batches else None
        return known if known is not None and all(map(_reads, packed.users)) else None

    def batch_of(self, node: fx.Node | None) -> Any:
        """The same, where this is the first of them; else None."""
        first = node is not None and node.target is operator.getitem and node.args[1] == 0
        return self.sequences(node.args[0]) if node is not None and first else None

    def learn_sizes(self, made: Any, node: fx.Node) -> None:
        """Note the sizes of a result that only the running graph knows."""
        for dim, size in enumerate(made.shape if self.env.pending_fresh_unbacked_symbols else ()):
            if type(size) is torch.SymInt:
                expr = size.node._expr  # as it was made: what is known to be equal takes its place later
                if expr.is_Symbol and expr not in self.sources and expr not in self._nodes:
                    self._sized.setdefault(expr, (node, dim, size))
                    self.unknown.add(expr)

    def checks(self, made: fx.Node | None = None) -> list[Any]:
        """What the results of the latest operations take for granted of unknown numbers: expressions, each once.

        What torch's rules say of sizes of a result that its own operation has just made, which is ``made``, is so.
        """
        found: list[Any] = []
        own = made if made is not None and is_torch_own(made) else None
        self.env.pending_fresh_unbacked_symbols.clear()
        for group in self.env.deferred_runtime_asserts.values():
            for one in group:
                if id(one) not in self._checked:
                    self._checked.add(id(one))
                    if own is None or not self._is_size_of(one.expr, own):
                        found.append(one.expr)
        return found

    def _is_size_of(self, expr: Any, node: fx.Node) -> bool:
        """Is it about sizes of this operation's result alone?"""
        return all(symbol in self._sized and self._sized[symbol][0] is node for symbol in expr.free_symbols)

    def data_dependent(self) -> int:
        """How many operations so far have results whose sizes depend on data."""
        return len({node for node, _, _ in self._sized.values()})

    def is_known(self, value: Any) -> bool:
        """Can emitted code compute it from what it has fetched? Else the graph returns it."""
        todo = set(value.node.expr.free_symbols)
        while todo:
            symbol = todo.pop()
            if symbol in self.unknown:
                return False
            found = self.scalars.definitions.get(symbol)
            if found is not None:
                todo |= {s for a in found.args if type(a) in SYMBOLIC for s in a.node.expr.free_symbols}
        return True

    def text(self, value: Any, name: Callable[[Source], str]) -> str:
        """Python text that computes a symbolic value from the emitted code's variables."""
        return self._print(_with_sign(value), name)

    def _print(self, expr: Any, name: Callable[[Source], str]) -> str:
        text = torch_private.PythonPrinter().doprint(expr)
        text = re.sub(r"\b(torch|math)\.", r"_\1.", text)
        by = {}
        for symbol in expr.free_symbols:
            found = self.scalars.definitions.get(symbol)
            by[str(symbol)] = name(self.sources[symbol]) if found is None else self._definition(found, name)
        # All at once: the user's variables may be named like symbols.
        return re.sub(r"\b[a-zA-Z_]\w*\b", lambda word: by.get(word.group(), word.group()), text)

    def _definition(self, found: Definition, name: Callable[[Source], str]) -> str:
        args = [f"({self.text(a, name)})" if type(a) in SYMBOLIC else _literal(a) for a in found.args]
        return (WHOLE.get(found.target) or OPERATIONS[found.target]).format(*args)

    def guards(self, name: Callable[[Source], str]) -> list[str]:
        """Conditions on the symbols under which the capture holds, as Python text."""
        out = []
        for symbol, source in self.sources.items():
            interval = self.env.var_to_range.get(symbol)
            if interval is not None and source.kind in GEOMETRY:  # torch reasons with it, of strides as of sizes
                out.append(f"{name(source)} >= {max(int(interval.lower), 0)}")
        for guard in self.env.guards:
            out.append(self._print(guard.expr, name))
            out += self._sign_of_zero(guard.expr, name)
        return list(dict.fromkeys(out))

    def _sign_of_zero(self, condition: Any, name: Callable[[Source], str]) -> list[str]:
        """Where a float is zero, its sign is guarded too: what is computed from it may depend on that."""
        if getattr(condition, "rel_op", "") != "==" or not any(a.is_zero for a in condition.args):
            return []
        values = {s: self.scalars.made.get(s, self.values.get(s)) for s in condition.args if s.is_Symbol}
        signs = {s: math.copysign(1, self.scalars.hint(v)) for s, v in values.items() if type(v) is torch.SymFloat}
        return [f"_math.copysign(1, {self._print(s, name)}) == {sign}" for s, sign in signs.items()]

    def strides(self, fake: Any, name: Callable[[Source], str]) -> str | None:
        """The strides that the stand-in has, as text, where they depend on a symbol."""
        strides = fake.stride()
        if not any(isinstance(s, torch.SymInt) for s in strides):
            return None
        parts = [self.text(s, name) if isinstance(s, torch.SymInt) else str(s) for s in strides]
        return f"({', '.join(parts)},)"

    def may_leave_int64(self, target: Any, a: Any, b: Any) -> bool:
        """Does a power or a shift of symbols come near to where torch's own arithmetic on them ends?"""
        if target not in (operator.lshift, operator.pow) or torch.SymInt not in (type(a), type(b)):
            return False
        left, right = map(self.scalars.hint, (a, b))
        if type(left) is not int or type(right) is not int:
            return False
        bits = abs(left).bit_length()
        return not 0 <= right <= 62 or (bits * right if target is operator.pow else bits + right) > 62


class Inner(torch.autograd.Function):
    """An inner node of an autograd graph: no leaf, no view, so that the program may write to it as to the real one."""

    @staticmethod
    def forward(ctx: Any, leaf: Any) -> Any:
        """Its numbers."""
        return leaf.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient as it is."""
        return grads[0]


def _unrelated(view: torch.Tensor) -> torch.Tensor:
    """The same memory and metadata, without being a view."""
    with torch.no_grad():
        made = torch.empty(0, dtype=view.dtype, device=view.device)
        made.set_(view.untyped_storage(), view.storage_offset(), view.size(), view.stride())
    return made.requires_grad_(view.requires_grad)


def _extent(size: Any, stride: Any) -> Any:
    if any(type(n) is int and n == 0 for n in size):
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _reads(user: fx.Node) -> bool:
    """Does an operation only read a tensor that it is given, and give no view of it that others are given?"""
    item = user.target is operator.getitem and not user.users
    return item or user.target == "size" or user.meta.get("opaque") is True


def _with_sign(value: Any) -> Any:
    """The expression of a symbolic number; of a float that is known to be zero the symbol: it may be ``-0.0``."""
    expr = value.node.expr
    return value.node._expr if type(value) is torch.SymFloat and expr.is_zero else expr


def _literal(value: int | float) -> str:
    """A number as Python text; negative ones in parentheses, since ``-1 ** x`` is ``-(1 ** x)``."""
    if not math.isfinite(value):
        return f"_b.float({str(value)!r})"
    return repr(value) if value >= 0 and str(value)[0] != "-" else f"({value!r})"
