from __future__ import annotations

import ctypes
import os

import pytest
import torch

from jitney.cache.store import DiskCache
from jitney_llvm_cpu import shims as shims_module
from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.shims import SHIMS, Blobs, Shims, dtype_code, ir, shims, trial
from jitney_llvm_cpu.target import Target

ALL = frozenset(SHIMS)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)


@pytest.fixture(scope="module")
def engine():
    return Engine(Target.host())


@pytest.fixture(scope="module")
def library(engine):
    found = shims(engine)
    if found.names != ALL:
        pytest.skip(found.problem)
    return engine.compile(ir(ALL) + "".join(shims_module._exported(name, SHIMS[name]) for name in ALL))


@pytest.fixture(autouse=True)
def forget():
    yield
    shims.cache_clear()


def call(library, name, *tensors, numbers=()):
    blobs = Blobs(*tensors)
    types = [ctypes.c_double] * SHIMS[name].numbers
    code = library.function(f"run_{name}", ctypes.c_void_p, *types, result=ctypes.c_int32)(blobs.array, *numbers)
    return code


def tensor(*sizes, dtype):
    return torch.randint(-4, 5, sizes).to(dtype)


def test_torch_on_linux_has_them_all(engine):
    if os.name == "posix" and torch.__version__.startswith(("2.11", "2.12", "2.13")):
        assert shims(engine) == Shims(ALL, "")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(ALL))
def test_products_are_torchs(library, name, dtype):
    batch = (3,) if name.endswith("bmm") else ()
    a, b = tensor(*batch, 5, 7, dtype=dtype), tensor(*batch, 7, 4, dtype=dtype)
    added = [tensor(*batch, 5, 4, dtype=dtype)] if SHIMS[name].tensors == 4 else []
    numbers = {"beta": 2.0, "alpha": 3.0} if added else {}
    if dtype == torch.int64:
        numbers = {key: int(value) for key, value in numbers.items()}
    expected = getattr(torch, name)(*added, a, b, **numbers)
    result = torch.full_like(expected, 9)
    assert call(library, name, result, *added, a, b, numbers=numbers.values()) == 0
    assert torch.equal(result, expected)


def test_any_strides_will_do(library):
    a, b = tensor(7, 5, dtype=torch.float32).t(), tensor(14, 8, dtype=torch.float32)[::2, ::2]
    row = tensor(4, dtype=torch.float32).expand(5, 4)
    whole = torch.full((5, 9), 9.0)
    assert call(library, "addmm", whole[:, 1:8:2], row, a, b, numbers=(1.0, 1.0)) == 0
    assert torch.equal(whole[:, 1:8:2], torch.addmm(row, a, b))
    assert torch.equal(whole[:, ::2], torch.full((5, 5), 9.0))


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_products(library, m, k, n):
    result = torch.full((m, n), 9.0)
    assert call(library, "mm", result, torch.ones(m, k), torch.ones(k, n)) == 0
    assert torch.equal(result, torch.full((m, n), float(k)))


def test_what_torch_refuses_is_a_code(library, capfd):
    result = torch.zeros(2, 2)
    assert call(library, "mm", result, torch.ones(2, 3), torch.ones(2, 2)) != 0
    assert call(library, "mm", result, torch.ones(2, 3), torch.ones(3, 2)) == 0
    assert torch.equal(result, torch.full((2, 2), 3.0))


def test_a_handle_that_cannot_be_made_is_a_code(library, capfd):
    blobs = Blobs(torch.zeros(2, 2), torch.ones(2, 3), torch.ones(3, 2))
    blobs.array[2].dtype = 123456
    function = library.function("run_mm", ctypes.c_void_p, result=ctypes.c_int32)
    assert function(blobs.array) != 0
    blobs.array[2].dtype = dtype_code(torch.float32)
    assert function(blobs.array) == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_handles_are_given_back(library):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    tensors = torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1)
    blobs = Blobs(*tensors)
    function = library.function("run_mm", ctypes.c_void_p, result=ctypes.c_int32)
    for _ in range(1000):
        function(blobs.array)
    before = resident()
    for _ in range(20_000):
        function(blobs.array)
    # A tensor takes some 300 bytes: 60,000 of them would be 4,000 pages.
    assert resident() - before < 500


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def replace(monkeypatch, name, function):
    """Have one of the C library's or torch's functions in the place of a shim."""
    monkeypatch.setitem(symbols._registered, name, symbols.find(function))


@needs_fork
@pytest.mark.parametrize(
    ("function", "problem"),
    [("abort", "crashed with signal"), ("aoti_torch_device_type_cpu", "mm computes something else")],
)
def test_a_function_that_crashes_or_does_otherwise_is_caught(tmp_path, monkeypatch, function, problem):
    replace(monkeypatch, "aoti_torch_cpu_mm_out", function)
    caught = shims(Engine(Target.host(), DiskCache(tmp_path)))
    assert caught.names == frozenset() and problem in caught.problem
    monkeypatch.setattr(shims_module, "trial", lambda *arguments: pytest.fail("tried again"))
    assert shims(Engine(Target.host(), DiskCache(tmp_path))) == caught


@needs_fork
def test_a_function_that_hangs_is_caught_and_tried_again_another_time(tmp_path, monkeypatch):
    monkeypatch.setattr(shims_module, "_TRIAL_S", 0.3)
    replace(monkeypatch, "aoti_torch_cpu_bmm_out", "pause")
    engine = Engine(Target.host(), DiskCache(tmp_path))
    assert "more than" in shims(engine).problem
    monkeypatch.undo()
    shims.cache_clear()
    assert shims(engine).names == ALL


@needs_fork
def test_the_trial_itself_passes(engine):
    assert trial(engine, ALL) == ("", True)


@pytest.mark.parametrize(
    ("missing", "names", "problem"),
    [
        ("aoti_torch_cpu_bmm_out", ALL - {"bmm"}, "does not export bmm"),
        ("aoti_torch_create_tensor_from_blob", frozenset(), "no functions to make tensors"),
    ],
)
def test_what_torch_does_not_export_is_not_offered(engine, monkeypatch, missing, names, problem):
    find = symbols.find
    monkeypatch.setattr(symbols, "find", lambda name: None if name == missing else find(name))
    shims.cache_clear()
    found = shims(engine)
    assert found.names == names and problem in found.problem


def test_no_names_are_no_text():
    assert ir(frozenset()) == ""
