"""The C functions that make their results: what is tried of them, and what a description says."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch

from jitney.cache.store import DiskCache
from jitney_llvm_cpu import makers as makers_module
from jitney_llvm_cpu import shims, symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.makers import MAKERS, Description, ir, makers
from jitney_llvm_cpu.onednn import native, native_code
from jitney_llvm_cpu.shims import Shims
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.threads import threads

ALL = frozenset(MAKERS)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
SYMBOLS = ["aoti_torch_cpu_convolution", "aoti_torch_create_tensor_from_blob", "aoti_torch_get_strides"]


@pytest.fixture(scope="module")
def library():
    engine = Engine(Target.host())
    if makers(engine).names != ALL:
        pytest.skip(makers(engine).problem)
    return engine.compile(ir(ALL))


@pytest.fixture(autouse=True)
def forget():
    yield
    makers.cache_clear()


def run(library, x, weight, bias, numbers, stride, dtype=torch.float32):
    call = Description((x, weight, bias), numbers, [(stride, dtype)])
    function = library.function("jitney_make_convolution", *[ctypes.c_void_p] * 3, result=ctypes.c_int32)
    code = function(call.data, call.desc, call.made)
    return native.tensors_of([call.made[0]])[0] if code == 0 else code


@needs_fork
def test_torch_on_linux_has_them_all():
    if torch.__version__.startswith(("2.11", "2.12", "2.13")):
        assert makers(Engine(Target.host())) == Shims(ALL, "")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_result_lies_as_is_wanted(library, dtype, bias):
    x, weight = torch.randn(2, 4, 6, 5).to(dtype), torch.randn(3, 4, 2, 2).to(dtype)
    added = torch.randn(3).to(dtype) if bias else None
    numbers = [[1, 2], [0, 1], [2, 1], False, [0, 0], 1]
    expected = torch.convolution(x, weight, added, *numbers)
    for wanted in (expected, expected.to(memory_format=torch.channels_last), expected.transpose(0, 3).contiguous()):
        order = wanted.stride() if wanted.shape == expected.shape else wanted.transpose(0, 3).stride()
        got = run(library, x, weight, added, numbers, order, dtype)
        assert got.stride() == order
        torch.testing.assert_close(got, expected)


def test_other_strides_of_single_elements_are_no_copy(library):
    x, weight = torch.randn(1, 4, 6, 5), torch.randn(3, 4, 2, 2)
    numbers = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    got = run(library, x, weight, None, numbers, (7, 20, 4, 1))
    assert got.stride() == (7, 20, 4, 1)
    torch.testing.assert_close(got, torch.convolution(x, weight, None, *numbers))


def test_the_result_has_the_dtype_that_is_wanted(library):
    x, weight = torch.randn(1, 4, 6, 5), torch.randn(3, 4, 2, 2)
    numbers = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    got = run(library, x, weight, None, numbers, (60, 20, 4, 1), torch.float64)
    assert got.dtype is torch.float64
    torch.testing.assert_close(got, torch.convolution(x, weight, None, *numbers).double())


def test_what_torch_refuses_is_a_code(library, capfd):
    x, weight = torch.randn(2, 4, 6, 5), torch.randn(3, 5, 2, 2)
    assert run(library, x, weight, None, [[1, 1], [0, 0], [1, 1], False, [0, 0], 1], (1, 1, 1, 1)) != 0


@needs_fork
@pytest.mark.parametrize(
    ("function", "problem"), [("abort", "crashed with signal"), ("aoti_torch_device_type_cpu", "something else")]
)
@pytest.mark.parametrize("name", [SYMBOLS[0], SYMBOLS[2]])
def test_a_function_that_crashes_or_does_otherwise_is_caught(tmp_path, monkeypatch, name, function, problem):
    monkeypatch.setitem(symbols._registered, name, symbols.find(function))
    caught = makers(Engine(Target.host(), DiskCache(tmp_path)))
    assert caught.names == (frozenset({"linear"}) if name == SYMBOLS[0] else frozenset())
    assert problem in caught.problem or "crashed" in caught.problem
    monkeypatch.setattr(shims, "_in_child", lambda attempts: pytest.fail("tried again"))
    makers.cache_clear()
    assert makers(Engine(Target.host(), DiskCache(tmp_path))) == caught


@pytest.mark.parametrize("missing", SYMBOLS)
def test_what_torch_does_not_export_is_not_offered(monkeypatch, missing):
    find = symbols.find
    monkeypatch.setattr(symbols, "find", lambda name: None if name == missing else find(name))
    found = makers(Engine(Target.host()))
    assert found.names == (frozenset({"linear"}) if missing == SYMBOLS[0] else frozenset())
    assert found.problem


@needs_fork
@pytest.mark.parametrize(
    ("name", "function", "left"),
    [
        (None, "", {"convolution", "packed"}),
        (native_code.OPERATOR, "abort", {"convolution"}),
        (native_code.OPERATOR, "aoti_torch_device_type_cpu", {"convolution"}),
        ("aoti_torch_cpu_convolution", "abort", set()),
    ],
)
def test_convolutions_are_called_from_native_code_as_far_as_their_trials_pass(monkeypatch, name, function, left):
    engine = Engine(Target.host())
    parallel = threads(engine).ir
    if name is not None:
        monkeypatch.setitem(symbols._registered, name, symbols.find(function))
    monkeypatch.setattr(symbols, "register", lambda name, address: None)
    monkeypatch.setattr(native, "_libraries", [])
    assert native._link(engine, parallel) == left


def test_without_handles_in_python_nothing_is_called_from_native_code(monkeypatch):
    engine = Engine(Target.host())
    monkeypatch.setattr(native, "_aoti", None)
    assert native._link(engine, threads(engine).ir) == frozenset()


def test_a_description_has_all_numbers():
    x, row = torch.zeros(2, 3), torch.zeros(3)
    call = Description((x, None, row), [[1, 2], 5, True], [((4, 1), torch.float32)])
    code = shims.dtype_code(torch.float32)
    assert [*call.desc] == [2, 1, 2, 5, 1, code, 2, 2, 3, 3, 1, -1, 0, code, 1, 3, 1, code, 2, 4, 1]
    assert [*call.data] == [x.data_ptr(), None, row.data_ptr()]
    assert makers_module.ABSENT == -1
