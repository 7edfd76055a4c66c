"""How a wrapper runs kernels and operators: one native call for each run of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch

from jitney_llvm_cpu import shims
from jitney_llvm_cpu.emit import Entry, Place, emit_module
from jitney_llvm_cpu.emit.calls import Call, Make
from jitney_llvm_cpu.engine import Dump, Engine, Library
from jitney_llvm_cpu.failures import raise_failed
from jitney_llvm_cpu.machine import Machine, engine, machine
from jitney_llvm_cpu.onednn import calls
from jitney_llvm_cpu.onednn.native import address_of, handles, tensors_of
from jitney_llvm_cpu.onednn.packed import PackedConvolution
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_llvm_cpu.products import call_of, shims_of
from jitney_lowering import Wrapper, sizes_in
from jitney_lowering.index import index
from jitney_lowering.ir import Extern, Kernel


class Native:
    """Launches runs of kernels and operators as one native call each (a ``Launch``); code is made at the end."""

    def __init__(self, options: LlvmCpuOptions) -> None:
        self.options = options
        self.entries: list[Entry] = []

    @property
    def machine(self) -> Machine:
        """What this machine offers."""
        return machine(self.options.vector_bytes)

    def __call__(self, items: Sequence[Kernel | Extern], wrapper: Wrapper) -> list[str]:
        """Python lines that call the entry of these items."""
        pointers: dict[str, int] = {}
        places: dict[str, Place] = {}
        run = [self._item(item, wrapper, pointers, places) for item in items]
        made = [item.result.buffer for item in run if isinstance(item, Make)]
        last: dict[str, int] = {}
        for name in sorted({name for item in run for name in item.buffers}):
            address, offset = wrapper.place(name)
            inside = address[1:-1] if address.startswith("<") else ""
            number = made.index(inside) if inside else pointers.setdefault(address, len(pointers))
            places[name] = Place(number, offset, bool(inside))
            if inside:
                last[inside] = max(last.get(inside, 0), *(n for n, item in enumerate(run) if name in item.buffers))
        handed = wrapper.handed_over()
        dropped: dict[int, list[str]] = {}
        for name in made:
            if name not in handed:
                dropped.setdefault(last[name], []).append(name)
        before, after = [], []
        room = None
        if handed:
            before = [f"room = {wrapper.constant(handles)}({len(handed)})"]
            address = f"{wrapper.constant(address_of)}(room)"
            room = Place(pointers.setdefault(address, len(pointers)), index(0)), tuple(handed)
            after = [f"{', '.join(handed.values())}, = {wrapper.constant(tensors_of)}(room)"]
        sizes = sizes_in(run, [place.offset for place in places.values()])
        entry = f"e{len(self.entries)}"
        self.entries.append(Entry(entry, run, places, sizes, made, dropped, room))
        pack = wrapper.constant(struct.Struct(f"{len(pointers)}q").pack)
        given = "b''"
        if sizes:
            given = f"{wrapper.constant(struct.Struct(f'{len(sizes)}q').pack)}({', '.join(map(wrapper.size, sizes))})"
        threads = wrapper.constant(torch.get_num_threads)
        text = f"{entry}({pack}({', '.join(pointers)}), {given}, {threads}())"
        may_fail = any(not isinstance(item, Kernel) for item in run)
        return [*before, f"if {text}: {wrapper.constant(raise_failed)}()" if may_fail else text, *after]

    def _item(
        self, item: Kernel | Extern, wrapper: Wrapper, pointers: dict[str, int], places: dict[str, Place]
    ) -> Kernel | Call | Make:
        if isinstance(item, Kernel):
            return item
        if item.into:
            return call_of(item, wrapper.program)
        made = calls.call_of(item, wrapper.program, f"state of {item.buffers[0]}")
        if made.state:
            address = f"{wrapper.constant(PackedConvolution())}.address"
            places[made.state] = Place(pointers.setdefault(address, len(pointers)), index(0))
        return made

    def text(self) -> str:
        """LLVM IR of all entries."""
        here = self.machine
        declared = shims.ir(shims_of([item for entry in self.entries for item in entry.items]))
        return emit_module(
            self.entries,
            here.target,
            grain=self.options.grain,
            math=here.math,
            parallel=here.parallel,
            calls=declared,
        )

    def link(self, text: str, dump: Dump | None) -> Library | None:
        """The code of all entries; None without any."""
        if not self.entries:
            return None
        own = engine(self.options.vector_bytes, self.options.cache, self.options.cache_dir)
        if dump is not None:
            own = Engine(own.target, None, dump=dump)
        return own.compile(text)
