"""How a wrapper runs kernels and operators: one native call for each run of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import torch

from jitney.cache.recipes import Recipe, Writer, call
from jitney_llvm_cpu import shims
from jitney_llvm_cpu.emit import Entry, Place, emit_module
from jitney_llvm_cpu.emit.calls import Call, Make
from jitney_llvm_cpu.engine import Dump, Engine, Library
from jitney_llvm_cpu.failures import raise_failed
from jitney_llvm_cpu.machine import Machine, engine, machine
from jitney_llvm_cpu.onednn import calls, linear, linear_trial
from jitney_llvm_cpu.onednn.native import address_of, handles, tensors_of
from jitney_llvm_cpu.onednn.packed import PackedConvolution
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_llvm_cpu.products import call_of, shims_of
from jitney_lowering import Wrapper, sizes_in
from jitney_lowering.index import index
from jitney_lowering.ir import Extern, Kernel


class PackedAddresses:
    """Some of a list of addresses as native code reads them; made once for a list that comes again.

    Args:
        positions: which.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = list(positions)
        self.pack = struct.Struct(f"{len(positions)}q").pack
        self.known: tuple[Sequence[int], bytes] | None = None  # one object, as threads may look at it

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        return call(f"{__name__}:PackedAddresses", writer.ref(self.positions))

    def __call__(self, addresses: Sequence[int]) -> bytes:
        """The list itself says that it is known: nobody changes one."""
        known = self.known
        if known is not None and known[0] is addresses:
            return known[1]
        found = self.pack(*map(addresses.__getitem__, self.positions))
        self.known = addresses, found
        return found


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
        own = [address for address in pointers if wrapper.given(address) is None]
        given = [address for address in pointers if wrapper.given(address) is not None]
        numbers = {pointers[address]: number for number, address in enumerate([*own, *given])}
        places = {name: p if p.made else replace(p, pointer=numbers[p.pointer]) for name, p in places.items()}
        if room is not None:
            room = replace(room[0], pointer=numbers[room[0].pointer]), room[1]
        sizes = sizes_in(run, [place.offset for place in places.values()])
        entry = f"e{len(self.entries)}"
        self.entries.append(Entry(entry, run, places, sizes, made, dropped, room))
        packed = f"{wrapper.constant(struct.Struct(f'{len(own)}q').pack)}({', '.join(own)})"
        if given:
            positions = [at for at in map(wrapper.given, given) if at is not None]
            packed += f" + {wrapper.constant(PackedAddresses(positions))}(p)"
        numbered = "b''"
        if sizes:
            pack = wrapper.constant(struct.Struct(f"{len(sizes)}q").pack)
            numbered = f"{pack}({', '.join(map(wrapper.size, sizes))})"
        threads = wrapper.constant(torch.get_num_threads)
        text = f"{entry}({packed}, {numbered}, {threads}())"
        may_fail = any(not isinstance(item, Kernel) for item in run)
        return [*before, f"if {text}: {wrapper.constant(raise_failed)}()" if may_fail else text, *after]

    def _item(
        self, item: Kernel | Extern, wrapper: Wrapper, pointers: dict[str, int], places: dict[str, Place]
    ) -> Kernel | Call | Make:
        if isinstance(item, Kernel):
            return item
        if item.into:
            return call_of(item, wrapper.program)
        if linear.is_product(item):
            return linear.call_of(item, wrapper.program)
        made = calls.call_of(item, wrapper.program, f"state of {item.buffers[0]}")
        if made.state:
            address = f"{wrapper.constant(PackedConvolution())}.address"
            places[made.state] = Place(pointers.setdefault(address, len(pointers)), index(0))
        return made

    @property
    def multiplies(self) -> bool:
        """Are large products oneDNN's, in as many threads as there are now? Never where runs are to be alike."""
        if torch.are_deterministic_algorithms_enabled():
            return False
        tried = engine(self.options.vector_bytes, True, "")
        return "linear" in self.machine.shims and linear_trial.is_faster(tried, torch.get_num_threads())

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
