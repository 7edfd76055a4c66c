"""``warnings.warn`` in captured code: the warning waits, like a pending write, until the graph has run.

Its place is known when the frame is captured. Whether it is shown is decided when it is due, by the filters of then;
that they do not make it an exception is guarded.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.resume import origin
from jitney.capture.interpreter.signals import Break
from jitney.capture.python.c_boundary import specialise
from jitney.capture.tables import Args, FunctionTable, Kwargs

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()


@dataclass
class LateWarning:
    """A warning from a place in the program, in the module of that name."""

    text: str
    category: type[Warning]
    filename: str
    lineno: int
    module: str

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        return ["call", f"{__name__}:LateWarning", [writer.ref(part) for part in astuple(self)]]

    def __call__(self) -> bool:
        """Do the filters of now not make an exception of it? Asked as ``warnings.warn_explicit`` does."""
        for action, text, category, module, line in warnings.filters:
            named = _matches(text, self.text) and _matches(module, self.module)
            if named and issubclass(self.category, category) and line in (0, self.lineno):
                return action != "error"
        return True

    def warn(self) -> None:
        """Give the warning, as if from its place."""
        registry = vars(sys.modules[self.module]).setdefault("__warningregistry__", {})
        warnings.warn_explicit(self.text, self.category, self.filename, self.lineno, self.module, registry)


def _matches(pattern: Any, text: str) -> bool:
    return pattern is None or (pattern == text if isinstance(pattern, str) else pattern.match(text) is not None)


@special(warnings.warn)
def _warn(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    named = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    text, category = specialise(named.pop("message", None)), named.pop("category", None) or UserWarning
    depth = specialise(named.pop("stacklevel", 1))
    if type(text) is not str or not isinstance(category, type) or any(v is not None for v in named.values()):
        raise Break("a warning of more than a text and a class", "warn outside the compiled function")
    frames = vm.frames[-max(depth, 1) :]
    if len(frames) < depth or any(f.name == "forward" for f in frames[1:]):  # torch's frames are not among ours
        raise Break("a warning that names the caller of compiled code", "warn outside the compiled function")
    code, at = origin(frames[0].info.code, frames[0].at)
    module = str(frames[0].globals.get("__name__"))
    warning = LateWarning(text, category, code.co_filename, decode(code).instrs[at].line or 0, module)
    if vars(sys.modules.get(module, sys)) is not frames[0].globals or not warning():
        raise Break("a warning that is an exception here", "warn outside the compiled function")
    vm.world.guard(vm.world.const(warning), "true", "{v}()")
    vm.warned.append(warning)
