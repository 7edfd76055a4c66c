"""The Python around kernels: one generated function that allocates, launches, calls operators, and returns.

How a run of kernels is launched is the backend's (``Launch``); all else is the same for each of them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from jitney._util.generated_code import build
from jitney.torch_compat import markers, torch_private
from jitney_lowering.aten.overflow import GREATEST, LEAST, too_large
from jitney_lowering.index import Atom, Index, Size, index, render
from jitney_lowering.input_check import Fact, InputCheck
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import LAST, Buffer, Extern, Number, Strided, strided
from jitney_lowering.labels import labels
from jitney_lowering.linalg_errors import CHECKS, check_errors
from jitney_lowering.restride import conjugated, numbers_in, restride
from jitney_lowering.scheduler import Schedule
from jitney_lowering.scheduler.memory.in_place import alike, root

_counter = itertools.count()

# What the function calls the allocator's functions.
_ALLOCATION = {
    "_empty_strided": "empty_strided", "_fresh_small": "fresh_small", "_empty": "empty", "_fresh": "fresh",
}  # fmt: skip

# Operators that torch also has as functions of its own, which take less time to call: on a CPU a convolution 5 us for
# 12, others about a third less.
_NAMES = (
    "mm", "bmm", "addmm", "baddbmm", "dot", "convolution", "cudnn_batch_norm", "native_batch_norm", "native_layer_norm",
    "native_group_norm", "constant_pad_nd", "cumsum", "cumprod", "gather", "index_select", "index_add", "index_copy",
    "scatter_add", "topk", "embedding", "grid_sampler_2d",
)  # fmt: skip
FACES: dict[Any, Callable[..., Any]] = {
    **{getattr(torch.ops.aten, name).default: getattr(torch, name) for name in _NAMES if hasattr(torch, name)},
    CHECKS: check_errors,
}


class Launch(Protocol):
    """Writes the lines that run kernels."""

    def __call__(self, items: Sequence[Kernel | Extern], wrapper: Wrapper) -> list[str]:
        """Python lines that run these one after the other: kernels, and operators with memory for their results.

        They find tensors by ``wrapper.pointer(buffer)`` and sizes by ``wrapper.size(expression)``, and put what else
        they need into ``wrapper.namespace``.
        """


@dataclass
class Wrapper:
    """Writes the function of one schedule.

    Args:
        schedule: what runs.
        launch: the backend's part.
        name: the user's function, for the file name in tracebacks.
        allocator: gives memory: ``empty_strided`` and ``empty`` as torch has them; if it has it,
            ``fresh(size, stride, dtype)`` on the device, and ``fresh_small``, as that, for tensors of less than
            ``small`` bytes.
        device: where temporaries are.
        refuse: the lines with which the backend stops when a buffer of one truth value is true; None or no lines for
            waiting until it is known, and an exception.
        separate: do outputs, and temporaries that the plan sets apart, get memory only when they are filled, and lose
            it when they have been read for the last time? Then kernels are launched one by one, and the function has a
            form ``boxed`` whose inputs die on the way. Else nothing may be set apart.
        kind: of the graph: inference, forward or backward; for profiles.
        located: the positions of inputs that are tensors, if the caller has their addresses: the function has a form
            ``located`` that is given these first, as a list; ``given(text)`` is where one is in it.
        instead: what is called in an operator's place with its arguments, for one call of the graph; None for itself.
    """

    schedule: Schedule
    launch: Launch
    name: str
    allocator: Any = torch
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    refuse: Callable[[str, str, Wrapper], list[str]] | None = None
    separate: bool = False
    kind: str = ""
    located: Sequence[int] = ()
    instead: Callable[[Extern], Callable[..., Any] | None] = lambda extern: None
    namespace: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        self.program = self.schedule.program
        items = self.schedule.items
        self.apart = markers.wanted()
        self.labels = labels(items) if self.apart else []
        self.runs = [(_is_launched(item), [item]) for item in items] if self.apart else _runs(items, self.separate)
        self.lines: list[str] = []
        self.variables: dict[str, str] = {}  # buffer -> the variable of a tensor that begins where it begins
        self.blocks = self.schedule.memory.blocks
        self.views: set[str] = set()  # the arena's
        self.given_floats: dict[str, str] = {}  # buffer of a Python float that the graph is given -> its variable
        self.seen: set[str] = set()  # checks that have been looked at
        self.addresses = {f"i{n}": at for at, n in enumerate(self.located)}  # variable of an input -> place in ``p``
        self.pointers: dict[str, str] = {}  # variable of a tensor -> the variable of its address
        self.inside: dict[str, str] = {}  # buffer -> the operator of the present run in whose result it is (its buffer)
        self.spelled: dict[Atom, str] = {size: f"n{i}" for i, size in enumerate(self.program.sizes)}
        self.namespace.update(
            **{name: getattr(self.allocator, function) for name, function in self.allocation.items()},
            _as_strided=torch.as_strided,
            _restride=restride,
            _tensor=torch.tensor,
            _float64=torch.float64,
            floordiv=operator.floordiv,
            mod=operator.mod,
        )

    def build(self) -> Callable[..., tuple[Any, ...]]:
        """The function, from the graph's inputs to its outputs."""
        parameters = [f"i{number}" for number in range(len(self.program.inputs))]
        self._read_sizes()
        self._begin()
        last = self._last_uses()
        ending: dict[int, list[str]] = {}
        for name, number in last.items():
            ending.setdefault(number, []).append(name)
        for number, (launched, run) in enumerate(self.runs):
            self.inside = self._made_inside(run)
            self.surviving = {name for name in self.inside if last.get(name, len(self.runs)) > number}
            self._take_over(run)
            if self.separate:
                self._make_room(run)
            self.lines += self._checked(name for item in run for name in item.after)
            lines = self.launch(run, self) if launched else self._externs(run)
            lines += self._left_over()
            self.lines += self._marked(number, run[0], lines) if self.apart else lines
            known = [(name, self.variables[name]) for name in ending.get(number, ()) if name in self.variables]
            dead = [variable for name, variable in known if self._may_die(name, variable)]
            dead.sort(key=lambda variable: (len(variable), variable))
            self.lines += [f"del {', '.join(dead)}"] if dead else []
        for name in self.schedule.allocated:
            if name not in self.variables:  # nobody fills it: it is empty
                self._allocate(name)
        self.lines += self._checked(check[0] for check in self.program.checks)
        outputs = "".join(f"{self._output(o)}, " for o in self.program.outputs)
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return ({outputs})"])
        self.source = f"def run({', '.join(parameters)}):\n{body}"
        if self.separate:
            taken = f"    {', '.join(parameters)}, = inputs\n    inputs.clear()\n" if parameters else ""
            self.source = f"def boxed(inputs):\n{taken}{body}def run(*inputs): return boxed([*inputs])\n"
        elif self.located:
            tensors = ", ".join(f"i{n}.data_ptr()" for n in self.located)
            given = ", ".join(parameters)
            self.source = f"def located(p, {given}):\n{body}def run({given}): return located([{tensors}], {given})\n"
        filename = f"<jitney kernels of {self.name} {next(_counter)}>"
        function: Any = build(self.source, filename, self.namespace, "run")
        function.boxed = self.namespace.get("boxed")
        if self.located:
            function.located = self.namespace["located"]
        function.filled = frozenset(
            number for number, o in enumerate(self.program.outputs)
            if isinstance(o, Strided) and o.buffer in self.schedule.filled
        )  # fmt: skip
        return function

    # ------------------------------------------------------------------ for the backend

    @property
    def allocation(self) -> dict[str, str]:
        """What the function calls the allocator's functions: who serializes it gives it those of another process."""
        return {name: function for name, function in _ALLOCATION.items() if hasattr(self.allocator, function)}

    def size(self, expression: Index) -> str:
        """Python text of an index expression over the graph's sizes."""
        return (
            render(expression, lambda atom: self.spelled[atom]) if expression.value is None else str(expression.value)
        )

    def pointer(self, buffer: str) -> str:
        """Python text of the address of a buffer's first element."""
        base, offset = self.place(buffer)
        return base if offset.value == 0 else f"{base} + {self.size(offset)}"

    def place(self, buffer: str) -> tuple[str, Index]:
        """Python text of an address, and how many bytes after it the buffer begins.

        In an operator's result that the present run makes: the name of that buffer in angle brackets, which is no text.
        """
        known = self.program.buffers[buffer]
        if known.home is not None:
            base, offset = self.place(known.home[0])
            return base, offset + known.home[1] * known.dtype.itemsize
        block = self.blocks.get(buffer)
        if block is not None:
            return "arena", block.offset
        if buffer in self.inside:
            return f"<{self.inside[buffer]}>", index(0)
        tensor = self.tensor(buffer)
        if tensor in self.addresses and not known.dtype.is_complex:  # which may become another tensor
            return f"p[{self.addresses[tensor]}]", index(0)
        if tensor not in self.pointers:
            self.pointers[tensor] = f"p_{tensor}"
            self.lines.append(f"p_{tensor} = {tensor}.data_ptr()")
        return self.pointers[tensor], index(0)

    def given(self, address: str) -> int | None:
        """Where in the list of addresses this one is that ``place`` has said; None if it is not there."""
        return int(address[2:-1]) if address.startswith("p[") else None

    def tensor(self, buffer: str) -> str:
        """Python text of a tensor over all of a buffer."""
        known = self.program.buffers[buffer]
        if known.home is not None:
            return self._strided(Strided(known.home[0], known.dtype, known.size, known.stride, known.home[1]))
        return self.variables.get(buffer) or self._temporary(known)

    def handed_over(self) -> dict[str, str]:
        """Operators' results that the present run makes and leaves to others: buffer -> variable of the tensor."""
        left = sorted({self.inside[name] for name in self.surviving})
        for name in left:
            self.variables[name] = f"t{len(self.variables)}"
        return {name: self.variables[name] for name in left}

    def constant(self, value: Any) -> str:
        """Python text of any object."""
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        for name, known in self.namespace.items():
            same = known is value or (isinstance(value, torch.device) and known == value)
            if same and name.startswith("_c"):
                return name
        name = f"_c{len(self.namespace)}"
        self.namespace[name] = value
        return name

    # ------------------------------------------------------------------ parts of the function

    def _marked(self, number: int, item: Kernel | Extern, lines: list[str]) -> list[str]:
        """The lines of one kernel or operator, with its name for those who look on."""
        kind = "kernel" if isinstance(item, Kernel) else "extern"
        marker = markers.Marker(kind, self.labels[number].name, self.kind)
        return [f"with {self.constant(marker)}():", *(f"    {line}" for line in lines or ["pass"])]

    def _read_sizes(self) -> None:
        readers = {"value": "i{0}", "size": "i{0}.size({1})", "stride": "i{0}.stride({1})"}
        for size, reading in self.program.sizes.items():
            self.lines.append(f"{self.spelled[size]} = {readers[reading.what].format(reading.input, reading.dim)}")
        for number in self.program.numbers:
            refuse = f"{self.constant(too_large)}({str(number)!r})"
            self.lines.append(f"if not {LEAST} <= {self.size(number)} <= {GREATEST}: {refuse}")

    def _begin(self) -> None:
        taken = {n: self.program.buffers[name] for n, name in enumerate(self.program.inputs)
                 if isinstance(name, str) and n not in self.program.floats}  # fmt: skip
        for number, buffer in taken.items():
            if buffer.dtype.is_complex:  # operators that another backend runs may be lazier than their stand-ins
                lazy = buffer.name in self.program.lazy
                change = f"{self.constant(conjugated)}(i{number})"
                self.lines.append(f"if i{number}.is_conj() is not {lazy}: i{number} = {change}")
        if taken:
            facts = (self._fact(number, buffer) for number, buffer in taken.items())
            self.namespace["_new"] = [InputCheck(facts, self.located)]
            given = "".join(f"i{n}, " for n in range(len(self.program.inputs))) + "addresses=p" * bool(self.located)
            self.lines.append(f"if _new: _new[0]({given}); _new.clear()")
        read = {name for item in self.schedule.items if isinstance(item, Kernel) for name in item.reads}
        for number, name in enumerate(self.program.inputs):
            if isinstance(name, str) and number in self.program.floats:
                self.given_floats[name] = self.variables[name] = f"i{number}"
                if name in read:
                    self.variables[name] = f"f{number}"
                    device = self.constant(self.device)
                    self.lines.append(f"f{number} = _tensor(i{number}, dtype=_float64, device={device})")
            elif isinstance(name, str):
                self.variables[name] = f"i{number}"
        for name, tensor in self.program.constants.items():
            self.variables[name] = self.constant(tensor)
        if not self.separate:
            for name in self.schedule.allocated:
                self._allocate(name)
        for name, old in self.schedule.filled.items():
            self.variables[name] = self.variables[old]
        if self.blocks:
            self.lines.append(f"memory = {self.vector(self.schedule.memory.size, torch.uint8)}")
            self.lines.append("arena = memory.data_ptr()")

    def _fact(self, number: int, buffer: Buffer) -> Fact:
        sizes, strides = (tuple([n.value for n in numbers]) for numbers in (buffer.size, buffer.stride))
        return number, buffer.dtype, sizes, strides, buffer.name in self.program.lazy, f"{buffer} ({buffer.stride})"

    def _allocate(self, name: str) -> None:
        self.variables[name] = f"o{len(self.variables)}"
        self.lines.append(f"{self.variables[name]} = {self._empty(self.program.buffers[name])}")

    def _take_over(self, run: Sequence[Kernel | Extern]) -> None:
        """What is filled here in the place of something else; a result is no view of that."""
        successors = self.schedule.successors
        for name in (name for item in run for name in sorted(item.writes & successors.keys())):
            if name not in self.variables and name not in self.inside:
                self.lines.append(self._in_place_of(name, successors[name]))

    def _in_place_of(self, name: str, old: str) -> str:
        """The line that names a buffer which has taken over another's memory."""
        plain = alike(self.program.buffers[name], self.program.buffers[old])
        made = self.variables[old] if plain else f"{self._over(name, old)}.detach()"
        self.variables[name] = f"t{len(self.variables)}"
        return f"{self.variables[name]} = {made}"

    def _made_inside(self, run: Sequence[Kernel | Extern]) -> dict[str, str]:
        """What this run makes memory for: buffer -> the operator's result whose memory it has."""
        made: dict[str, str] = {}
        for item in run:
            if isinstance(item, Extern) and item.fresh:
                made |= {name: name for name in item.buffers if name is not None}
            for name in item.writes & self.schedule.successors.keys():
                if self.schedule.successors[name] in made:
                    made[name] = made[self.schedule.successors[name]]
        return made

    def _left_over(self) -> list[str]:
        """Lines that name what lives on in results that this run has made."""
        inside, self.inside = self.inside, {}
        names = [name for name in inside if name in self.surviving and name != inside[name]]
        return [self._in_place_of(name, inside[name]) for name in names]

    def _make_room(self, run: Sequence[Kernel | Extern]) -> None:
        """Memory for what is filled here first: outputs, and temporaries that are set apart."""
        allocated = set(self.schedule.allocated)
        apart = self.schedule.memory.apart
        for item in run:
            for name in dict.fromkeys(root(n, self.program.buffers) for n in sorted(item.writes | item.reads)):
                if name in self.variables:
                    continue
                if name in allocated:
                    self._allocate(name)
                elif name in apart:
                    self._allocate_alone(name, apart[name])

    def _allocate_alone(self, name: str, old: str) -> None:
        """A temporary; in the place of another that it replaces."""
        made = self._over(name, old) if old else self._empty(self.program.buffers[name])
        self.variables[name] = f"t{len(self.variables)}"
        self.lines.append(f"{self.variables[name]} = {made}")

    def _over(self, name: str, old: str) -> str:
        """Python text of a buffer as a tensor over the memory of another."""
        buffer, source = self.program.buffers[name], self.variables[old]
        if self.program.buffers[old].dtype is not buffer.dtype:
            source += f".view({self.constant(buffer.dtype)})"
        return f"_as_strided({source}, {self._tuple(buffer.size)}, {self._tuple(buffer.stride)})"

    def _may_die(self, name: str, variable: str) -> bool:
        """May the variable go when its buffer is no longer needed?"""
        if variable.startswith("i"):
            filled = self.schedule.filled
            return self.separate and name not in filled and name not in filled.values()
        return variable.startswith("t")

    def vector(self, count: Index, dtype: torch.dtype) -> str:
        """Python text of new memory on the device for so many elements."""
        fresh = "_fresh" if hasattr(self.allocator, "fresh") else self._fresh_small([count], [index(1)], dtype)
        if fresh:
            return f"{fresh}(({self.size(count)},), (1,), {self.constant(dtype)})"
        return f"_empty({self.size(count)}, dtype={self.constant(dtype)}, device={self.constant(self.device)})"

    def _empty(self, buffer: Buffer) -> str:
        dtype, device = self.constant(buffer.dtype), self.constant(buffer.device)
        if hasattr(self.allocator, "fresh") and buffer.device == self.device:
            return f"_fresh({self._tuple(buffer.size)}, {self._tuple(buffer.stride)}, {dtype})"
        fresh = "" if buffer.device != self.device else self._fresh_small(buffer.size, buffer.stride, buffer.dtype)
        if fresh:
            return f"{fresh}({self._tuple(buffer.size)}, {self._tuple(buffer.stride)}, {dtype})"
        size, stride = self._tuple(buffer.size), self._tuple(buffer.stride)
        return f"_empty_strided({size}, {stride}, dtype={dtype}, device={device})"

    def _fresh_small(self, size: Sequence[Index], stride: Sequence[Index], dtype: torch.dtype) -> str:
        """What makes a tensor that is known to be small; empty if it is not, or the allocator has nothing for such."""
        sizes, strides = [n.value for n in size], [n.value for n in stride]
        if not hasattr(self.allocator, "fresh_small") or None in (*sizes, *strides):
            return ""
        extent = 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True) if n is not None and step)
        return "_fresh_small" if extent * dtype.itemsize < self.allocator.small else ""

    def _tuple(self, items: Sequence[Index]) -> str:
        return f"({''.join(f'{self.size(i)}, ' for i in items)})"

    def _temporary(self, buffer: Buffer) -> str:
        """A tensor in the arena."""
        block = self.blocks[buffer.name]
        offset = block.offset // buffer.dtype.itemsize
        view = self._memory_as(buffer.dtype)
        return f"_as_strided({view}, {self._tuple(buffer.size)}, {self._tuple(buffer.stride)}, {self.size(offset)})"

    def _memory_as(self, dtype: torch.dtype) -> str:
        """The arena as elements of a dtype."""
        name = f"memory_{str(dtype).removeprefix('torch.')}"
        if name not in self.views:
            self.views.add(name)
            self.lines.append(f"{name} = memory.view({self.constant(dtype)})")
        return name

    def _strided(self, view: Strided) -> str:
        buffer = self.program.buffers[view.buffer]
        if buffer.home is not None:
            view = replace(view, buffer=buffer.home[0], offset=view.offset + buffer.home[1])
            buffer = self.program.buffers[view.buffer]
        whole = view.offset.value == 0 and view.size == buffer.size and view.stride == buffer.stride
        if whole and view.dtype is buffer.dtype:
            return self.tensor(view.buffer)
        if _is_transposed(view, buffer) and buffer.name in self.variables:
            return f"{self.variables[buffer.name]}.t()"
        block = self.blocks.get(view.buffer)
        shape = f"{self._tuple(view.size)}, {self._tuple(view.stride)}"
        if block is not None:
            offset = block.offset // view.dtype.itemsize + view.offset
            return f"_as_strided({self._memory_as(view.dtype)}, {shape}, {self.size(offset)})"
        base = self.variables[view.buffer]
        tensor = base if view.dtype is buffer.dtype else f"{base}.view({self.constant(view.dtype)})"
        if buffer.dtype.is_complex and not view.dtype.is_complex:
            tensor = f"{self.constant(numbers_in)}({base})"
        if view.offset.value == 0:
            return f"_as_strided({tensor}, {shape})"
        return f"_as_strided({tensor}, {shape}, {base}.storage_offset() + {self.size(view.offset)})"

    def _externs(self, calls: Sequence[Extern]) -> list[str]:
        """One operator, or the copies at the end, all of them as one."""
        if len(calls) == 1:
            return self._extern(calls[0])
        targets, sources = (", ".join(self._argument(c.args[n], c.written) for c in calls) for n in (0, 1))
        return [f"{self.constant(torch_private.foreach_copy)}([{targets}], [{sources}])"]

    def _extern(self, call: Extern) -> list[str]:
        arguments = [self._argument(a, call.written) for a in call.args]
        arguments += [f"{name}={self._argument(a, call.written)}" for name, a in call.kwargs.items()]
        called = self.instead(call) or FACES.get(call.target, call.target)
        text = f"{self.constant(called)}({', '.join(arguments)})"
        names = []
        lines = []
        for name in call.buffers:
            names.append("_" if name is None else f"t{len(self.variables)}")
            if name is not None:
                self.variables[name] = names[-1]
        if not any(call.buffers):
            return [text]
        lines.append(f"{names[0]} = {text}" if call.returns_one else f"{', '.join(names)}, = {text}")
        if "_" in names:
            lines.append("del _")
        for name in call.buffers:
            if name is not None:
                lines += self._restrided(self.program.buffers[name])
        return lines

    def _restrided(self, buffer: Buffer) -> list[str]:
        """The operator's result has the dtype and strides that the kernels were made for."""
        tensor = self.variables[buffer.name]
        stride, dtype = self._tuple(buffer.stride), self.constant(buffer.dtype)
        lazy = f" or {tensor}.is_conj() is not {buffer.name in self.program.lazy}" if buffer.dtype.is_complex else ""
        conjugated = ", True" if buffer.name in self.program.lazy else ""
        return [
            f"if {tensor}.stride() != {stride} or {tensor}.dtype is not {dtype}{lazy}: "
            f"{tensor} = _restride({tensor}, {stride}, {dtype}{conjugated})"
        ]

    def _argument(self, argument: Any, written: Set[str] = frozenset()) -> str:
        """Its text. What the operator writes to it gets with a version counter of its own: the caller counts writes."""
        if isinstance(argument, Number):
            return self.given_floats.get(argument.buffer) or f"{self._strided(argument)}.item()"
        if isinstance(argument, Strided):
            return self._strided(argument) + (".data" if argument.buffer in written else "")
        if isinstance(argument, Index):
            return self.size(argument)
        if isinstance(argument, (list, tuple)):
            return f"[{', '.join(self._argument(a, written) for a in argument)}]"
        return self.constant(argument)

    def _output(self, output: Any) -> str:
        """A result. What a program sees is no view: it may write to it, as to any result of an operator."""
        text = self._argument(output)
        is_view = isinstance(output, Strided) and not isinstance(output, Number) and not text.isidentifier()
        return f"{text}.detach()" if is_view and self.kind != "backward" else text

    def _checked(self, names: Iterable[str]) -> list[str]:
        """The lines that look at those of the program's checks that nobody has looked at before."""
        wanted, seen = set(names), self.seen
        self.seen = seen | wanted
        return [
            line for check in self.program.checks if check[0] in wanted - seen for line in self._refuse(*check)
        ]  # fmt: skip

    def _refuse(self, buffer: str, message: str, exception: type[Exception]) -> list[str]:
        """The lines that raise if a truth value is true: the backend's own, or such as wait for it."""
        own = self.refuse(buffer, message, self) if self.refuse is not None else None
        return own or [f"if {self.tensor(buffer)}.item(): raise {self.constant(exception)}({message!r})"]

    def _last_uses(self) -> dict[str, int]:
        """Buffer -> the number of the run after which nobody reads it; outputs are not there."""
        last: dict[str, int] = {}
        for number, (_, run) in enumerate(self.runs):
            for item in run:
                for name in item.reads | item.writes:
                    last[name] = last[root(name, self.program.buffers)] = number
        for name in (*(kept.buffer for kept in strided(self.program.outputs)), *(c[0] for c in self.program.checks)):
            last.pop(name, None)
            last.pop(root(name, self.program.buffers), None)
        return last


