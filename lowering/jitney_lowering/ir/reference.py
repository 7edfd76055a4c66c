"""Runs a ``Program`` in plain torch, slowly: what a lowered graph means. The oracle of tests, and of other backends'.

Loops run vectorised over grids of all indices; every load is checked to be inside of its buffer's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from jitney_lowering.index import Atom, Compound, Index, Size
from jitney_lowering.ir.loops import SCANS, SCATTER, Buffer, Computed, Extern, Number, Program, Strided
from jitney_lowering.ir.operations import HALVES, OPERATIONS
from jitney_lowering.ir.values import SCATTERED, Apply, Checked, Constant, Load, Position, Put, Value, walk
from jitney_lowering.restride import numbers_in

Grid = torch.Tensor


def run(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The graph's outputs for these inputs."""
    return _Run(program, inputs).outputs()


class _Run:
    def __init__(self, program: Program, inputs: Sequence[Any]) -> None:
        self.program = program
        self.sizes: dict[Size, int] = {}
        for size, reading in program.sizes.items():
            value = inputs[reading.input]
            self.sizes[size] = value if reading.what == "value" else getattr(value, reading.what)(reading.dim)
        self.memory: dict[str, torch.Tensor] = dict(program.constants)
        for number, (name, value) in enumerate(zip(program.inputs, inputs, strict=True)):
            if isinstance(name, str):
                self.memory[name] = torch.tensor(value, dtype=torch.float64) if number in program.floats else value
        for step in program.steps:
            if isinstance(step, Computed):
                self._compute(step)
            else:
                self._call(step)
        for name, message, exception in program.checks:
            if self.memory[name].item():
                raise exception(message)

    def outputs(self) -> list[Any]:
        """What the program returns."""
        return [self._argument(o) for o in self.program.outputs]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Number):
            return self._view(value).item()
        if isinstance(value, Strided):
            return self._view(value)
        if isinstance(value, Index):
            return self._int(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self._argument(v) for v in value])
        if isinstance(value, dict):
            return {k: self._argument(v) for k, v in value.items()}
        return value

    def _int(self, value: Index) -> int:
        return value.evaluate(self.sizes)

    def _view(self, view: Strided) -> torch.Tensor:
        base = self.memory[view.buffer]
        if base.layout is not torch.strided or base.is_quantized:
            return base
        buffer = self.program.buffers[view.buffer]
        if view.size == buffer.size and view.stride == buffer.stride and view.offset == 0:
            return base
        size, stride = [self._int(s) for s in view.size], [self._int(s) for s in view.stride]
        return base.as_strided(size, stride, base.storage_offset() + self._int(view.offset))

    # ------------------------------------------------------------------ operators

    def _call(self, step: Extern) -> None:
        target = numbers_in if step.target is torch.ops.aten.view_as_real.default else step.target
        results = target(*self._argument(step.args), **self._argument(dict(step.kwargs)))
        made = list(results) if isinstance(results, (list, tuple)) else [results]
        for name, result in zip(step.buffers, made, strict=False):
            if name is None:
                continue
            buffer = self.program.buffers[name]
            if result.layout is torch.strided and not result.is_quantized:
                result = self._conforming(result, buffer)
            self.memory[name] = result

    def _conforming(self, result: torch.Tensor, buffer: Buffer) -> torch.Tensor:
        """With the strides and the dtype that the program counts on."""
        stride = [self._int(s) for s in buffer.stride]
        same = all(n < 2 or a == b for n, a, b in zip(result.shape, result.stride(), stride, strict=True))
        if result.dtype is buffer.dtype and (same or not result.numel()):
            return result
        return torch.empty_strided(result.shape, stride, dtype=buffer.dtype).copy_(result)

    # ------------------------------------------------------------------ loops

    def _scatter(self, step: Computed) -> None:
        """In row-major order."""
        to = step.value
        assert isinstance(to, Put)
        self.memory[step.buffer] = self.memory[to.buffer].clone(memory_format=torch.preserve_format)
        shape = [self._int(v.size) for v in step.loops]
        if 0 in shape:
            return
        grids: dict[Any, Any] = dict(self.sizes)
        for number, var in enumerate(step.loops):
            grids[var] = torch.arange(shape[number]).reshape([-1 if number == n else 1 for n in range(len(shape))])
        known = self._values(to, grids)
        for atom, where in to.indirect:
            grids[atom] = known[where].to(torch.int64)
        here = torch.tensor(True) if to.mask is None else known[to.mask]
        places = torch.where(here, self._grid(to.index, grids), 0).expand(shape).reshape(-1)
        flat = _flat(self.memory[step.buffer])
        assert int(places.min()) >= 0 and int(places.max()) < len(flat), f"stored outside in {step}"
        chosen = here.expand(shape).reshape(-1)
        places, value = places[chosen], known[to.value].expand(shape).reshape(-1)[chosen]
        if to.kind == "store":
            for place, one in zip(places.tolist(), value, strict=True):
                flat[place] = one
        else:
            flat.scatter_reduce_(0, places, value, SCATTERED[to.kind])

    def _compute(self, step: Computed) -> None:
        if step.kind == SCATTER:
            self._scatter(step)
            return
        buffer = self.program.buffers[step.buffer]
        size, stride = [self._int(s) for s in buffer.size], [self._int(s) for s in buffer.stride]
        made = torch.empty_strided(size, stride, dtype=buffer.dtype, device=buffer.device)
        self.memory[step.buffer] = made
        axes = (*step.vars, *step.reduced)
        shape = [self._int(v.size) for v in axes]
        grids: dict[Any, Any] = dict(self.sizes)
        for number, var in enumerate(axes):
            line = [-1 if number == n else 1 for n in range(len(axes))]
            grids[var] = torch.arange(shape[number]).reshape(line)
        kept = shape[: len(step.vars)]
        if 0 in kept:
            return
        if 0 in shape:  # nothing to load
            value = torch.empty(shape, dtype=step.value.dtype)
        else:
            value = self._value(step.value, grids).expand(shape)
        if step.kind in SCANS:
            kept, shape = shape, [*kept, -1]
            value = SCAN[step.kind](value.reshape(shape)).to(buffer.dtype)
        elif step.kind != "pointwise":
            value = REDUCE[step.kind](value.reshape([*kept, -1]))
        places = self._grid(step.place, grids).expand([*kept, *[1] * (len(axes) - len(kept))]).reshape(-1)
        flat = _flat(made)
        assert len(torch.unique(places)) == len(places), f"stored twice in {step}"
        assert int(places.min()) >= 0 and int(places.max()) < len(flat), f"stored outside in {step}"
        flat[places] = value.reshape(-1)

    def _grid(self, index: Index, grids: Mapping[Any, Any]) -> Grid:
        return torch.as_tensor(_evaluated(index, grids))

    def _value(self, root: Value, grids: Mapping[Any, Any]) -> Grid:
        return self._values(root, grids)[root]

    def _values(self, root: Value, grids: Mapping[Any, Any]) -> dict[Value, Grid]:
        known: dict[Value, Grid] = {}
        for v in walk(root):
            if isinstance(v, Constant):
                known[v] = torch.tensor(v.value, dtype=v.dtype)
            elif isinstance(v, Position):
                known[v] = self._grid(v.index, grids).to(v.dtype)
            elif isinstance(v, Load):
                own = dict(grids)
                for atom, value in v.indirect:
                    own[atom] = known[value].to(torch.int64)
                    if v.mask is not None:
                        own[atom] = torch.where(known[v.mask], own[atom], atom.bounds()[0] or 0)
                    _assert_within(own[atom], atom, v)
                places = self._grid(v.index, own)
                known[v] = self._load(v, places, None if v.mask is None else known[v.mask])
            elif isinstance(v, Checked):
                if not known[v.condition].all():
                    raise v.exception(v.message)
                known[v] = known[v.value]
            elif not isinstance(v, Put):
                assert isinstance(v, Apply), v
                known[v] = _applied(v, [known[a] for a in v.args])
        return known

    def _load(self, load: Load, places: Grid, mask: Grid | None) -> Grid:
        flat = _flat(self.memory[load.buffer])
        assert flat.dtype is load.dtype, f"{load} is {flat.dtype}"
        if mask is not None:
            places = torch.where(mask, places, 0)
            flat = flat if mask.any() else flat.new_zeros(1)  # nothing is read, of an empty buffer too
        assert int(places.min()) >= 0 and int(places.max()) < len(flat), f"{load} reads outside of its buffer"
        return flat[places]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, as a vector."""
    if not tensor.numel():
        return tensor.reshape(-1)
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided([extent], [1], tensor.storage_offset())


def _evaluated(index: Index, table: Mapping[Any, Any]) -> Any:
    if isinstance(index, Atom):
        return index.fixed if index.fixed is not None else table[index]
    if isinstance(index, Compound):
        a, b = _evaluated(index.a, table), _evaluated(index.b, table)
        if index.kind in ("min", "max"):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            return torch.minimum(a, b) if index.kind == "min" else torch.maximum(a, b)
        return a // b if index.kind == "floordiv" else a % b
    total: Any = index.constant
    for coefficient, product in index.terms:
        for factor in product:
            coefficient = coefficient * _evaluated(factor, table)
        total = total + coefficient
    return total


def _assert_within(values: Grid, atom: Any, load: Load) -> None:
    low, high = atom.bounds()
    assert low is None or int(values.min()) >= low, f"{atom} below its bounds in {load}"
    assert high is None or int(values.max()) <= high, f"{atom} above its bounds in {load}"


def _applied(v: Apply, args: Sequence[Grid]) -> Grid:
    row = OPERATIONS[v.op]
    if v.op in ("cast", "bitcast"):
        return row.meaning(args[0], dtype=v.dtype)
    halves = v.dtype in HALVES or any(a.dtype in HALVES for a in args)
    if halves and v.op != "where":
        args = [a.to(torch.float32) if a.is_floating_point() else a for a in args]
        return row.meaning(*args).to(v.dtype)
    return row.meaning(*args)


def _extreme(kind: str) -> Callable[[Grid], Grid]:
    def found(rows: Grid) -> Grid:
        return getattr(rows, f"a{kind}")(-1)

    return found


def _first(kind: str) -> Callable[[Grid], Grid]:
    def found(rows: Grid) -> Grid:
        best = getattr(rows, f"a{kind}")(-1, keepdim=True)
        hit = rows == best
        if rows.is_floating_point():
            hit |= rows.isnan()
        return hit.to(torch.int8).argmax(-1)

    return found


REDUCE: dict[str, Callable[[Grid], Grid]] = {
    "sum": lambda rows: rows.sum(-1, dtype=rows.dtype),
    "prod": lambda rows: rows.prod(-1, dtype=rows.dtype),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "any": lambda rows: rows.any(-1),
    "all": lambda rows: rows.all(-1),
    "argmax": _first("max"),
    "argmin": _first("min"),
}

SCAN: dict[str, Callable[[Grid], Grid]] = {
    "cumsum": lambda rows: rows.cumsum(-1, dtype=rows.dtype),
    "cumprod": lambda rows: rows.cumprod(-1, dtype=rows.dtype),
    "cummax": lambda rows: rows.cummax(-1).values,
    "cummin": lambda rows: rows.cummin(-1).values,
    "logcumsumexp": lambda rows: rows.logcumsumexp(-1),
    "sort": lambda rows: rows.sort(-1).values,
}

__all__ = ["run"]
