from __future__ import annotations

import ctypes
import math
import sys

import pytest
import torch

from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.target import Target


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(symbols, "_registered", {})


def test_functions_of_the_c_library_are_found():
    address = symbols.find("cos")
    assert address is not None
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(1.0) == math.cos(1.0)


def test_what_nobody_has_is_not_found():
    assert symbols.find("jitney_nobody_has_this") is None


def test_registered_addresses_are_reached_from_compiled_code(registered):
    cell = ctypes.c_int64(41)
    symbols.register("jitney_test_cell", ctypes.addressof(cell))
    text = "@jitney_test_cell = external global i64\n" + (
        "define i64 @f() {\n %v = load i64, ptr @jitney_test_cell\n %w = add i64 %v, 1\n ret i64 %w\n}"
    )
    library = Engine(Target.host()).compile(text)
    assert library.function("f", result=ctypes.c_int64)() == 42


def test_a_registered_address_does_not_change(registered):
    symbols.register("name", 64)
    symbols.register("name", 64)
    with pytest.raises(ValueError, match="another address"):
        symbols.register("name", 128)
    assert symbols.find("name") == 64


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process's map")
def test_torchs_own_libraries_come_first_and_no_second_copy_is_loaded():
    symbols.find("omp_get_thread_num")
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libtorch_cpu" in line}
    assert loaded == {str(symbols.torch_library())}


def test_the_identity_of_torchs_library_names_its_version():
    assert torch.__version__ in symbols.torch_identity()
    assert symbols.torch_identity() == symbols.torch_identity()
