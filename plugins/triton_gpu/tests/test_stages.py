"""Triton's stages run one by one make what ``triton.compile`` makes; machine code is kept on disk."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
from fork_server import run_python
from triton import language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from jitney.config import config
from jitney_lowering.index import index
from jitney_triton_gpu import image_cache, launch
from jitney_triton_gpu.code import Function, Parameter

TARGET = GPUTarget("cuda", 90, 32)


def scaled(x, to, XBLOCK: tl.constexpr):
    places = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(to + places, tl.exp(tl.load(x + places)) * 2.0)


def summed(x, to, XBLOCK: tl.constexpr):
    tl.store(to + tl.program_id(0), tl.sum(tl.load(x + tl.arange(0, XBLOCK)), 0))


def kernel(name: str = "scaled", block: int = 512) -> Function:
    parameters = tuple(Parameter(name, "buffer", name, torch.float32) for name in ("x", "to"))
    return Function(name, parameters, "", {"XBLOCK": block}, index(100), 4)


def image(function: Function, target: GPUTarget = TARGET, relaxed: bool = False, aligned: bool = True) -> Any:
    return launch.image(function, JITFunction(globals()[function.name]), target, aligned=aligned, relaxed=relaxed)


def count_translations() -> list[str]:
    """An item for each function that is compiled from now on."""
    translations: list[str] = []
    translated = launch.translated

    def counted(*args: Any) -> Any:
        translations.append("")
        return translated(*args)

    launch.translated = counted
    return translations


def again() -> None:
    """Print how many functions are compiled for one that is kept."""
    translations = count_translations()
    image(kernel())
    print(len(translations))


def main(folder: Path) -> None:
    """In a process of its own, since Triton may compile nothing in one that has interpreted."""
    found: dict[str, Any] = {}
    by_stages = [
        launch.compiled(kernel(n), JITFunction(globals()[n]), TARGET, aligned=True) for n in ("scaled", "summed")
    ]
    heard: list[dict[str, Any]] = []
    triton.knobs.compilation.listener = lambda **facts: heard.append(facts)
    by_triton = [
        launch.compiled(kernel(n), JITFunction(globals()[n]), TARGET, aligned=True) for n in ("scaled", "summed")
    ]
    unseen = image(kernel())
    triton.knobs.compilation.listener = None
    found["equal"] = by_stages == by_triton
    found["listened"] = len(heard)
    found["kept while somebody listens"] = len([*folder.glob("jitney/triton_gpu/*")])

    translations = count_translations()
    first = image(kernel())
    found["first"] = (len(translations), first == unseen)
    found["again"] = (image(kernel()) == first, len(translations))
    others = [
        image(kernel("summed")), image(kernel(block=1024)), image(replace(kernel(), warps=8)),
        image(kernel(), relaxed=True), image(kernel(), aligned=False), image(kernel(), GPUTarget("cuda", 80, 32)),
    ]  # fmt: skip
    found["others"] = (len({o.code for o in others}), len(translations))
    for path in folder.glob("jitney/triton_gpu/*"):
        path.write_bytes(b"damaged")
    found["damaged"] = (image(kernel()) == first, len(translations))
    with config.patch(cache=False):
        found["off"] = (image(kernel()) == first, len(translations))
    triton.knobs.compilation.always_compile = True
    found["always"] = (image(kernel()) == first, len(translations))
    triton.knobs.compilation.always_compile = False
    image_cache._compiler.cache_clear()
    triton.__version__ = "another"
    found["another Triton"] = (image(kernel()) == first, len(translations))
    (folder / "found").write_text(json.dumps(found))


def test_stages_and_what_is_kept(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "JITNEY_CACHE_DIR": str(tmp_path / "jitney")}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "JITNEY_CACHE": "1"}
    ran = run_python(__file__, tmp_path, env=environment)
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "found").read_text())
    assert found["equal"] and found["listened"] >= 2 and found["kept while somebody listens"] == 0
    assert found["first"] == [1, True]
    assert found["again"] == [True, 1]
    assert found["others"] == [6, 7]
    assert found["damaged"] == [True, 8]
    assert found["off"] == [True, 9]
    assert found["always"] == [True, 10]
    assert found["another Triton"] == [True, 11]
    others: list[dict[str, str]] = [{}, {"PTXAS_OPTIONS": "-O1"}]
    for options, translations in zip(others, (0, 1), strict=True):  # in processes that come later
        later = run_python(__file__, tmp_path, "again", env=environment | options)
        assert later.returncode == 0, later.stderr
        assert later.stdout.split() == [str(translations)]


if __name__ == "__main__":
    again() if sys.argv[2:] else main(Path(sys.argv[1]))
