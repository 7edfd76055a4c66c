"""Where watched processes write: a folder that belongs to this user, and that nobody else may look into."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from jitney.errors import JitneyError
from jitney_tools.watch.state import State, parse

LARGEST = 1 << 20  # bytes of a file
LONGEST = 20  # digits of a process's number, and more


def folder(*, make: bool = False) -> Path | None:
    """The folder; None if there is none yet.

    Raises:
        JitneyError: it belongs to somebody else, or others may enter it.
    """
    if not hasattr(os, "getuid"):
        raise JitneyError("processes are watched on POSIX systems only", phase="watch")
    named = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    base = named if named.is_absolute() and named.is_dir() else Path(tempfile.gettempdir())
    path = base / f"jitney-watch-{os.getuid()}"
    if make:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise JitneyError(
            f"{path} is not a folder of yours alone", hint="remove it, or set XDG_RUNTIME_DIR", phase="watch"
        )
    return path


def write(path: Path, text: str) -> None:
    """Put a text into a file, whole or not at all; nobody else may read it."""
    handle, temporary = tempfile.mkstemp(".tmp", f"{path.stem}.", path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read(path: Path) -> State:
    """What a process has written last.

    Raises:
        JitneyError: the file is not such a one.
        OSError: it is not there.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_size > LARGEST:
            raise JitneyError(f"{path} was not written by a process of yours", phase="watch")
        return parse(file.read(LARGEST).decode("utf-8", "replace"))


def states() -> list[State]:
    """Those of all processes that run, the newest first; what is left of others is removed."""
    found = []
    own = folder()
    for path in sorted(own.glob("*.json")) if own is not None else ():
        with contextlib.suppress(OSError, JitneyError):
            state = read(path)
            if path.stem == str(state.pid) and _runs(state.pid):
                found.append(state)
            else:
                path.unlink()
    for path in own.glob("*.tmp") if own is not None else ():  # of a process that ended while it wrote
        with contextlib.suppress(OSError):
            number = path.name.partition(".")[0]
            if not (number.isdecimal() and _runs(int(number[:LONGEST]))):
                path.unlink()
    return sorted(found, key=lambda state: -state.started)


def state_of(pid: int) -> State:
    """That of one process.

    Raises:
        JitneyError: it writes none.
    """
    own = folder()
    problem = ""
    if own is not None and _runs(pid):
        try:
            return read(own / f"{pid}.json")
        except FileNotFoundError:
            pass
        except JitneyError as error:
            problem = f": {error.reason}"
    raise JitneyError(
        f"process {pid} cannot be watched{problem}",
        hint="start it with JITNEY_WATCH=1; it is seen once it has compiled something",
        phase="watch",
    )


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0  # 0 and negative numbers are groups of processes
