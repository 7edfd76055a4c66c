"""Programs that are forked are what they would be in an interpreter of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fork_server import Program, run_python


def in_both(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    """What a forked program did, and a new interpreter did as well."""
    own = subprocess.run([sys.executable, *command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    found = run_python(*command, **options)  # type: ignore[arg-type]
    assert (found.returncode, found.stdout, found.stderr) == (own.returncode, own.stdout, own.stderr)
    return found


FILE = """
import inspect, os, sys
import torch

class Held:
    pass

def f():
    raise KeyError(sys.argv)

print(__name__, __file__, sys.argv, sys.path[:2], os.getcwd(), os.environ["GIVEN"], "HOME" in os.environ)
print(torch.get_num_threads(), "jitney" in sys.modules, "sympy" in sys.modules)
print(inspect.getsource(f), sys.modules["__main__"].Held is Held, sys.warnoptions)
import atexit
atexit.register(print, "at exit")
f()
"""


def test_a_file_runs_as_in_python(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(FILE)
    environment = {"GIVEN": "x", "PYTHONPATH": str(tmp_path / "more"), "OMP_NUM_THREADS": "1"}
    found = in_both("-W", "error", str(path), "a", "-b", env=environment, cwd=tmp_path)
    assert found.returncode == 1 and found.stdout.endswith("at exit\n") and "KeyError" in found.stderr


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; print(sys.argv, sys.path[0]); sys.exit(7)", 7),
        ("raise SystemExit('no')", 1),
        ("import warnings; warnings.warn('w')", 0),
        ("x = [\n", 1),
        ("import os; os._exit(5)", 5),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0),
        ("import sys; sys.excepthook = lambda *error: print('hook', error[0]); 1 / 0", 1),
    ],
)
def test_programs_end_as_in_python(code: str, status: int) -> None:
    assert in_both("-c", code, "argument").returncode == status


def test_a_module_runs_as_in_python() -> None:
    in_both("-m", "jitney", "--version")
    assert in_both("-m", "jitney", "no such command").returncode == 2


def test_programs_run_beside_each_other_and_can_be_ended(tmp_path: Path) -> None:
    wait = "import sys, time, pathlib\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nprint('seen')"
    waits = [Program("-c", wait, tmp_path / name) for name in ("made", "never")]
    with pytest.raises(subprocess.TimeoutExpired):
        waits[0].wait(timeout=0.01)
    run_python("-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()", tmp_path / "made", check=True)
    assert waits[0].communicate(timeout=60) == ("seen\n", "")
    waits[1].kill()
    assert waits[1].wait(timeout=60) == -9
    with pytest.raises(subprocess.CalledProcessError):
        run_python("-c", "1 / 0", check=True)


def test_what_one_program_does_no_other_sees() -> None:
    code = "import os, torch; print(torch.get_default_dtype(), os.environ.pop('GIVEN', None), torch.initial_seed())"
    code += "; torch.set_default_dtype(torch.float64)"
    told = [run_python("-c", code, env={**os.environ, "GIVEN": "1"}).stdout.split() for _ in range(2)]
    assert [words[:2] for words in told] == [["torch.float32", "1"]] * 2 and told[0][2] != told[1][2]
    assert torch.get_default_dtype() is torch.float32
