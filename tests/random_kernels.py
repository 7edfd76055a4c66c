"""Kernels made at random, for emitters to be compared with the reference bit by bit.

Only operations that round in one way take part.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from jitney_lowering.index import Index, Size, Var, index
from jitney_lowering.ir import (
    ALL,
    FLOATS,
    INTEGERS,
    Accumulate,
    Kernel,
    Nest,
    Partial,
    Reduce,
    Scan,
    Scratch,
    Statement,
    Store,
    Value,
    apply,
    constant,
    indirect,
    load,
    position,
    ref,
)

SETTINGS = settings(
    max_examples=int(os.environ.get("JITNEY_TEST_EXAMPLES", "40")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
DTYPES = sorted(ALL, key=str)
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
LOGIC = ["and", "or", "xor"]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
ROUNDING = ["floor", "ceil", "trunc", "round", "neg", "abs"]


@dataclass
class Making:
    """A kernel being made."""

    draw: st.DrawFn
    outer: tuple[Var, ...]
    sizes: dict[Size, int]
    by_element: bool = False
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    refs: dict[str, torch.dtype] = field(default_factory=dict)
    scratch: list[Scratch] = field(default_factory=list)
    partials: list[Partial] = field(default_factory=list)
    scans: bool = False

    def extent(self, x: Index) -> int:
        return x.evaluate(self.sizes)

    def new(self, extent: int, dtype: torch.dtype) -> str:
        name = f"b{len(self.buffers)}"
        generator = torch.Generator().manual_seed(self.draw(st.integers(0, 99)))
        if dtype is torch.bool:
            made = torch.randint(0, 2, (extent,), generator=generator).bool()
        elif dtype.is_floating_point:
            made = (torch.randn(extent, generator=generator) * 4).to(dtype)
            if extent:
                special = [float("nan"), float("inf"), -0.0, 0.0, 1e30]
                made[self.draw(st.integers(0, extent - 1))] = self.draw(st.sampled_from(special))
        else:
            made = torch.randint(-128, 127, (extent,), generator=generator).to(dtype)
        self.buffers[name] = made
        return name

    # Values

    def leaf(self, loops: tuple[Var, ...], dtype: torch.dtype) -> Value:
        kind = self.draw(st.sampled_from(["load"] * 6 + ["constant", "position", "ref", "indirect"]))
        known = [name for name, d in self.refs.items() if d is dtype]
        if kind == "ref" and known:
            return ref(self.draw(st.sampled_from(known)), dtype)
        if kind == "constant":
            return constant(self.draw(st.integers(0, 3)), dtype)
        if kind == "position" and loops and dtype is not torch.bool:
            return position(index(self.draw(st.sampled_from(loops))) % 100, dtype)
        if kind == "indirect" and loops:
            inner = self.load(loops, torch.uint8)
            at = indirect(inner, 0, 255)
            return load(self.new(256, dtype), at[0], dtype, (at,))
        return self.load(loops, dtype)

    def load(self, loops: tuple[Var, ...], dtype: torch.dtype) -> Value:
        """An element at an affine place: some loops, in any order, perhaps backwards, perhaps with gaps."""
        used = [v for v in self.draw(st.permutations(loops)) if self.draw(st.integers(0, 4))]
        place, extent = index(self.draw(st.integers(0, 3))), index(4)
        gap = self.draw(st.sampled_from([1, 1, 1, 2, 3]))
        stride = index(gap)
        for var in used:
            back = self.draw(st.integers(0, 5)) == 0
            place = place + ((var.size - 1 - var) if back else index(var)) * stride
            extent = extent + (var.size - 1) * stride
            stride = stride * var.size
        return load(self.new(max(self.extent(extent), 1), dtype), place, dtype)

    def value(self, loops: tuple[Var, ...], dtype: torch.dtype, depth: int) -> Value:
        if depth == 0 or self.draw(st.integers(0, 5)) == 0:
            return self.leaf(loops, dtype)
        form = self.draw(st.sampled_from(["binary", "unary", "where", "cast"]))
        if form == "where":
            return apply(
                "where",
                self.value(loops, torch.bool, depth - 1),
                self.value(loops, dtype, depth - 1),
                self.value(loops, dtype, depth - 1),
            )
        if form == "cast":
            sources = DTYPES if dtype not in INTEGERS else sorted(INTEGERS | {torch.bool}, key=str)
            source = self.draw(st.sampled_from(sources))
            return apply("cast", self.value(loops, source, depth - 1), dtype=dtype)
        if dtype is torch.bool:
            if form == "binary":
                source = self.draw(st.sampled_from(DTYPES))
                op = self.draw(st.sampled_from(COMPARE + (LOGIC if source is torch.bool else [])))
                return apply(op, self.value(loops, source, depth - 1), self.value(loops, source, depth - 1))
            return apply("not", self.value(loops, torch.bool, depth - 1))
        if form == "unary":
            ops = ROUNDING if dtype in FLOATS else ["neg", "abs", "not"]
            return apply(self.draw(st.sampled_from(ops)), self.value(loops, dtype, depth - 1))
        ops = BINARY + (["div"] if dtype in FLOATS else LOGIC)
        op = self.draw(st.sampled_from(ops))
        a = self.value(loops, dtype, depth - 1)
        b = a if self.draw(st.integers(0, 6)) == 0 else self.value(loops, dtype, depth - 1)
        return apply(op, a, b)

    # Statements

    def store(self, loops: tuple[Var, ...]) -> Store:
        """To a buffer of its own, in any order of the loops."""
        dtype = self.draw(st.sampled_from(DTYPES))
        place, stride = index(self.draw(st.integers(0, 2))), index(self.draw(st.sampled_from([1, 1, 1, 2])))
        for var in self.draw(st.permutations(loops)):
            place = place + var * stride
            stride = stride * var.size
        name = self.new(self.extent(stride) + 3, dtype)
        return Store(name, place, self.value(loops, dtype, self.draw(st.integers(0, 4))))

    def scan(self, loops: tuple[Var, ...]) -> tuple[Scan, Store]:
        """Of integers, and what it comes to in a buffer of its own."""
        dtypes = sorted(INTEGERS, key=str)
        place, stride = index(self.draw(st.integers(0, 2))), index(self.draw(st.sampled_from([1, 1, 2])))
        for var in reversed(loops) if self.draw(st.booleans()) else self.draw(st.permutations(loops)):
            place = place + var * stride
            stride = stride * var.size
        name = self.new(self.extent(stride) + 3, self.draw(st.sampled_from(dtypes)))
        kind = self.draw(st.sampled_from(["sum", "sum", "prod", "max", "min"]))
        value = self.value(loops, self.draw(st.sampled_from(dtypes)), self.draw(st.integers(0, 2)))
        made = Scan(f"c_{name}", kind, value)
        self.refs[made.name] = value.dtype
        stored = (
            self.value(loops, self.buffers[name].dtype, 1) if self.draw(st.booleans()) else ref(made.name, value.dtype)
        )
        return made, Store(name, place, apply("cast", stored, dtype=self.buffers[name].dtype))

    def reduce(self, loops: tuple[Var, ...], own: tuple[Var, ...]) -> Reduce:
        """One whose result does not depend on the order."""
        kind = self.draw(st.sampled_from(["max", "min", "argmax", "argmin", "sum", "prod", "any", "all"]))
        dtypes = [torch.bool] if kind in ("any", "all") else sorted(INTEGERS, key=str)
        if kind not in ("any", "all", "sum", "prod"):
            dtypes = DTYPES
        dtype = self.draw(st.sampled_from(dtypes))
        where = None
        if kind.startswith("arg"):
            where = index(0)
            for var in own:
                where = where * var.size + var
        made = Reduce(f"r{len(self.refs)}", kind, self.value(loops, dtype, self.draw(st.integers(0, 2))), where)
        self.refs[made.name] = made.dtype
        return made

    def accumulate(self, own: tuple[Var, ...], shared: bool) -> Accumulate:
        """Into partials, at the innermost loop's place or at one that it does not move."""
        kind = self.draw(st.sampled_from(["max", "min", "sum"]))
        dtype = self.draw(st.sampled_from(sorted(INTEGERS, key=str) if kind == "sum" else DTYPES))
        place, stride = index(0), index(1)
        last = 0 if self.by_element else -1
        for var in own[last:] if self.draw(st.booleans()) else own[:last]:
            place = place + var * stride
            stride = stride * var.size
        name = f"p{len(self.partials)}"
        self.partials.append(Partial(name, dtype, stride, kind))
        return Accumulate(name, place, kind, self.value((*self.outer, *own), dtype, self.draw(st.integers(0, 2))))

    def nest(self, finish: bool = False) -> Nest:
        count = self.draw(st.integers(0 if self.outer or finish else 1, 2))
        own = tuple(self.loop(f"j{k}") for k in range(count))
        outer = () if finish else self.outer
        loops = (*outer, *own)
        known = dict(self.refs)
        statements: list[Statement] = []
        for _ in range(self.draw(st.integers(1, 3))):
            known_kinds = ["store", "store", "reduce", "accumulate"]
            kind = self.draw(st.sampled_from(known_kinds + ["scan"] * (self.scans and bool(outer and own))))
            self.refs, now = dict(known), self.refs
            if kind == "accumulate" and own and not finish:
                statements.append(self.accumulate(own, shared=True))
            elif kind == "reduce":
                made = self.reduce(loops, own)
                now = now | {made.name: made.dtype}
                statements.append(made)
            elif kind == "scan":
                made, stored = self.scan(loops)
                statements += [made, stored]
            else:
                statements.append(self.store(loops))
            self.refs = now
        names = [s.name for s in statements if isinstance(s, Reduce)]
        if len(set(names)) != len(names):  # numbered by what was known: give each its own
            statements = [
                Reduce(f"{s.name}_{k}", s.kind, s.value, s.position) if isinstance(s, Reduce) else s
                for k, s in enumerate(statements)
            ]
        self.refs = known | {s.name: s.dtype for s in statements if isinstance(s, Reduce)}
        return Nest(own, tuple(statements))

    def loop(self, name: str) -> Var:
        lengths = [2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 33, 64, 70]
        if self.by_element and name.startswith("i"):  # an interpreter has the rows one by one
            lengths = lengths[:10]
        length = self.draw(st.sampled_from(lengths))
        if self.draw(st.integers(0, 2)) == 0:
            size = Size(f"s{len(self.sizes)}")
            self.sizes[size] = length
            return Var(name, size)
        return Var(name, length)


