"""How long a browser takes to open the report of a BERT training run; its console's errors; pictures, light and dark.

The page says itself when it has loaded and is laid out (`performance.now()`); the whole process, with the start
of Chromium, is measured, too.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import models
import report
import torch

import jitney
from jitney.config import config
from jitney_tools.debug_folder import folder
from jitney_tools.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PROBE = """
addEventListener("error", e => document.documentElement.dataset.failed = e.message);
addEventListener("load", () => {
  document.body.getBoundingClientRect();  // lays everything out
  document.documentElement.dataset.shown = Math.round(performance.now());
});
"""


def written(layers: int, path: Path) -> Path:
    """The page of a run: two training steps of two lengths, the first capture of each whole."""
    program = models.bert(layers) if layers < 12 else models.bert_base()
    with config.patch(compile_debug=True, base_dir=str(path)):
        compiled = jitney.compile(program.fn, backend="llvm_cpu")
        for _ in range(2):
            found = compiled(*program.args, **program.kwargs)
            sum(t.float().square().mean() for t in found.values() if isinstance(t, torch.Tensor)).backward()
        made = folder.current()
        assert made is not None
        made.close()
    return write_report(made.path)


def chromium(browser: str, path: Path, *flags: str) -> tuple[str, str, float]:
    """What it prints on stdout and stderr, and seconds."""
    own = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    own += ["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0"]
    with tempfile.TemporaryDirectory() as profile:
        begin = perf_counter()
        command = [browser, *own, f"--user-data-dir={profile}", *flags, path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr, perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12, help="of BERT; below 12 they are narrow (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="how often the page is opened (%(default)s)")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for the JSON file and the pictures")
    args = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        parser.error(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as base:
        page = written(args.layers, Path(base)).resolve()
        text = page.read_text()
        probed = page.with_name("probed.html")
        probed.write_text(text.replace("</head>", f"<script>{PROBE}</script></head>", 1))
        drawn, whole, errors = [], [], []
        for _ in range(args.repeats):
            dom, said, seconds = chromium(browser, probed, "--timeout=20000", "--dump-dom")
            root = dom[: dom.index("<head>")]
            drawn += [int(ms) / 1e3 for ms in re.findall(r'data-shown="(\d+)"', root)]
            errors += re.findall(r'data-failed="([^"]*)"', root)
            errors += [line for line in said.splitlines() if "CONSOLE" in line and "ERROR" in line.upper()]
            whole.append(seconds)
        args.out.mkdir(parents=True, exist_ok=True)
        for mode, flags in {"light": (), "dark": ("--blink-settings=preferredColorScheme=0",)}.items():
            picture = (args.out / f"report_{mode}.png").resolve()
            chromium(browser, page, "--window-size=1180,1040", f"--screenshot={picture}", *flags)
    figures = {
        "about": report.about(),
        "layers": args.layers,
        "bytes": len(text),
        "laid_out_seconds": drawn,
        "with_start_seconds": whole,
        "errors": errors,
    }
    if len(drawn) < args.repeats:
        report.console.print("the page did not say each time that it was laid out: not to be trusted")
    report.print_table(
        f"The report of two training steps of BERT, {args.layers} layers",
        ["MB", "laid out after, s", "with Chromium's start, s", "errors"],
        [[len(text) / 1e6, median(drawn or [float("nan")]), median(whole), len(errors)]],
        f"medians of {args.repeats}; pictures in {args.out}",
    )
    for error in errors:
        report.console.print(error, markup=False)
    file = args.out / "report_page.json"
    file.write_text(json.dumps(figures, indent=1) + "\n")
    report.console.print(f"wrote {file}")


if __name__ == "__main__":
    main()
