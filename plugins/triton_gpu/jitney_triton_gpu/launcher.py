"""How kernels are launched from the generated Python function, and the module of Triton code that they come from."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from jitney.backends.devices import raw_stream
from jitney.cache.store import DiskCache, cache_folder
from jitney_lowering import Kernel, NotLowered, Schedule, Wrapper
from jitney_lowering.index import Size, index
from jitney_lowering.ir import Buffer, Extern, Program, canonical, index_width, placed
from jitney_triton_gpu.code import Code, Function, Parameter
from jitney_triton_gpu.device import DEVICE_TYPES, INTERPRETED, too_large
from jitney_triton_gpu.emit import emit, short_name
from jitney_triton_gpu.failures import KernelFailed, NotCompiled, write_repro
from jitney_triton_gpu.module import load
from jitney_triton_gpu.options import TritonGpuOptions
from jitney_triton_gpu.retries import Retries
from jitney_triton_gpu.tiles import USUAL, Tuning
from jitney_triton_gpu.tuning import Make, Room, Tuner

HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

from jitney_triton_gpu import helpers
"""
ALIGNMENT = 256  # bytes, as of memory from CUDA
ALIGNED = 16  # bytes: where vectors may begin


@dataclass(frozen=True)
class Unit:
    """Code that several kernels of a graph share: those that do the same to other buffers."""

    code: Code
    entries: tuple[str, ...]  # a name in the wrapper for each function


