"""A program under test is the text of a Python module: what is shown, written down and run is the same."""

from __future__ import annotations

import linecache
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitney_testing import compiled_mark

# What a text may set for itself, beside its functions.
SETTINGS = ("SIZES", "OPTIONS", "VALUES", "TRAIN", "SEED")


@dataclass(frozen=True)
class Program:
    """Python source that defines ``program`` and ``inputs``.

    ``inputs()`` returns the list of arguments; with ``SIZES = (3, 5)`` the program is called once for each, with
    ``inputs(3)`` and ``inputs(5)``. What it leaves in the module's names (tensors, lists, modules, numbers) is compared
    as well as what it returns. The text may set:

    - ``OPTIONS``: a dictionary for ``jitney.compile``, such as ``{"dynamic": True}``;
    - ``VALUES = False``: numbers are not compared, as of ``torch.empty``;
    - ``TRAIN = False``: no backward is run from its results;
    - ``compiled`` (``from jitney_testing import compiled``): a decorator for the functions to be compiled, instead of
      ``program`` as a whole.
    """

    source: str

    def __repr__(self) -> str:
        return self.source

    @property
    def filename(self) -> str:
        """Under which its lines show up in tracebacks."""
        return f"<program {zlib.crc32(self.source.encode()):x}>"

    def load(self) -> Loaded:
        """Execute the text anew.

        Raises:
            ValueError: it lacks ``program`` or ``inputs``.
        """
        name = self.filename
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "program"}
        exec(compile(self.source, name, "exec", dont_inherit=True), space)
        missing = [part for part in ("program", "inputs") if not callable(space.get(part))]
        if missing:
            raise ValueError(f"a program is a text that defines {missing[0]}()")
        return Loaded(space)

    @staticmethod
    def read(path: str | Path) -> Program:
        """The program of a file, without what it does when it runs as a script."""
        text = Path(path).read_text(encoding="utf-8")
        return Program(text.partition(MAIN)[0].rstrip() + "\n")

    def runnable(
        self,
        backends: Sequence[str],
        lines: Sequence[str] = (),
        headline: str = "",
        device: str = "cpu",
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a file that fails alone if the program does.

        Args:
            backends: Python expressions.
            lines: what must run first for these, such as imports.
            headline: what it shows, for the docstring.
            device: where its examples are made.
            options: of the backends.
        """
        where = f", device={device!r}" if device != "cpu" else ""
        where += f", options={dict(options)!r}" if options else ""
        doc = [docstring(headline), ""] if headline.strip() else []
        parts = [*doc, self.source.rstrip(), "", "", MAIN, *(f"    {line}" for line in lines)]
        parts.append("    from jitney_testing import Program, assert_same")
        parts.append("")
        parts.append(f"    assert_same(Program.read(__file__), backends=[{', '.join(backends)}]{where})")
        return "\n".join(parts) + "\n"


MAIN = 'if __name__ == "__main__":'


def docstring(text: str) -> str:
    """A text as a module's docstring, whatever is in it: messages quote what programs print."""
    said = text.replace("\\", "/").replace('"', "'").replace("\0", "").strip()
    return f'"""{said}"""'


@dataclass
class Loaded:
    """The namespace of a program that was executed."""

    space: dict[str, Any]

    @property
    def program(self) -> Callable[..., Any]:
        """What runs."""
        found: Callable[..., Any] = self.space["program"]
        return found

    @property
    def options(self) -> Mapping[str, Any]:
        """For ``jitney.compile``."""
        found: Mapping[str, Any] = self.space.get("OPTIONS", {})
        return found

    @property
    def values(self) -> bool:
        """Are numbers compared?"""
        return bool(self.space.get("VALUES", True))

    @property
    def trains(self) -> bool:
        """Does a backward run?"""
        return bool(self.space.get("TRAIN", True))

    @property
    def whole(self) -> bool:
        """Is ``program`` compiled as a whole, rather than what it decorates with ``compiled``?"""
        return self.space.get("compiled") is not compiled_mark.compiled

    def calls(self) -> Iterator[list[Any]]:
        """The arguments of each call."""
        sizes = self.space.get("SIZES", ())
        make = self.space["inputs"]
        for size in sizes:
            yield list(make(size))
        if not sizes:
            yield list(make())

    def state(self) -> dict[str, Any]:
        """What the program can leave in its module."""
        skipped = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
        return {
            name: value
            for name, value in self.space.items()
            if not name.startswith("__")
            and name not in SETTINGS
            and not isinstance(value, skipped)
            and (not callable(value) or hasattr(value, "state_dict"))
            and type(value).__module__ != "__future__"
        }
