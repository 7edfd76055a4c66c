"""Launches through CUDA's driver: what the driver is told, without a driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jitney_triton_gpu import cuda

NO_CONTEXT, FAILS = 201, 1


class Driver:
    """Notes launches: (grid and block and shared memory, stream, attributes, arguments)."""

    def __init__(self, arguments: int) -> None:
        self.launches: list[tuple[list[int], int, int, list[int]]] = []
        self.statuses: list[int] = []
        self.entered = 0
        self.contexts: list[str] = []  # that were pushed
        self.during: Callable[[], None] = lambda: None
        signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)

        def launch(configuration: int, function: int, parameters: int, extra: int) -> int:
            assert function == 77 and extra is None
            self.during()
            shape = list((ctypes.c_uint * 7).from_address(configuration))
            stream, attributes = (ctypes.c_uint64 * 2).from_address(configuration + 32)
            count = ctypes.c_uint.from_address(configuration + 48).value
            places = (ctypes.c_void_p * (arguments + 1)).from_address(parameters)
            given = [ctypes.c_int64.from_address(place or 0).value for place in places]
            self.launches.append((shape, stream, attributes + count, given))
            return self.statuses.pop() if self.statuses else 0

        self.cuLaunchKernelEx = signature(launch)

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.contexts.append(context)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        self.contexts.pop()
        return 0

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        assert self.contexts == ["of 3"]
        return 1 if image == b"bad" else 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = 77
        return 0

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"it was refused"
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver(2)
    monkeypatch.setattr(cuda, "driver", lambda: made)
    monkeypatch.setattr(cuda, "_context", lambda device: f"of {device}")
    monkeypatch.setattr(cuda, "enter", lambda device: setattr(made, "entered", made.entered + 1))
    return made


def launcher() -> Callable[..., None]:
    loaded = cuda.Loaded(3, b"", "k", 1024, 128, 2, 3)
    launch: Callable[..., None] = loaded.launcher(["a", "b"])
    return launch


def test_the_driver_gets_shape_stream_and_arguments(driver: Driver) -> None:
    launch = launcher()
    launch(5, 2**40, 2**63 - 1, -1)
    launch(1, 0, 3, 4)
    launch(0, 0, 3, 4)  # nothing to do
    assert driver.launches == [
        ([5, 1, 1, 128, 1, 1, 1024], 2**40, 0, [2**63 - 1, -1, 0]),
        ([1, 1, 1, 128, 1, 1, 1024], 0, 0, [3, 4, 0]),
    ]


def test_a_launch_within_another_has_arguments_of_its_own(driver: Driver) -> None:
    launch = launcher()

    def other() -> None:
        driver.during = lambda: None
        thread = threading.Thread(target=launch, args=(2, 0, 30, 40))
        thread.start()
        thread.join()

    driver.during = other
    launch(1, 0, 3, 4)
    assert sorted(given for *_, given in driver.launches) == [[3, 4, 0], [30, 40, 0]]


def test_a_thread_without_a_context_gets_one(driver: Driver) -> None:
    launch = launcher()
    before = driver.entered
    driver.statuses = [NO_CONTEXT]
    launch(1, 0, 3, 4)
    assert driver.entered == before + 1
    assert [given for *_, given in driver.launches] == [[3, 4, 0], [3, 4, 0]]


def test_what_the_driver_refuses_is_an_error_with_its_words(driver: Driver) -> None:
    launch = launcher()
    driver.statuses = [FAILS]
    with pytest.raises(cuda.CudaError, match="it was refused"):
        launch(1, 0, 3, 4)
    launch(1, 0, 5, 6)
    assert driver.launches[-1][-1] == [5, 6, 0]


def test_code_is_loaded_in_its_devices_context_which_is_left_again(driver: Driver) -> None:
    launcher()
    assert driver.contexts == [] and driver.entered == 0
    with pytest.raises(cuda.CudaError):
        cuda.Loaded(3, b"bad", "k", 1024, 128, 2, 3)
    assert driver.contexts == []