class Launcher:
    """Launches kernels one by one (a ``Launch``); code is compiled at the end.

    Args:
        schedule: what runs.
        name: the user's function.
        options: the backend's.
        tuner: measures block sizes, if it is there.
        retries: kernels that Triton refused as they usually are.
    """

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        options: TritonGpuOptions,
        tuner: Tuner | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.schedule = schedule
        self.name = name
        self.options = options
        # By the canonical kernel, the width in which places are counted, and what replaces what.
        self.units: dict[tuple[Kernel, bool, frozenset[tuple[str, str]]], Unit] = {}
        self.functions: dict[str, Function] = {}  # entry -> what it launches
        self.kernels: dict[str, list[Kernel]] = {}  # entry -> those that it is of
        self.source = ""
        self.device = device_of(schedule)
        self.work = 0  # bytes of the workspaces of the kernel that has the largest
        self.tuner = tuner
        self.retries = retries or Retries()

    def __call__(self, items: Sequence[Kernel | Extern], wrapper: Wrapper) -> list[str]:
        """Python lines that launch these kernels."""
        lines: list[str] = []
        if not self.units:
            lines += self._limits(wrapper)
        if not INTERPRETED and not self.units:
            lines.append(f"stream = {wrapper.constant(raw_stream)}({self.device.index})")
        for item in items:
            assert isinstance(item, Kernel)
            lines += self._launch(item, wrapper)
        return lines

    def _limits(self, wrapper: Wrapper) -> list[str]:
        """Lines that raise if a symbolic size is such that 32 bits do not count what kernels count."""
        program = self.schedule.program
        kernels = [item for item in self.schedule.items if isinstance(item, Kernel)]
        symbolic = {n: None for kernel in kernels for n in index_width.counts(kernel, program) if n.value is None}
        return [f"if {wrapper.size(n)} > {index_width.NARROW}: {wrapper.constant(too_large)}()" for n in symbolic]

    def _launch(self, kernel: Kernel, wrapper: Wrapper) -> list[str]:
        unit, buffers, later = self._unit(kernel)
        lines: list[str] = []
        places = self._workspaces(unit, wrapper, lines)
        for entry, function in zip(unit.entries, unit.code.functions, strict=True):
            self.kernels.setdefault(entry, []).append(kernel)
            given = [self._given(p, buffers, later, places, wrapper) for p in function.parameters]
            stream = [] if INTERPRETED else ["stream"]
            lines.append(f"{entry}({', '.join([wrapper.size(function.programs), *stream, *given])})")
        return lines

    def refuse(self, buffer: str, message: str, wrapper: Wrapper) -> list[str]:
        """Lines that stop the device if a truth value is true, as CUDA's own kernels do: nobody waits for it.

        None for what is wrong with a number of Python's, which is an exception there too.
        """
        if INTERPRETED or self.schedule.program.buffers[buffer].device.type == "cpu":
            return []
        name = f"check{sum(entry.startswith('e_check') for entry in self.functions)}"
        body = f"    tl.device_assert(tl.load(b0).to(tl.int32) == 0, {message!r})"
        flag = Parameter("b0", "buffer", buffer, torch.bool)
        function = Function(name, (flag,), body, {}, index(1), 1, comment=message, asserts=True)
        self.functions[f"e_{name}"] = function
        self.source += f"\n\n# {message}\n{function.text}"
        return [f"e_{name}(1, stream, {wrapper.pointer(buffer)})"]

    def _workspaces(self, unit: Unit, wrapper: Wrapper, lines: list[str]) -> dict[str, str]:
        """Where the kernel's workspaces are. All kernels of a graph use the same memory, one after the other."""
        places: dict[str, str] = {}
        used = 0
        for workspace in unit.code.workspaces:
            count = workspace.count.value
            if INTERPRETED or count is None:
                lines.append(f"{workspace.name} = {wrapper.vector(workspace.count, workspace.dtype)}")
                places[workspace.name] = workspace.name if INTERPRETED else f"{workspace.name}.data_ptr()"
                continue
            if not self.work:
                lines.append(f"work = {wrapper.constant(torch.empty)}(_work, dtype={wrapper.constant(torch.uint8)}, "
                             f"device={wrapper.constant(self.device)})")  # fmt: skip
                lines.append("p_work = work.data_ptr()")
            places[workspace.name] = f"p_work + {used}"
            used += -(-count * workspace.dtype.itemsize // ALIGNMENT) * ALIGNMENT
            self.work = max(self.work, used)
        return places

    def _given(
        self,
        parameter: Parameter,
        buffers: Mapping[str, str],
        later: Mapping[str, int],
        places: Mapping[str, str],
        wrapper: Wrapper,
    ) -> str:
        if isinstance(parameter.of, Size):
            return wrapper.size(parameter.of)
        if parameter.kind == "workspace":
            return places[parameter.name]
        name, skipped = buffers[parameter.of], later.get(parameter.of, 0)
        if INTERPRETED:
            tensor = wrapper.tensor(name)
            return f"_as_strided({tensor}, (1, ), (1, ), {tensor}.storage_offset() + {skipped})" if skipped else tensor
        pointer = wrapper.pointer(name)
        itemsize = self.schedule.program.buffers[name].dtype.itemsize
        return f"{pointer} + {skipped * itemsize}" if skipped else pointer

    def _unit(self, kernel: Kernel) -> tuple[Unit, dict[str, str], dict[str, int]]:
        """The code of a kernel, its buffers by the names that they have there, the elements that it skips of each."""
        plain, names = canonical(kernel)
        buffers = {f"b{n}": name for n, name in enumerate(names)}
        wide = index_width.is_wide(kernel, self.schedule.program)
        own = {name: mine for mine, name in buffers.items()}
        replaced = {own[old]: own[new] for old, new in self._replaced(kernel).items() if old in own}
        shape, later = placed(plain, ALIGNED, frozenset((*replaced, *replaced.values())))
        key = (shape, wide, frozenset(replaced.items()))
        unit = self.units.get(key)
        if unit is None:
            name = f"k{len(self.units)}_{short_name(kernel)}".rstrip("_")
            make = functools.partial(_emitted, kernel=replace(shape, nodes=kernel.nodes), replaced=replaced, wide=wide)
            try:
                code = make(self.retries.tuning(shape) or self._tuning(make, kernel, buffers), name)
            except NotLowered as refusal:
                raise KernelFailed(refusal.reason, kernel.nodes) from refusal
            entries = tuple(f"e_{function.name}" for function in code.functions)
            unit = Unit(code, entries)
            self.units[key] = unit
            self.functions |= dict(zip(entries, code.functions, strict=True))
            self.source += "".join(f"\n\n# {f.comment or kernel.name}\n{f.text}" for f in code.functions)
        return unit, buffers, later

    def _tuning(self, make: Make, kernel: Kernel, buffers: dict[str, str]) -> Tuning:
        """Block sizes; the usual ones where sizes change from call to call, or nobody asked for others."""
        extents = {mine: self.schedule.program.buffers[name].extent.value for mine, name in buffers.items()}
        if self.tuner is None or kernel.sizes or None in extents.values():
            return USUAL
        dtypes = kernel.buffers
        rooms = {mine: Room(dtypes[buffers[mine]], n or 0) for mine, n in extents.items()}
        return self.tuner.best(make, rooms).tuning

    def _replaced(self, kernel: Kernel) -> dict[str, str]:
        """Buffers in whose memory the kernel stores something else, and what that is."""
        olders = {**self.schedule.filled, **self.schedule.successors, **self.schedule.memory.instead_of}
        buffers = self.schedule.program.buffers
        found: dict[str, str] = {}
        for name in sorted(kernel.writes):
            old = olders.get(name) or olders.get(_owner(buffers[name]))
            if old is not None:
                found |= {n: name for n in kernel.reads - kernel.writes if _owner(buffers[n]) == old}
        return found

    @property
    def module(self) -> str:
        """The text of all kernels, as a module."""
        return HEADER + self.source

    def link(self) -> dict[str, Any]:
        """What is behind the names in the wrapper: functions, and the size of the workspace.

        Raises:
            KernelFailed: Triton refused one.
        """
        try:
            made = load(self.module, self.name, self.functions, self.device, self.options.relaxed_math)
        except NotCompiled as refusal:
            entry, error = next(iter(refusal.errors.items()))
            repro = functools.partial(write_repro, self.functions[entry], HEADER, error, refusal.details[entry])
            nodes = [n for each in refusal.errors for kernel in self.kernels.get(each, ()) for n in kernel.nodes]
            shapes = [key[0] for key, unit in self.units.items() if refusal.errors.keys() & {*unit.entries}]
            raise KernelFailed("Triton does not compile its kernel", nodes, error, repro, shapes) from error
        return {**made, "_work": self.work}


def _owner(buffer: Buffer) -> str:
    """The buffer that has the memory in which this one is."""
    return buffer.name if buffer.home is None else buffer.home[0]


def _emitted(tuning: Tuning, name: str, kernel: Kernel, replaced: Mapping[str, str], wide: bool) -> Code:
    return emit(kernel, name, replaced=replaced, wide=wide, tuning=tuning)


def tuner_of(program: Program, name: str, options: TritonGpuOptions) -> Tuner | None:
    """What measures block sizes; None where there is no device to measure on, or nobody asked for it."""
    devices = {b.device for b in program.buffers.values() if b.device.type in DEVICE_TYPES}
    if INTERPRETED or not options.tunes or len(devices) != 1:
        return None
    (device,) = devices
    import triton

    from jitney_triton_gpu.measure import Device

    measure = Device(device, HEADER, options.relaxed_math)
    about = f"{torch.cuda.get_device_name(device)} {triton.__version__} {torch.version.cuda} {options.relaxed_math}"
    folder = cache_folder("triton_gpu")
    cache = None if folder is None else DiskCache(folder)
    return Tuner(measure, about, cache, name)


def device_of(schedule: Schedule) -> torch.device:
    """The device of all kernels, or of the operators if these are all; raises ``NotLowered`` if there are several."""

    def devices(kind: type[Kernel] | type[Extern]) -> set[torch.device]:
        named = {name for item in schedule.items if isinstance(item, kind) for name in item.reads | item.writes}
        found = {schedule.program.buffers[name].device for name in named}
        return {device for device in found if device.type in DEVICE_TYPES}

    found = devices(Kernel)
    if len(found) > 1:
        raise NotLowered(f"kernels on {', '.join(sorted(map(str, found)))}")
    found = found or devices(Extern)
    return found.pop() if len(found) == 1 else torch.device("cpu")