@st.composite
def kernels(draw, scans=False, by_element=False):
    """A kernel, its buffers, and the sizes.

    Args:
        scans: are there scans in it?
        by_element: what is accumulated over rows is one result, or one for each element of a row, and nothing is left
            to the end that could be done before: as in a schedule for GPUs.
    """
    making = Making(draw, (), {}, by_element, scans=scans)
    making.outer = tuple(making.loop(f"i{k}") for k in range(draw(st.integers(0, 2))))
    if making.outer:
        body = tuple(making.nest() for _ in range(draw(st.integers(1, 3))))
        making.refs = {}
    else:
        body = (making.nest(),)
    ends = draw(st.integers(0, 1)) if not making.partials and (making.refs or not by_element) else 0
    finish = tuple(making.nest(finish=True) for _ in range(ends))
    if making.partials:
        copies = []
        for k, p in enumerate(making.partials):
            var = Var(f"k{k}", p.extent)
            name = making.new(making.extent(p.extent), p.dtype)
            copies.append(Nest((var,), (Store(name, index(var), load(p.name, index(var), p.dtype)),)))
        finish = tuple(copies)
    dtypes = {name: t.dtype for name, t in making.buffers.items()}
    kernel = Kernel("random", making.outer, body, dtypes, finish, partials=tuple(making.partials))
    return kernel, making.buffers, making.sizes
