"""The c_loops backend: kernels in C, made by the system's compiler. Serial, small, right: an example to start from."""

from __future__ import annotations

from jitney.backends import Backend, lazy_function
from jitney_c_loops.library import lacks
from jitney_c_loops.options import CLoopsOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

backend = Backend(
    name="c_loops",
    compile=lazy_function("jitney_c_loops.compiler:compile_graph"),
    level="aten",
    device_types=("cpu",),
    options=CLoopsOptions,
    decompositions=lazy_function("jitney_c_loops.compiler:aten_decompositions"),
    version="0.1.0",
    lacks=lacks,
)
