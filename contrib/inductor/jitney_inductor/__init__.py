"""torch's Inductor behind jitney: the kernels of torch.compile under another capture and another split.

So that a difference in speed or numbers between jitney and torch.compile can be told apart: is it the front end or
the kernels?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jitney.backends import Backend, lazy_function
from jitney_inductor.options import InductorOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


def lacks() -> Sequence[str]:
    """What Inductor needs and this machine has not: a C++ compiler, for the CPU's kernels."""
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except (exc.InvalidCxxCompiler, OSError) as error:
        return [f"no C++ compiler that torch's Inductor finds ({type(error).__name__})"]
    return []


backend = Backend(
    name="inductor",
    compile=lazy_function("jitney_inductor.compiler:compile_graph"),
    level="aten",
    options=InductorOptions,
    decompositions=lazy_function("jitney_inductor.compiler:aten_decompositions"),
    version="0.1.0",
    lacks=lacks,
)
