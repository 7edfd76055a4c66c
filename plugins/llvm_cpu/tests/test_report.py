from __future__ import annotations

import os

import pytest
import torch

from jitney.cache import store
from jitney.config import config
from jitney_llvm_cpu import math_trial, symbols
from jitney_llvm_cpu.report import report
from jitney_llvm_cpu.shims import shims
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.threads import threads


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(math_trial, "_verdicts", {})
    threads.cache_clear()
    shims.cache_clear()
    yield
    threads.cache_clear()
    shims.cache_clear()


def test_what_was_found_is_told(tmp_path, fresh):
    found = report(str(tmp_path))
    target = Target.host()
    assert target.cpu in found["target"] and str(target.vector_bytes) in found["vectors"]
    assert str(tmp_path) in found["cache"] and "files" in found["cache"]
    if symbols.find("Sleef_expf8_u10") is not None and target.has("avx2"):
        assert "from sleef" in found["vector functions"] and "no " not in found["vector functions"]
    if "backend: OpenMP" in torch.__config__.parallel_info():
        assert f"{torch.get_num_threads()} of torch's own pool" in found["threads"]


def test_what_is_missing_is_told(tmp_path, fresh, monkeypatch):
    find = symbols.find
    monkeypatch.setattr(symbols, "find", lambda name: None if "_" in name else find(name))
    found = report(str(tmp_path))
    assert found["threads"].startswith("no parallel loops: ")
    assert found["matrix products"].startswith("no calls from compiled code: ")
    assert "no vectors for" in found["vector functions"] and "pow of double" in found["vector functions"]


def test_a_cache_that_cannot_be_is_told(tmp_path):
    store._warned.clear()
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="not kept"):
        found = report(str(tmp_path / "file"))
    assert found["cache"].startswith("no writing to ")


@pytest.mark.skipif(os.name != "posix", reason="HOME")
def test_a_user_without_a_home_is_told(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(config, "cache_dir", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("jitney.cache.store.Path.home", no_home)
    assert report()["cache"].startswith("no folder")
