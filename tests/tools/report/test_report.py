"""The page of a debug folder, as text and in a browser."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import jitney
from jitney import config
from jitney.cli import main
from jitney.errors import JitneyError
from jitney_tools.debug_folder import event_log, folder
from jitney_tools.report import Report, write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EMPTY = {"meta", "link", "br", "input"}
F = torch.nn.functional


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.gelu(x @ w)
    print(end="")
    return y.repeat(1, 9).sort().values.softmax(-1).sum()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The debug folder of a small training run with a break, a recompile and a fallback."""
    base = tmp_path_factory.mktemp("report")
    with config.patch(compile_debug=True, base_dir=str(base)):
        compiled = jitney.compile(program, backend="llvm_cpu")
        w = torch.randn(8, 8, requires_grad=True)
        for rows in (4, 5):
            compiled(torch.randn(rows, 8), w).backward()
        made = folder.current()
        assert made is not None
        own = {
            "number": 1,
            "graph": "forward",
            "name": "0 mm",
            "kind": "extern",
            "runs": 1.0,
            "seconds": 1e-5,
            "moved": 9,
        }
        for known in event_log.read(made.path):
            if known["event"] == "Scheduled" and known["kind"] == "forward":
                made.add_record({"event": "Measured", **own, "number": known["number"]})
    yield made.path
    made.close()
    folder._open.clear()


