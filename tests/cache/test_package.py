"""``jitney.save`` and ``jitney.load``: one file brings what a function was compiled to; whatever differs refuses it."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cache.again import Story, begin
from fork_server import run_python
from torch import nn
from torch.utils.hooks import RemovableHandle

import jitney
from jitney import events
from jitney.cache import package_file
from jitney.capture import marks
from jitney.errors import SavedError

LINEAR = """
    import torch.nn.functional as F
    K = 3.0
    def inner(x): return x * K
    def fn(x, scale=2.0): return F.gelu(inner(x)) * scale
"""


def saved_by(text: str, path: Path, *calls: Callable[[Any, Any], Any], backend: str = "aot_eager", **how: Any) -> Path:
    """The file of the program's ``fn``, after some calls."""
    module = begin(text)
    compiled = jitney.compile(module.fn, backend=backend, **how)
    for call in calls:
        call(compiled, module)
    return jitney.save(compiled, path)


@pytest.fixture
def elsewhere(folder: Path, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """The program on another machine: executed anew, nothing kept on disk."""

    def started(text: str) -> Any:
        number[0] += 1
        jitney.config.cache_dir = str(tmp_path / f"other {number[0]}")
        return begin(text)

    number = [0]
    with jitney.config.patch(cache_dir=str(tmp_path / "here")):
        yield started


def no_grad(*sizes: int) -> Callable[[Any, Any], Any]:
    def call(fn: Any, module: Any) -> Any:
        with torch.no_grad():
            return fn(torch.arange(float(torch.Size(sizes).numel())).reshape(sizes))

    return call


def training(fn: Any, module: Any) -> Any:
    x = torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
    y = fn(x)
    y.sum().backward()
    return y.detach(), x.grad


def check(fn: Any, module: Any, call: Callable[[Any, Any], Any]) -> Story:
    """It is as in eager; what happened."""
    story = Story()
    with events.listen(story):
        found = call(fn, module)
    torch.testing.assert_close(found, call(module.fn, module))
    return story


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu", "auto"])
def test_a_function_goes_on_elsewhere(backend: str, tmp_path: Path, elsewhere: Any) -> None:
    calls = [no_grad(2, 4), no_grad(3, 4), training, no_grad(2, 2, 3)]
    path = saved_by(LINEAR, tmp_path / "fn.jitney", *calls, backend=backend)
    module = elsewhere(LINEAR)
    fn = jitney.load(path)
    for call in [*reversed(calls), no_grad(7, 4), no_grad(9, 4)]:  # sizes were generalised at the second
        steps = check(fn, module, call).steps
        assert "captured" not in steps and not [s for s in steps if s.startswith("refused") and "grad_mode" not in s]


def test_a_module_keeps_the_parameters_of_the_one_that_it_is_loaded_for(tmp_path: Path, elsewhere: Any) -> None:
    text = "fn = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8))\n"
    path = saved_by(text, tmp_path / "net", no_grad(2, 4), training)
    module = elsewhere(text)
    net = jitney.load(path, module.fn)
    twin = begin(text).fn
    twin.load_state_dict(module.fn.state_dict())
    x, y = torch.randn(2, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    story = Story()
    with events.listen(story):
        ours, theirs = net(x), twin(x)
        torch.testing.assert_close(ours, theirs)
        ours.square().sum().backward()
        theirs.square().sum().backward()
        torch.testing.assert_close([p.grad for p in net.parameters()], [p.grad for p in twin.parameters()])
        torch.testing.assert_close(net(y), twin(y))
        torch.testing.assert_close(net[2].running_mean, twin[2].running_mean)
    assert story.loaded
    with pytest.raises(SavedError, match=r"is for Sequential, which no name leads to(.|\n)*function or module"):
        jitney.load(path)
    with pytest.raises(SavedError, match="the code of ReLU.forward is not there, it was|the code of Sequential"):
        jitney.load(path, nn.ReLU())


def test_a_module_with_hooks_goes_on_elsewhere(tmp_path: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    def twice(module, args, result): return result * 2
    fn = nn.Sequential(nn.Linear(4, 4))
    fn[0].register_forward_hook(twice)
    """
    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    path = saved_by(text, tmp_path / "net", no_grad(2, 4))
    monkeypatch.setattr(RemovableHandle, "next_id", 0)  # as in another process
    module = elsewhere(text)
    net = jitney.load(path, module.fn)
    assert "captured" not in check(net, module, no_grad(2, 4)).steps
    module.fn[0].register_forward_hook(module.twice)
    with pytest.warns(UserWarning, match="fits this call"):
        assert "captured" in check(net, module, no_grad(2, 4)).steps


def test_a_method_and_what_was_loaded_can_be_saved_again(tmp_path: Path, elsewhere: Any) -> None:
    text = "class C:\n    k = 2\n    def f(self, x): return x * self.k\nc = C()\n"
    module = begin(text)
    compiled = jitney.compile(module.c.f, backend="aot_eager")
    compiled(torch.ones(2))
    first = jitney.save(compiled, tmp_path / "first")
    module = elsewhere(text)
    loaded = jitney.load(first, module.c.f)
    loaded(torch.ones(2))
    second = jitney.save(loaded, tmp_path / "second")
    module = elsewhere(text)
    method = jitney.load(second, module.c.f, compile=False)
    assert method(torch.ones(2)).tolist() == [2, 2]


STALE = {
    "the function": (("* scale", "/ scale"), "the code of fn is "),
    "its signature": (("scale=2.0", "scale=2.0, more=1"), "the signature of fn is x, scale=None, more=None, it was"),
}
STALE_LATER = {
    "a callee": (("return x * K", "return x / K"), "inner is not what it was"),
    "a global": (("K = 3.0", "K = 4.0"), "K"),
}


@pytest.mark.parametrize("name", STALE)
def test_another_source_is_refused(name: str, tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    (before, after), reason = STALE[name]
    elsewhere(LINEAR.replace(before, after))
    with pytest.raises(SavedError) as caught:
        jitney.load(path)
    assert reason in str(caught.value) and "save it again" in str(caught.value)


@pytest.mark.parametrize("name", STALE_LATER)
def test_what_the_function_leads_to_is_compared_at_the_call(name: str, tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    (before, after), reason = STALE_LATER[name]
    module = elsewhere(LINEAR.replace(before, after))
    with pytest.warns(UserWarning, match="compiled here") as caught:
        check(jitney.load(path), module, no_grad(2, 4))
    assert reason in str(caught[0].message)
    with pytest.raises(SavedError, match=r"no form of fn in(.|\n)*compile=True") as refused:
        no_grad(2, 4)(jitney.load(path, compile=False), module)
    assert reason in str(refused.value)


def test_another_call_is_compiled_here_with_one_warning_or_refused(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    module = elsewhere(LINEAR)
    fn, strict = jitney.load(path), jitney.load(path, compile=False)
    with pytest.warns(UserWarning, match=r"fits this call, it is compiled here:\n.*\b3\b"):
        assert "captured" in check(fn, module, no_grad(3, 4)).steps
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(fn, module, no_grad(2, 4, 1))
    with pytest.raises(SavedError, match=r"\n  .*\b3\b"):
        no_grad(3, 4)(strict, module)
    torch.testing.assert_close(no_grad(2, 4)(strict, module), no_grad(2, 4)(module.fn, module))
    with pytest.raises(SavedError, match="grad_mode"):
        training(strict, module)


def test_what_keeps_two_forms_from_a_call_is_told_once(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4), no_grad(2, 4, 1))
    module = elsewhere(LINEAR)
    with pytest.raises(SavedError) as refused:
        training(jitney.load(path, compile=False), module)
    assert str(refused.value).count("grad_mode") == 1


def test_without_a_cache_and_under_run_what_was_loaded_is_used(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    module = elsewhere(LINEAR)
    with jitney.config.patch(cache=False):
        assert check(jitney.load(path), module, no_grad(2, 4)).loaded
        frozen = jitney.run(jitney.load(path))
        assert check(frozen, module, no_grad(2, 4)).loaded


def test_every_need_is_compared(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    elsewhere(LINEAR)
    about, frames = package_file.read(path)
    assert {"Python", "torch", "NumPy", "jitney", "the CPU", "the platform", "the backend"} <= set(about.needs)
    for name in about.needs:
        about.needs[name], before = "another", about.needs[name]
        package_file.write(path, about, frames)
        with pytest.raises(SavedError) as caught:
            jitney.load(path)
        assert f"{name} is {before}, it was another" in str(caught.value)
        about.needs[name] = before
    with jitney.config.patch(activation_memory_budget=0.5):
        with pytest.raises(SavedError, match=r"config.activation_memory_budget is 0.5, it was 1.0"):
            package_file.write(path, about, frames)
            jitney.load(path)


def test_other_settings_after_loading_are_noticed(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    module = elsewhere(LINEAR)
    fn = jitney.load(path)
    with jitney.config.patch(activation_memory_budget=0.5), pytest.warns(UserWarning, match="it was 1.0"):
        assert "captured" in check(fn, module, no_grad(2, 4)).steps


def test_files_that_are_damaged_or_foreign_are_refused(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    elsewhere(LINEAR)
    whole = path.read_bytes()
    damaged = tmp_path / "damaged"
    with zipfile.ZipFile(path) as archive:
        members = [(m.header_offset + 30 + len(m.filename), m.file_size) for m in archive.infolist()]
        assert archive.namelist() == ["about.json", "frames/0"]
        assert json.loads(archive.read("about.json"))["name"] == "fn"
    for begin_, size in members:  # what is read of the file, here and there
        for at in range(begin_, begin_ + size, 97):
            damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(SavedError, match="damaged"):
                jitney.load(damaged)
    for content in (b"", b"text", whole[:-1], whole[: len(whole) // 2], whole[20:]):
        damaged.write_bytes(content)
        with pytest.raises(SavedError, match="damaged"):
            jitney.load(damaged)
    torch.save({"weights": torch.ones(2)}, damaged)  # a zip too
    with pytest.raises(SavedError, match="damaged"):
        jitney.load(damaged)
    about, frames = package_file.read(path)
    package_file.write(damaged, package_file.About(**{**vars(about), "format": 99}), frames)
    with pytest.raises(SavedError, match="has format 99, this version of jitney reads 2"):
        jitney.load(damaged)
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.json", b"0" * 1_000_000)
    with pytest.raises(SavedError, match="damaged"):
        jitney.load(damaged)
    package_file.write(damaged, package_file.About(**{**vars(about), "fullgraph": "yes"}), frames)  # type: ignore[arg-type]
    with pytest.raises(SavedError, match="of other types"):
        jitney.load(damaged)
    foreign = {**about.needs, "\033[2J": "x" * 100_000, "the CPU": "y\n" * 10_000}
    package_file.write(damaged, package_file.About(**{**vars(about), "needs": foreign}), frames)
    with pytest.raises(SavedError, match="does not fit") as told:
        jitney.load(damaged)
    assert len(str(told.value)) < 2000 and "\033" not in str(told.value)
    with pytest.raises(FileNotFoundError):
        jitney.load(tmp_path / "nothing")


def test_two_threads_may_write_one_file(tmp_path: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4))
    about, frames = package_file.read(path)
    replace = os.replace

    def interrupted(*names: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        package_file.write(path, about, frames)  # another thread's, from beginning to end
        replace(*names)

    monkeypatch.setattr(os, "replace", interrupted)
    package_file.write(path, about, frames)
    assert package_file.read(path) == (about, frames) and [p.name for p in tmp_path.glob("*fn*")] == ["fn"]


CANNOT = {
    "it was not called yet": ("def fn(x): return x", lambda fn: None),
    "id() of an object": ("class C: pass\ndef fn(x): return x + (id(C) % 7) * 0", lambda fn: fn(torch.ones(2))),
}


@pytest.mark.parametrize("reason", CANNOT)
def test_what_cannot_be_saved_says_why(reason: str, tmp_path: Path) -> None:
    text, call = CANNOT[reason]
    compiled = jitney.compile(begin(text).fn, backend="aot_eager")
    call(compiled)
    with pytest.raises(SavedError) as caught:
        jitney.save(compiled, tmp_path / "fn")
    assert reason in str(caught.value) and str(caught.value).startswith("save: ")
    assert not list(tmp_path.glob("fn*"))


def test_what_jitney_did_not_compile_or_keep_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="returned by jitney.compile"):
        jitney.save(torch.relu, tmp_path / "fn")
    own = jitney.compile(begin(LINEAR).fn, backend=lambda gm, inputs: gm.forward)
    no_grad(2, 2)(own, None)
    with pytest.raises(SavedError, match="did not come by an entry point"):
        jitney.save(own, tmp_path / "fn")
    with jitney.config.patch(cache=False):
        compiled = jitney.compile(begin(LINEAR).fn, backend="aot_eager")
        no_grad(2, 2)(compiled, None)
    with pytest.raises(SavedError, match="config.cache was off"):
        jitney.save(compiled, tmp_path / "fn")


PROGRAM = """
import json, sys
import torch
import jitney

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(torch.nn.functional.gelu(self.inner(x)))

def fn(x, y):
    return torch.softmax(x @ y, -1).sum(0)

def difference(compiled, target, *rest):
    most = 0.0
    for rows in (2, 5, 11):
        x = torch.randn(rows, 8, requires_grad=True)
        a, b = compiled(x, *rest), target(x, *rest)
        (ga,), (gb,) = torch.autograd.grad(a.square().sum(), x), torch.autograd.grad(b.square().sum(), x)
        with torch.no_grad():
            c = compiled(x, *rest)
        most = max(most, *((p - q).abs().max().item() for p, q in ((a, b), (ga, gb), (c, b))))
    return most

def main(folder):
    steps = []
    jitney.events.subscribe(lambda event: steps.append(type(event).__name__))
    net = Net()
    found = difference(jitney.load(f"{folder}/fn", compile=False), fn, torch.randn(8, 8))
    found = max(found, difference(jitney.load(f"{folder}/net", net, compile=False), net))
    heavy = [name for name in ("sympy", "jitney.runtime.compile_frame", "jitney.aot.compiler", "jitney_lowering") if name in sys.modules]
    print(json.dumps({"difference": found, "steps": steps, "heavy": heavy}))
"""  # noqa: E501


def test_another_process_with_another_cache_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("_disabled", "_frame_only", "_disallowed", "_allowed"):  # what other tests have marked
        monkeypatch.setattr(marks, kind, marks.Marked())
    (tmp_path / "shipped_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    program: Any = importlib.import_module("shipped_program")
    net = program.Net()
    for name, target, rest in (("fn", program.fn, (torch.randn(8, 8),)), ("net", net, ())):
        compiled = jitney.compile(target, backend="llvm_cpu")
        assert program.difference(compiled, target, *rest) < 1e-5
        jitney.save(compiled, tmp_path / name)
    settings = {
        "JITNEY_CACHE": "1",
        "JITNEY_CACHE_DIR": str(tmp_path / "another"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    settings["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    command = ["-W", "error", "-c", f"import shipped_program as s; s.main({str(tmp_path)!r})"]
    done = run_python(*command, env={**os.environ, **settings}, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["difference"] < 1e-5 and found["heavy"] == []
    assert "FrameLoaded" in found["steps"] and not {"FrameCaptured", "AtenGraph"} & set(found["steps"])


def test_a_call_that_a_general_form_does_not_fit_is_told_why(tmp_path: Path, elsewhere: Any) -> None:
    path = saved_by(LINEAR, tmp_path / "fn", no_grad(2, 4), no_grad(3, 4))
    module = elsewhere(LINEAR)
    fn = jitney.load(path, module.fn, compile=False)
    no_grad(9, 4)(fn, module)
    with pytest.raises(SavedError) as one_row:
        no_grad(1, 4)(fn, module)
    assert "Tensor(2, 4)" in str(one_row.value) and "Tensor(3, 4)" not in str(one_row.value)
    assert "x.size(0) >= 2 (found 1)" in str(one_row.value)
    with pytest.raises(SavedError, match=r"x is Tensor\(any, 4\) torch.float32(.|\n)*found Tensor\(9, 5\)"):
        no_grad(9, 5)(fn, module)
