"""``jitney bisect`` and ``jitney minify``, one after the other, as a user types them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitney.cli import main
from jitney.config import config

MODEL = """
import torch

def example_inputs():
    return (torch.linspace(-1, 1, 24).reshape(4, 6),)

def forward(x):
    y = torch.relu(x * 2) + 1
    return torch.tanh(y).exp().sum()
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bisected_model.py").write_text(MODEL)
    with config.patch(base_dir="out"):
        yield "bisected_model.py:forward"


def test_from_a_function_to_a_program_of_one_operation(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", model, "--backend", "faulty_backends:crashes_on_relu"]) == 1
    out = capsys.readouterr().out
    assert out == (
        "the program itself  works\n"
        "eager               works\n"
        "crashes_on_relu     it raises (results): NotImplementedError: there is no kernel for relu\n"
        "guilty: backend crashes_on_relu\n"
        f"graph from: {Path('bisected_model.py').absolute()}:8, in forward: y = torch.relu(x * 2) + 1\n"
        "minify: jitney minify out/minifier_launcher.py\n"
    )
    assert main(["minify", "out/minifier_launcher.py"]) == 0
    out = capsys.readouterr().out
    assert "    relu = torch.relu(x0)\n    return (relu,)\n" in out
    assert "6 operations became 1, in " in out and Path("out/repro.py").exists()
    assert main(["minify", "out/repro.py", "--seconds", "0", "--out", "out/again.py"]) == 0
    assert "stopped by the time limit. Written to out/again.py" in capsys.readouterr().out


def test_a_folder_means_its_newest_program(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["minify", "."]) == 1
    assert "has no minifier_launcher.py" in capsys.readouterr().err
    assert main(["bisect", model, "--backend", "faulty_backends:crashes_on_relu"]) == 1
    launcher = Path("out/minifier_launcher.py")
    launcher.rename("out/minifier_launcher_rank1.py")
    assert main(["minify", "out"]) == 0
    assert "Written to out/repro_rank1.py" in capsys.readouterr().out
    Path("out/repro_rank1.py").rename("out/mine.py")
    Path("out/repro.py").write_text("not ours")
    assert main(["minify", "out/mine.py"]) == 0
    assert "Written to out/repro_mine.py" in capsys.readouterr().out and Path("out/repro.py").read_text() == "not ours"


def test_ctrl_c_is_a_line_and_no_traceback(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any) -> Any:
        raise KeyboardInterrupt

    assert main(["bisect", model, "--backend", "faulty_backends:crashes_on_relu"]) == 1
    monkeypatch.setattr("faulty_backends.crashes_on_relu", interrupt)
    assert main(["bisect", model, "--backend", "faulty_backends:crashes_on_relu"]) == 130
    assert "stopped by Ctrl-C" in capsys.readouterr().out
    assert main(["minify", "out/minifier_launcher.py"]) == 1
    assert "stopped by Ctrl-C before the graph was seen to fail" in capsys.readouterr().err
    assert main(["explain", model, "--backend", "faulty_backends:crashes_on_relu"]) == 130
    assert capsys.readouterr().err == "jitney explain: stopped by Ctrl-C, before there was anything to keep\n"


def test_options_and_a_backend_that_is_right(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", model, "--backend", "aot_eager", "--option", "decompose=core"]) == 0
    assert capsys.readouterr().out.endswith("results, gradients and writes are eager's on every rung\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "faulty_backends:nothing"], "has no attribute 'nothing'"),
        (["--backend", "no_such_module_at_all:x"], "No module named"),
        (["--option", "x"], "--option x is not NAME=VALUE"),
        (["--backend", "eagr"], "no installed package offers a backend 'eagr'"),
    ],
)
def test_what_is_mistyped(model: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", model, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["minify", "nowhere.py"]) == 1
    assert "jitney minify: minifier: there is no file nowhere.py" in capsys.readouterr().err
