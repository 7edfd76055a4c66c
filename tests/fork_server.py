"""Python programs in processes of their own, forked from one that has imported torch.

    done = run_python("-c", "import jitney; ...", env={**os.environ, "JITNEY_CACHE": "1"})

is ``subprocess.run([sys.executable, "-c", ...], capture_output=True, text=True)`` without the seconds that importing
torch takes: arguments, environment, folder, warnings, output and exit status are its own. Nothing but torch is
imported before it, so what a program imports can be tested. Take ``subprocess`` for what Python and torch read as they
start (PYTHONHASHSEED, variables of torch's libraries), and for what happens as Python takes itself down: a program ends
here after its threads and what is registered with ``atexit``.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

# --- in the tests --------------------------------------------------------------------------------------------------


class Program:
    """A program that has been started: some of what ``subprocess.Popen`` is.

    Args:
        command: what would follow ``python``: ``-W error`` or nothing; ``-c``, ``-m`` or a file; its arguments.
        env: its whole environment; None: that of this process.
        cwd: where it runs; None: where this process does.
        merge: send stderr to where stdout goes.
    """

    def __init__(
        self,
        *command: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        merge: bool = False,
    ) -> None:
        self.args = [os.fspath(part) for part in command]
        self.returncode: int | None = None
        self._written: list[str] = []
        self._stdout, self._stderr = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self._reply, reply = os.pipe()
        request = {"command": self.args, "env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
        with tempfile.TemporaryFile("w+") as asked:
            json.dump(request, asked)
            asked.seek(0)
            stderr = self._stdout if merge else self._stderr
            given = [asked.fileno(), self._stdout.fileno(), stderr.fileno(), reply]
            socket.send_fds(_server(), [b"."], given)
        os.close(reply)
        self.pid = int(os.read(self._reply, 20))

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, as that of ``Popen``."""
        if self.returncode is None:
            if not select.select([self._reply], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._reply, 20))
            os.close(self._reply)
            for file in (self._stdout, self._stderr):
                file.seek(0)
                self._written.append(file.read())
                file.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has written when it is over."""
        self.wait(timeout)
        return self._written[0], self._written[1]

    def kill(self) -> None:
        """End it, if it is not over."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def run_python(
    *command: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; arguments as those of ``Program`` and of ``subprocess.run``."""
    program = Program(*command, env=env, cwd=cwd)
    try:
        stdout, stderr = program.communicate(timeout)
    finally:
        program.kill()
    done = subprocess.CompletedProcess(program.args, program.wait(), stdout, stderr)
    if check:
        done.check_returncode()
    return done


_started: list[socket.socket] = []


def _server() -> socket.socket:
    """Of this process; started when it is asked for the first time."""
    if not _started:
        ours, theirs = socket.socketpair()
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env=environment | {"OMP_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        _started.append(ours)
        atexit.register(_end, process)
    return _started[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    _started.pop().close()
    process.wait()


# --- in the server -------------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Forks for each request; returns in the program's process, with what it is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for programs
    while True:
        message, received, _, _ = socket.recv_fds(connection, 1, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked, stdout, stderr, reply = received
            program = os.fork()
            if program:
                _await(program, reply)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            with open(asked) as file:
                request: dict[str, Any] = json.load(file)
            for descriptor in (stdout, stderr, reply):
                os.close(descriptor)
            return request
        for descriptor in received:
            os.close(descriptor)


def _await(program: int, reply: int) -> NoReturn:
    os.write(reply, b"%d" % program)
    _, status = os.waitpid(program, 0)
    os.write(reply, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(command: list[str], env: dict[str, str], cwd: str) -> None:
    """What ``python`` does with a command."""
    import torch

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    torch.default_generator.seed()  # not the server's
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(min(int(env.get("OMP_NUM_THREADS", cores)), cores))
    if command[0] == "-W":
        _, action, *command = command
        sys.warnoptions.append(action)
        warnings.simplefilter(action)  # type: ignore[arg-type]
    what, *arguments = command
    folder = {"-c": "", "-m": cwd}.get(what, os.path.dirname(os.path.abspath(what)))
    sys.path[:1] = [folder, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [what, *arguments[1:]] if what in ("-c", "-m") else command
    if what == "-m":
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    source = arguments[0] if what == "-c" else Path(what).read_text()
    main: Any = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if what != "-c":
        main.__file__ = what
    sys.modules["__main__"] = main
    exec(compile(source, "<string>" if what == "-c" else what, "exec", dont_inherit=True), vars(main))


def _status_of(error: BaseException | None) -> int:
    """As which the program ends; what has ended it is printed, without the frames of this file."""
    if error is None or isinstance(error, SystemExit) and error.code is None:
        return 0
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    return 1


def _main(connection: socket.socket) -> NoReturn:
    request = _serve(connection)
    error: BaseException | None = None
    try:
        _run(**request)
    except BaseException as raised:
        error = raised
    status = _status_of(error)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    __import__("torch")
    _main(socket.socket(fileno=int(sys.argv[1])))
