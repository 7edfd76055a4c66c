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

CACHES = ("JITNEY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def ask(script: str, task: Mapping[str, Any], caches: str, timeout: float) -> dict[str, Any]:
    """Run ``script --child TASK ANSWER``, whose process writes ANSWER; {"error": ...} if there is none.

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
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                return {"error": f"no result within {timeout:g} s"}
            finally:
                end(process)
        if answer.exists():
            return dict(json.loads(answer.read_text()))
        said = log.read_text(errors="replace").strip()
        last = said.splitlines()[-1] if said else ""
        return {"error": f"exit status {status}: {last}", "traceback": said[-4000:]}


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
