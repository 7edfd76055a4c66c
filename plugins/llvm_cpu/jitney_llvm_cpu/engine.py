"""LLVM IR text to native functions: optimise, make object code, keep that on disk, link it into the process.

What is linked is always an object file, made just now or found in the cache, so both ways end in the same code and a
warm start neither parses nor optimises anything.

The pipeline is short because the emitter writes explicit vectors, unrolled, with what is invariant outside of its
loop: calls of ``alwaysinline`` functions are inlined, stack slots become registers, and LLVM's code generator, which
hoists and shares by itself, does the rest, at its first level and without rewriting loop indices. CPU milliseconds for
the code of a transformer layer and a small convolutional net, forward and backward (111 functions, 6,000 lines of IR;
LLVM 22, one core of a Zen 3):

    parse 17, verify 3, passes: light 4, full some 300 (LLVM's O2 without vectorisers)
    code generation at level            1     2     3
    with the rewriting of indices     345   395   458
    without                           283   340   363

The run times of all of them are the same within 2% (layer norm, GELU, softmax, batch norm, transposes; inference and
training), and so are those of the full pipeline. A function costs at least 0.35 ms, a module 1 ms, linking 0.3 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, Literal

import llvmlite
import llvmlite.binding as llvm

from jitney.cache.store import DiskCache
from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.target import Target

Pipeline = Literal["light", "full"]
Dump = Callable[[str, str], None]

_NAME = r'@(?:"([^"]+)"|([\w.$-]+))'
_DECLARED = re.compile(rf"^declare\b[^@\n]*{_NAME}\s*\(|^{_NAME}\s*=\s*external\b", re.MULTILINE)
_DEFINED = re.compile(rf"^define\b(?!\s+(?:internal|private)\b)[^@\n]*{_NAME}\s*\(", re.MULTILINE)

# One thread at a time is in LLVM. A fork waits for it, so that the child finds LLVM in order and every lock free.
# Reentrant, since the garbage collector may drop a library while the same thread compiles another.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_library_number = itertools.count()

# The versions of LLVM in which ``-disable-lsr`` was seen.
_WITH_LSR_OPTION = (20, 22)


class Library:
    """Linked code, mapped for as long as this object or a function made from it lives."""

    def __init__(
        self, jit: llvm.LLJIT, tracker: llvm.ResourceTracker, names: Sequence[str], from_cache: bool, key: str = ""
    ) -> None:
        self._jit = jit  # the code goes away with its JIT
        self._tracker = tracker
        self.names = tuple(names)
        self.from_cache = from_cache
        self.key = key  # of the object code in the cache
        # Not __del__, which at the end of the process would meet an llvmlite that is half gone.
        weakref.finalize(self, _unmap, tracker).atexit = False

    def address(self, name: str) -> int:
        """Where a function of the module begins. Raises ``KeyError`` for what it does not define (or is internal)."""
        if name not in self.names:
            raise KeyError(f"no function {name!r} in this library; it has {', '.join(self.names) or 'none'}")
        return int(self._tracker[name])

    def function(self, name: str, *arguments: Any, result: Any = None, hold_gil: bool = False) -> Callable[..., Any]:
        """A function as a callable that keeps the library alive; other threads run meanwhile.

        Args:
            name: of the function.
            arguments: ctypes types of its arguments.
            result: ctypes type of what it returns, None for void.
            hold_gil: keep the GIL during the call: for what takes less than a microsecond, or calls back into Python.
        """
        prototype = ctypes.PYFUNCTYPE if hold_gil else ctypes.CFUNCTYPE
        function = prototype(result, *arguments)(self.address(name))
        function.library = self  # type: ignore[attr-defined]
        return function


class Engine:
    """Compiles for one target.

    Args:
        target: the machine and vector width; only the machine matters here.
        cache: where object code is kept; None keeps nothing.
        pipeline: ``light``, or ``full`` for LLVM's own O2 passes (without its vectorisers and unrolling), for code with
            redundant loads or invariant work inside of loops.
        level: of code generation, 1 to 3.
        dump: called with ``llvm_ir``, ``llvm_ir_optimised`` and ``assembly`` and a text each, for each module;
            what is dumped is compiled anew, whatever the cache has.
    """

    def __init__(
        self,
        target: Target,
        cache: DiskCache | None = None,
        *,
        pipeline: Pipeline = "light",
        level: int = 1,
        dump: Dump | None = None,
    ) -> None:
        self.target = target
        self.cache = cache
        self.pipeline = pipeline
        self.level = level
        self.dump = dump
        with _lock:
            self._machine, self._jit = _machine_and_jit(target.triple, target.cpu, target.features, level)
            self._layout = str(self._machine.target_data)

    def key(self, ir_text: str, key_extra: str = "") -> str:
        """What the object code of a module depends on, as 64 hexadecimal digits."""
        target = self.target
        parts = (
            ir_text,
            key_extra,
            *(target.triple, target.cpu, target.features),
            f"{self.pipeline} {self.level} {_versions()}",
        )
        digest = hashlib.sha256()
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()

    def compile(self, ir_text: str, key_extra: str = "") -> Library:
        """A module's text, linked. Functions that it declares are found by ``symbols.find``.

        Args:
            ir_text: LLVM IR without target lines.
            key_extra: anything else that the text's meaning depends on, for the cache's key.

        Raises:
            RuntimeError: the text is not valid IR.
            LookupError: a function that it declares is in no library of the process.
        """
        key = self.key(ir_text, key_extra)
        image = self.cache.load(key) if self.cache is not None and self.dump is None else None
        with _lock:
            if image is not None:
                try:
                    return self._link(image, from_cache=True, key=key)
                except (RuntimeError, ValueError):  # not linkable here, or not our format: made anew below
                    pass
            image = self._build(ir_text)
            library = self._link(image, from_cache=False, key=key)
        if self.cache is not None:
            self.cache.store(key, image)
        return library

    def link(self, image: bytes, key: str) -> Library:
        """Object code that this engine, or an equal one in another process, has put into its cache.

        Raises:
            LookupError: a function that it needs is in no library of the process.
            RuntimeError, ValueError: it is not linkable here, or not our format.
        """
        with _lock:
            return self._link(image, from_cache=True, key=key)

    def _build(self, ir_text: str) -> bytes:
        """Names defined and needed, one line of JSON, and the object code."""
        names = {"defines": _names(_DEFINED, ir_text), "needs": _needed(ir_text)}
        header = f'target datalayout = "{self._layout}"\ntarget triple = "{self.target.triple}"\n'
        context = llvm.create_context()
        module = llvm.parse_assembly(header + ir_text, context)
        module.verify()
        tuning, passes = _passes(self._machine, self.pipeline)
        passes.run(module, tuning)
        with _without_strength_reduction():
            if self.dump is not None:
                self.dump("llvm_ir", ir_text)
                self.dump("llvm_ir_optimised", str(module))
                # Code generation changes the module, so the assembly is a copy's.
                self.dump("assembly", self._machine.emit_assembly(module.clone()))
            return json.dumps(names).encode() + b"\n" + self._machine.emit_object(module)

    def _link(self, image: bytes, *, from_cache: bool, key: str) -> Library:
        header, _, code = image.partition(b"\n")
        names = json.loads(header)
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        # What LLVM calls on its own account, such as memcpy, is not declared in the text.
        builder.add_current_process()
        for name in names["needs"]:
            address = symbols.find(name)
            if address is None:
                raise LookupError(f"compiled code needs {name!r}, which is in no library of this process")
            builder.import_symbol(name, address)
        for name in names["defines"]:
            builder.export_symbol(name)
        tracker = builder.link(self._jit, f"jitney{next(_library_number)}")
        return Library(self._jit, tracker, names["defines"], from_cache, key)


def _unmap(tracker: llvm.ResourceTracker) -> None:
    with _lock:
        tracker.close()


@functools.cache
def _versions() -> str:
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return f"llvmlite {llvmlite.__version__} LLVM {llvm_version} jitney-llvm-cpu {version('jitney-llvm-cpu')}"


@functools.cache
def _machine_and_jit(triple: str, cpu: str, features: str, level: int) -> tuple[llvm.TargetMachine, llvm.LLJIT]:
    """One for each kind of machine; they are never given back."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small", jit=True
    )
    # JITLink puts code and constants of one library side by side, within reach of the small code model.
    return machine, llvm.create_lljit_compiler(machine, use_jit_link=True)


def _passes(machine: llvm.TargetMachine, pipeline: Pipeline) -> tuple[llvm.PassBuilder, llvm.ModulePassManager]:
    options = llvm.create_pipeline_tuning_options(speed_level=2 if pipeline == "full" else 1)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_interleaving = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    if pipeline == "full":
        return builder, builder.getModulePassManager()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    return builder, passes


@contextlib.contextmanager
def _without_strength_reduction() -> Iterator[None]:
    """Code generation without the pass that rewrites loop indices, which our loops are simple enough to go without.

    The option is the whole process's, so it is put back. LLVM ends the process over an option that it does not know.
    """
    known = llvm.llvm_version_info[0] in _WITH_LSR_OPTION
    if known:
        llvm.set_option("jitney", "-disable-lsr")
    try:
        yield
    finally:
        if known:
            llvm.set_option("jitney", "-disable-lsr=false")


def _names(pattern: re.Pattern[str], text: str) -> list[str]:
    return ["".join(filter(None, found)) for found in pattern.findall(text)]


def _needed(text: str) -> list[str]:
    return sorted(name for name in set(_names(_DECLARED, text)) if not name.startswith("llvm."))