def _is_transposed(view: Strided, buffer: Buffer) -> bool:
    """Is it a matrix seen from its other side?"""
    same = view.dtype is buffer.dtype and view.offset.value == 0 and len(view.size) == 2 == len(buffer.size)
    return same and view.size == buffer.size[::-1] and view.stride == buffer.stride[::-1]


def _runs(items: Sequence[Kernel | Extern], separate: bool) -> list[tuple[bool, list[Any]]]:
    """What is written as one: kernels in a row unless they are ``separate``, and the copies at the end.

    Kernels that wait for checks which nobody has looked at begin a run.
    """
    made: list[tuple[bool, list[Any]]] = []
    seen, before = frozenset[str](), None
    for item in items:
        kind = launched, last = _kind(item)
        together = kind == before and (last or (launched and not separate)) and item.after <= seen
        if together:
            made[-1][1].append(item)
        else:
            made.append((launched, [item]))
        seen, before = seen | item.after, kind
    return made


def _kind(item: Kernel | Extern) -> tuple[bool, bool]:
    return _is_launched(item), isinstance(item, Extern) and item.reason == LAST


def _is_launched(item: Kernel | Extern) -> bool:
    return isinstance(item, Kernel) or item.launched


class HasSizes(Protocol):
    """A kernel, or what a backend makes of an operator."""

    @property
    def sizes(self) -> frozenset[Size]:
        """The symbolic sizes that appear anywhere."""


def sizes_in(items: Iterable[HasSizes], offsets: Iterable[Index] = ()) -> list[Size]:
    """The symbolic sizes in what is launched and other expressions, in a fixed order."""
    found = {size for item in items for size in item.sizes}
    found |= {atom for offset in offsets for atom in offset.atoms if isinstance(atom, Size)}
    return sorted(found, key=str)
