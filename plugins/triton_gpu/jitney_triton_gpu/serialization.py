"""A compiled graph on its way to another process: the wrapper's text, the kernels' text, and their machine code.

There it needs no Triton, and none is imported: only the driver, to load the code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jitney.backends import CompileRequest, SerializedGraph, build_function
from jitney.backends.devices import raw_stream
from jitney.cache.digest import NotStorable
from jitney.cache.recipes import Reader, Stale, Writer
from jitney_lowering import PREPARE, with_numbers
from jitney_lowering.index import Size, index
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.cuda_graphs.recorded import Traits, replayed
from jitney_triton_gpu.device import INTERPRETED, Memory, on_device
from jitney_triton_gpu.images import Image, Launcher


@dataclass(frozen=True)
class Made:
    """What a compiled graph is made of.

    Args:
        source: the wrapper's text, which defines ``run``.
        namespace: its globals.
        allocation: what it calls the functions of ``Memory``, by name.
        module: the kernels' text.
        functions: what is launched, by its name in the wrapper.
        device: where.
        relaxed: may a product and a sum be rounded once?
        traits: for a graph that is recorded.
        places: of results that are numbers which the text's ``prepare`` computes; see ``HostNumbers``.
    """

    source: str
    namespace: Mapping[str, Any]
    allocation: Mapping[str, str]
    module: str
    functions: Mapping[str, Function]
    device: torch.device
    relaxed: bool
    traits: Traits | None
    places: tuple[int, ...] = ()

    def serialize(self) -> SerializedGraph:
        """What ``load`` makes the function again of; called after the first run."""
        known = {name: self.namespace[name] for name in (*self.allocation, *self.functions)}
        writer = Writer(known={**known, "raw_stream": raw_stream})
        space = writer.space(self.source, self.namespace)
        blobs = [] if INTERPRETED else [self._image(name).code for name in self.functions]
        data = {
            "machine": machine(self.device),
            "source": self.source,
            "space": space,
            "objects": writer.objects,
            "allocation": dict(self.allocation),
            "module": self.module,
            "functions": {name: self._row(name, f) for name, f in self.functions.items()},
            "device": str(self.device),
            "relaxed": self.relaxed,
            "traits": None if self.traits is None else self._traits(self.traits),
            "places": list(self.places),
        }
        return SerializedGraph(data, (*blobs, *writer.blobs))

    def _image(self, entry: str) -> Image:
        found = getattr(self.namespace[entry], "image", None)
        if not isinstance(found, Image):
            raise NotStorable(f"the kernel {entry}, whose machine code nobody has")
        return found

    def _row(self, entry: str, f: Function) -> dict[str, Any]:
        parameters = [[p.name, p.kind, str(p.dtype).removeprefix("torch.")] for p in f.parameters]
        row = {
            "name": f.name,
            "parameters": parameters,
            "blocks": dict(f.blocks),
            "warps": f.warps,
            "wide": f.wide,
            "asserts": f.asserts,
        }
        if not INTERPRETED:
            row["image"] = [*self._image(entry).facts]
        return row

    def _traits(self, traits: Traits) -> list[Any]:
        first = (traits.dynamic, traits.launches, traits.automatic, traits.seen, traits.trains)
        return [sorted(traits.written), *first, traits.multiplies, traits.needed]


def machine(device: torch.device) -> str:
    """What the code of a device depends on."""
    if device.type != "cuda":
        return "the interpreter" if INTERPRETED else "no kernels"
    return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)} {torch.version.cuda}"


def load(serialized: SerializedGraph, request: CompileRequest) -> Callable[..., Any]:
    """The function again; see ``Backend.load``."""
    data = serialized.data
    device = torch.device(data["device"])
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise Stale(f"there is no {device}")
    if data["machine"] != machine(device):
        raise Stale("the GPU, or CUDA, is another one")
    functions = {entry: _function(row) for entry, row in data["functions"].items()}
    count = 0 if INTERPRETED else len(functions)
    blobs, rest = serialized.blobs[:count], serialized.blobs[count:]
    entries = _entries(data, functions, blobs, device, request.frame)
    known = {name: getattr(Memory, function) for name, function in data["allocation"].items()}
    namespace = Reader(data["objects"], rest, {**known, **entries, "raw_stream": raw_stream}).space(data["space"])
    filename = f"<jitney kernels of {request.frame} {id(namespace):x}>"
    run: Any = build_function(data["source"], filename, namespace, "run")
    run.boxed, run.filled = namespace.get("boxed"), frozenset()
    traits = None
    if data["traits"] is not None:
        written, *others = data["traits"]
        traits = Traits(frozenset(written), *others)
    shared = (data["allocation"], data["module"], functions, device, data["relaxed"], traits, tuple(data["places"]))
    made = Made(data["source"], namespace, *shared)
    return finished(run, made, request)


def finished(run: Callable[..., Any], made: Made, request: CompileRequest) -> Callable[..., Any]:
    """The function on its device, recorded if that was asked for, which knows how to be kept."""
    guarded: Any = on_device(run, made.device)
    if made.traits is not None:
        guarded = replayed(guarded, made.device, made.traits, request)
    prepare = made.namespace.get(PREPARE)
    if prepare is not None:
        guarded = with_numbers(guarded, prepare, made.places)
    guarded.serialize = made.serialize
    whole: Callable[..., Any] = guarded
    return whole


def _function(row: Mapping[str, Any]) -> Function:
    parameters = tuple(
        Parameter(name, kind, Size(name) if kind == "size" else name, getattr(torch, dtype))
        for name, kind, dtype in row["parameters"]
    )
    name, blocks, warps = row["name"], row["blocks"], row["warps"]
    return Function(name, parameters, "", blocks, index(1), warps, row["wide"], asserts=row["asserts"])


def _entries(
    data: Mapping[str, Any],
    functions: Mapping[str, Function],
    blobs: tuple[bytes, ...],
    device: torch.device,
    name: str,
) -> dict[str, Callable[..., None]]:
    """What the wrapper calls."""
    if INTERPRETED:
        from jitney_triton_gpu.module import load as load_module

        return load_module(data["module"], name, functions, device, data["relaxed"])
    made = {}
    for (entry, f), code in zip(functions.items(), blobs, strict=True):
        again = functools.partial(_compiled, data["module"], name, f, device, data["relaxed"])
        image = Image(code, *data["functions"][entry]["image"])
        made[entry] = Launcher(f, image, device.index or 0, again).function()
    return made


def _compiled(module: str, name: str, function: Function, device: torch.device, relaxed: bool) -> Image:
    """For any addresses."""
    from jitney_triton_gpu.launch import image, target_of
    from jitney_triton_gpu.module import executed

    kernel = executed(module, name)[function.name]
    return image(function, kernel, target_of(device), aligned=False, relaxed=relaxed)
