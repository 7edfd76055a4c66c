"""Programs: what they say, that they can be read again, and what cannot be written."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import faulty_backends
import pytest
import torch
from faulty_backends import crashes_on_relu, off_by_a_percent

from jitney.backends import Backend, register_backend, registry
from jitney_tools.compare.verdict import Fault
from jitney_tools.minifier import Case, Given, write_case
from jitney_tools.minifier.case import NotMinified, bound, captured, plain_case
from jitney_tools.minifier.script import load, naming


def case(backend: Any = crashes_on_relu, options: Any = None, *values: Any, **facts: Any) -> Case:
    given = values or (torch.tensor([[1.5, float("nan")], [float("inf"), -2.0]]),)

    def program(x0: torch.Tensor) -> Any:
        return torch.relu(x0).to(torch.float64) * float("inf")

    module, _ = captured(program, given)
    return plain_case(module, given, bound(backend, options, None), **facts)


FAULT = Fault("raises", "results", "NotImplementedError: there is no kernel for relu")


def test_a_program_says_what_failed_with_what(tmp_path: Path) -> None:
    path = write_case(case("aot_eager", {"decompose": "core"}), FAULT, tmp_path / "repro.py", before=7)
    text = path.read_text()
    assert "A graph for the backend 'aot_eager': 7 operations became 3." in text
    assert "it raises (results): NotImplementedError: there is no kernel for relu" in text
    assert f"From {__file__}:" in text and "in program: return torch.relu(x0)" in text
    assert f"torch {torch.__version__}" in text and "options {'decompose': 'core'}" in text
    assert "aot_eager (jitney-aot-eager 0.1.0)" in text
    assert "`python repro.py` ends in this error" in text


def test_no_line_of_the_users_ends_the_text_at_the_top(tmp_path: Path) -> None:
    origin = 'a.py:1, in f: x = g("""\\N{no name}""") + "\\x"'
    fault = Fault("raises", "results", 'ValueError: """ \\u12')
    path = write_case(case("eager").changed(origin=origin), fault, tmp_path / "repro.py")
    assert load(path)[1] == fault


@pytest.mark.parametrize("size", [2, 100])
def test_what_is_written_is_read_again(tmp_path: Path, size: int) -> None:
    base = torch.linspace(-1, 1, size * 6).reshape(size, 6).to(torch.bfloat16)
    given = base[:, ::2].t().requires_grad_(), torch.arange(size), torch.tensor([True, False]), 3
    before = case().changed(inputs=(Given(given[0]),), grad=False, dynamic=None, kind="backward")
    path = write_case(before, FAULT, tmp_path / "sub" / "x.py", launcher=True)
    found, fault = load(path)
    (x,) = found.values
    assert torch.equal(x, given[0]) and x.dtype is torch.bfloat16 and x.requires_grad
    if size == 2:
        assert x.stride() == given[0].stride()
    assert fault is not None and fault.like(FAULT)
    assert (found.grad, found.dynamic, found.kind, found.after) == (False, None, "backward", "capture")
    assert found.op_count == before.op_count
    assert (tmp_path / "sub" / "x.pt").exists() == (size == 100)


def test_numbers_that_are_none_are_written(tmp_path: Path) -> None:
    found, _ = load(write_case(case(), FAULT, tmp_path / "x.py"))
    assert torch.equal(found.values[0].isnan(), torch.tensor([[False, True], [False, False]]))
    assert found.values[0][1, 0] == float("inf")


def test_backends_are_named_as_another_process_can(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Path(faulty_backends.__file__).parent)
    imports = ["import sys", f"sys.path.insert(0, {folder!r})"]
    assert naming(bound("eager", None, None)) == ("'eager'", [])
    assert naming(bound(["aot_eager", "eager"], None, None)) == ("['aot_eager', 'eager']", [])
    assert naming(bound(crashes_on_relu, None, None)) == (
        "backend", [*imports, "from faulty_backends import crashes_on_relu as backend"]
    )  # fmt: skip
    assert (
        naming(bound(off_by_a_percent, None, None))[1][-1] == "from faulty_backends import off_by_a_percent as backend"
    )
    register_backend(off_by_a_percent)
    try:
        assert naming(bound("off_by_a_percent", None, None)) == (
            "'off_by_a_percent'", [*imports, "import faulty_backends  # registers 'off_by_a_percent'"]
        )  # fmt: skip
    finally:
        registry.unregister_backend("off_by_a_percent")


def local(graph: Any, inputs: Any) -> Any:
    return graph.forward


def test_what_another_process_cannot_import_is_a_clear_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, reason in [
        (lambda graph, inputs: graph.forward, "assign it to a name there, or install it under a name"),
        (Backend("own", lambda *a: None), "the backend 'own' has no name at the top level of the module"),
    ]:
        with pytest.raises(NotMinified, match=reason):
            naming(bound(spec, None, None))

    class Compiler:
        __name__ = "compiler"
        __call__ = local

    monkeypatch.setattr(Compiler, "__module__", "__main__")
    compiler = Compiler()
    import __main__

    monkeypatch.setattr(__main__, "compiler", compiler, raising=False)
    with pytest.raises(NotMinified, match="(?s)is defined in the program that runs.*try: move the backend to a module"):
        naming(bound(compiler, None, None))


def test_options_that_no_text_says(tmp_path: Path) -> None:
    def compiler(graph: Any, inputs: Any, options: Any = None) -> Any:
        return graph.forward

    faulty_backends.compiler = compiler  # type: ignore[attr-defined]
    compiler.__module__ = "faulty_backends"
    with pytest.raises(NotMinified, match="the option x=<object"):
        write_case(case(compiler, {"x": object()}), FAULT, tmp_path / "x.py")


def test_a_program_for_what_works_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_case(case("eager"), FAULT, tmp_path / "x.py")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out == "The graph works here: it compiles, and its results and gradients are eager's.\n"


@pytest.mark.parametrize("content", [None, "x = 1\n"])
def test_other_files_are_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "model.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(NotMinified, match="there is no file|it is no program that jitney has written"):
        load(path)
