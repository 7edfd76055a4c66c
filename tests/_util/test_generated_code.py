from __future__ import annotations

import gc
import linecache
import traceback

import pytest
import torch
from helpers import compile_fn

from jitney._util.generated_code import build


def test_tracebacks_show_the_text_as_long_as_the_function_lives():
    function = build("def f(x):\n    return 1 / x\n", "<jitney test>", {}, "f")
    try:
        function(0)
    except ZeroDivisionError:
        assert "return 1 / x" in traceback.format_exc()
    assert linecache.getline("<jitney test>", 2) == "    return 1 / x\n"
    del function
    gc.collect()
    assert "<jitney test>" not in linecache.cache


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_leave_no_text_behind(backend):
    gc.collect()
    before = {name for name in linecache.cache if name.startswith("<jitney")}
    compiled = compile_fn(lambda x: (x * 2).sum(), backend=backend)
    compiled(torch.ones(3, requires_grad=True)).backward()
    assert {name for name in linecache.cache if name.startswith("<jitney")} > before
    del compiled
    gc.collect()
    assert {name for name in linecache.cache if name.startswith("<jitney")} <= before