class Reader(html.parser.HTMLParser):
    """Collects text and checks that elements are closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in ("src", "href") and value]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


def parsed(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def parts_of(text: str) -> dict[str, str]:
    """What is built when it is opened, by its key."""
    found = re.findall(r'<script type="application/json" id="(\w+)">(.*?)</script>', text, re.DOTALL)
    return {key: json.loads(content) for key, content in found}


def test_the_page_says_what_happened(run: Path, tmp_path: Path) -> None:
    text = write_report(run, tmp_path / "page.html").read_text()
    page = parsed(text)
    said = " ".join(page.texts)
    for section in ("What keeps it from being fast", "Source", "Compiled again", "Compile time", "Kernels", "Frames"):
        assert section in said
    assert 'print(end="")' in said and "graph break" in said and "print() writes" in said
    assert re.search(r"\(4, 8\).*\(5, 8\)", said, re.DOTALL)  # the two values that differed
    assert "makes no kernel of aten.sort" in said
    assert all(link.startswith("#") for link in page.links) and "http://" not in text.replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_what_is_opened_later_is_whole_and_there_once(run: Path, tmp_path: Path) -> None:
    text = write_report(run, tmp_path / "page.html").read_text()
    parts = parts_of(text)
    asked = set(re.findall(r'data-later="(\w+)"', text + "".join(parts.values())))
    assert asked == parts.keys()
    said = ""
    for part in parts.values():
        said += " ".join(parsed(part).texts)
    for shown in ("def _entry(", "kernel k", "define ", "x is Tensor", "peak", "Loops before fusion", "10.0", "0.1"):
        assert shown in said, shown
    assert sum("<svg" in part for part in parts.values()) >= 8


def test_marks_are_on_the_right_lines(run: Path, tmp_path: Path) -> None:
    text = write_report(run, tmp_path / "page.html").read_text()
    rows = re.findall(r'<tr class="(\w*)"[^>]*><td>\d+</td><td><code>(.*?)</code>', text)
    kinds = {code.strip(): kind for kind, code in rows}
    assert kinds["y = F.gelu(x @ w)"] == "captured"
    assert kinds["print(end=&quot;&quot;)"] == "break"
    assert kinds["return y.repeat(1, 9).sort().values.softmax(-1).sum()"] == "captured"
    assert kinds["def program(x: torch.Tensor, w: torch.Tensor) -&gt; torch.Tensor:"] == ""


def test_the_command_finds_the_newest_and_says_where_the_page_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(run.parent), "-o", str(page)]) == 0
    assert str(page) in capsys.readouterr().out and page.read_text().startswith("<!DOCTYPE html>")
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").is_file()


def test_a_folder_that_is_none_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "there is no debug folder" in capsys.readouterr().err
    (tmp_path / event_log.FILE).write_text('{"event": "Run", "format": 0}\n')
    with pytest.raises(JitneyError, match="another version"):
        write_report(tmp_path)
    with pytest.raises(JitneyError, match="is no debug folder"):
        write_report(tmp_path / "nowhere")


def synthetic(path: Path, frames: int) -> Path:
    """A run of many frames."""

    def row(number: int) -> dict[str, Any]:
        reads = [number - 1] if number else []
        op, kind = ("call_function", "pointwise") if number else ("placeholder", "input")
        own = {"name": f"n{number}", "op": op, "label": "add", "facts": "f32[2]", "inputs": reads}
        return {**own, "place": "model.py:3", "kind": kind, "output": number == 39}

    graph = [row(n) for n in range(40)]
    lines: list[dict[str, Any]] = [{"event": "Run", "format": event_log.FORMAT}]
    lines.append({"event": "Source", "file": "model.py", "text": "def f(x):\n    y = x\n    return y + 1 </script>\n"})
    for number in range(1, frames + 1):
        place = {"number": number, "name": f"layer{number}", "filename": "model.py", "line": 1}
        lines.append({"event": "GraphCaptured", **place, "graph": graph, "transformed": False})
        own = {
            "op_count": 39,
            "guards": ["x is None </script><b>"],
            "graph_break": None,
            "seconds": 0.1,
            "source": "def g(): ...",
        }
        lines.append({"event": "FrameCaptured", **place, **own, "resumed": False, "lines": ["model.py:3"]})
        times = {"seconds": 0.1, "own": 0.1, "begin": number * 2.0, "thread": 1}
        lines.append({"event": "Phase", "number": number, "name": "capture", "frame": f"layer{number}", **times})
    path.mkdir()
    (path / event_log.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_many_equal_graphs_are_there_once(tmp_path: Path) -> None:
    text = write_report(synthetic(tmp_path / "run", 500)).read_text()
    assert text.count('class="frame"') == 500 and len(text) < 1_500_000
    assert sum("<svg" in part for part in parts_of(text).values()) == 1
    parsed(text)  # no name, line or guard of the user's ends a script


PROBE = """
window.onerror = message => document.documentElement.dataset.failed = message;
addEventListener("load", () => {
  const told = document.documentElement.dataset;
  for (let left = [1]; left.length; left = [...document.querySelectorAll("details[data-later]")])
    for (const part of left) if (part.dataset) { part.open = true; part.dispatchEvent(new Event("toggle")); }
  told.opened = document.querySelectorAll("details[open] > .body > *").length;
  told.pictures = document.querySelectorAll(".body svg").length;
  const find = document.getElementById("find");
  const last = [...document.querySelectorAll("details.frame")].pop();  // whose number is no part of another's
  find.value = last.dataset.find.split(" ").pop(); find.dispatchEvent(new Event("input"));
  told.found = document.querySelectorAll("details.frame:not([hidden])").length;
});
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_everything_opens_in_a_browser_without_an_error(run: Path, tmp_path: Path) -> None:
    assert BROWSER is not None
    file = write_report(run, tmp_path / "page.html")
    file.write_text(file.read_text().replace("</head>", f"<script>{PROBE}</script></head>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([BROWSER, *flags, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    root = done.stdout[: done.stdout.index("<head>")]
    assert "data-failed" not in root
    numbers = {name: int(count) for name, count in re.findall(r'data-(\w+)="(\d+)"', root)}
    assert numbers["opened"] > 50 and numbers["pictures"] >= 8 and numbers["found"] == 1


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(run: Path) -> None:
    shown = Report(run.parent)._repr_html_()
    frames: list[dict[str, str | None]] = []

    class Frames(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert tag == "iframe", "all else is text of the frame"
            frames.append(dict(attributes))

    Frames().feed(shown)
    (frame,) = frames
    assert frame["sandbox"] == "allow-scripts"  # no scripts of the page reach the notebook
    inside = frame["srcdoc"] or ""
    assert inside.startswith("<!DOCTYPE html>") and "program" in inside and inside.endswith("</html>")
    with config.patch(base_dir=str(run.parent)):
        assert Report().folder == run
    with config.patch(base_dir=str(run / "none")), pytest.raises(JitneyError, match="there is no debug folder"):
        Report()
