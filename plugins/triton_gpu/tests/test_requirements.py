"""What is missing is said, and asked of nobody who does not need it."""

from __future__ import annotations

import importlib.util
import textwrap

import pytest
import torch
from fork_server import run_python

from jitney_triton_gpu import requirements


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with one H200 and all that is needed."""
    monkeypatch.setattr(requirements, "INTERPRETED", False)
    monkeypatch.setattr(requirements, "DRIVER", None)  # the process itself, which can always be loaded
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda n=0: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda n=0: "NVIDIA Testbed")
    monkeypatch.setattr(requirements.metadata, "version", lambda name: "3.7.1")
    return monkeypatch


def lacks() -> tuple[str, ...]:
    return requirements.lacks.__wrapped__()


def test_nothing_is_missing_where_all_is_there(complete: pytest.MonkeyPatch) -> None:
    assert lacks() == ()
    requirements.refuse(lacks())


def test_triton_is_missing(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(importlib.util, "find_spec", lambda name: None)
    assert lacks() == ("Triton is not installed: pip install 'triton>=3.6'",)
    with pytest.raises(RuntimeError, match="triton_gpu cannot work here: Triton is not installed"):
        requirements.refuse(lacks())


@pytest.mark.parametrize(("version", "good"), [("3.5.1", False), ("3.6.0", True), ("3.7.1", True), ("3.8.0", False)])
def test_versions_of_triton(complete: pytest.MonkeyPatch, version: str, good: bool) -> None:
    complete.setattr(requirements.metadata, "version", lambda name: version)
    assert lacks() == (() if good else (f"Triton {version} is installed, 3.6 to 3.7 are supported",))


def test_a_triton_of_unknown_version_is_tried(complete: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise requirements.metadata.PackageNotFoundError(name)

    complete.setattr(requirements.metadata, "version", unknown)
    assert lacks() == ()


def test_torch_without_cuda(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(torch.version, "cuda", None)
    assert lacks() == (f"torch {torch.__version__} is built without CUDA",)


def test_no_gpu(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(torch.cuda, "is_available", lambda: False)
    assert lacks() == ("torch finds no CUDA device",)


def test_an_old_gpu(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(torch.cuda, "get_device_capability", lambda n=0: (7, 0))
    assert lacks() == ("NVIDIA Testbed has compute capability 7.0, 8.0 or later is needed",)


def test_a_new_gpu_beside_an_old_one(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(torch.cuda, "device_count", lambda: 2)
    complete.setattr(torch.cuda, "get_device_capability", lambda n=0: ((7, 0), (9, 0))[n])
    assert lacks() == ()


def test_no_driver(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(requirements, "DRIVER", "libno_such_driver.so.1")
    (problem,) = lacks()
    assert problem.startswith("CUDA's driver library cannot be loaded: libno_such_driver")


def test_the_interpreter_needs_triton_only(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(requirements, "INTERPRETED", True)
    complete.setattr(torch.version, "cuda", None)
    assert lacks() == ()


PROGRAM = """
    import sys

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "triton":
                raise RuntimeError("this Triton is broken")

    sys.meta_path.insert(0, Broken())
    import torch
    import jitney
    from jitney.backends import registry

    backend = registry.get("triton_gpu")
    assert backend.device_types == ("cuda",)
    assert not torch.cuda.is_initialized()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    x = torch.ones(2, 4)
    torch.testing.assert_close(jitney.compile(model)(x), model(x))
    torch.testing.assert_close(jitney.compile(model, backend="triton_gpu")(x), model(x))
    assert "triton" not in sys.modules
    assert "jitney_triton_gpu.compiler" not in sys.modules
"""


def test_programs_for_the_cpu_import_no_triton() -> None:
    """One that cannot even be imported is not met."""
    run_python("-c", textwrap.dedent(PROGRAM), check=True)
