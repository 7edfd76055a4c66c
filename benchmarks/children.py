"""Measures that need a process of their own: its start, its end, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUNNING: set[subprocess.Popen[bytes]] = set()  # of all threads
CACHES = ("JITNEY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def ask(script: str, task: Mapping[str, Any], caches: str, timeout: float) -> dict[str, Any]:
    """Run ``script --child TASK ANSWER``, whose process writes ANSWER; {"error": ...} if there is none.

    An answer with the key ``unfinished`` is a draft: of a process that ends before it writes another one, it is what
    there is besides the error.

    Args:
        script: a Python file.
        task: what JSON can say.
        caches: the folder where every front end keeps compiled code.
        timeout: seconds. Whatever the process has started ends with it, also when Ctrl-C stops the wait.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, script, "--child", json.dumps(task), str(answer)],
                stdout=output,
                stderr=output,
                env={**os.environ, **dict.fromkeys(CACHES, caches)},
                start_new_session=True,
            )
            RUNNING.add(process)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                return _draft(answer) | {"error": f"no result within {timeout:g} s"}
            finally:
                end(process)
                RUNNING.discard(process)
        draft = _draft(answer)
        if draft and "unfinished" not in draft:
            return draft
        said = log.read_text(errors="replace").strip()
        last = said.splitlines()[-1] if said else ""
        return draft | {"error": f"exit status {status}: {last}", "traceback": said[-4000:]}


def _draft(answer: Path) -> dict[str, Any]:
    return dict(json.loads(answer.read_text())) if answer.exists() else {}


def end_all() -> None:
    """Kill what other threads wait for in `ask`."""
    for process in list(RUNNING):
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it started (compile workers outlive it)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def reply(path: str, result: Mapping[str, Any]) -> None:
    """In the child: the answer, whole or not at all."""
    draft = Path(f"{path}.tmp")
    draft.write_text(json.dumps(result))
    draft.replace(path)
