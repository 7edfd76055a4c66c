"""For the tests of the core and of all plugins: nothing from disk, and triton_gpu on the CPU where there is no GPU.

Triton and the plugin ask TRITON_INTERPRET when they are imported, which torch.compile does, too. So it is set here,
before any test module is imported: in this process triton_gpu is then a backend for the CPU; tests that name no backend
take ``"auto"`` at most, which asks llvm_cpu first. Programs that tests start do not inherit it.
"""

import importlib.util
import os

import torch

os.environ.setdefault("JITNEY_CACHE", "0")
os.environ.setdefault("JITNEY_VERIFY", "1")  # every representation checks itself while the tests run

if (
    importlib.util.find_spec("triton")
    and importlib.util.find_spec("jitney_triton_gpu")
    and not torch.cuda.is_available()
):
    from triton_interpreter import interpret_triton

    before = os.environ.get("TRITON_INTERPRET")
    interpret_triton()
    if before is None:
        del os.environ["TRITON_INTERPRET"]
