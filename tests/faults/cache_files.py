"""Faults of the cache on disk: processes that are killed, disks that are full or read-only, many processes at once.

    python tests/faults/cache_files.py --kills 100 --processes 16

Killed: with ``kill -9`` at random moments while entries are written; the next process has to equal eager, and to leave
no more files than the killed ones could have begun. Full: each write in turn fails with ENOSPC or ends half-way, and
then the folder cannot be written at all. At once: processes begin with the same empty folder at the same time.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import nn

import jitney

PATIENCE_S = 300


class Net(nn.Module):
    """With a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of rows."""
        x = self.first(x).relu()
        print(end="")
        return self.last(x).softmax(-1)


def scaled(x: torch.Tensor) -> torch.Tensor:
    """For a forward and a backward."""
    return x.tanh().square().mean(-1, keepdim=True) - x


def compile_all() -> None:
    """Compile, and compare with eager."""
    torch.manual_seed(0)
    cases: list[tuple[Any, str]] = [(Net(), "llvm_cpu"), (scaled, "llvm_cpu"), (scaled, "aot_eager")]
    for function, backend in cases:
        x = torch.randn(5, 8, requires_grad=function is scaled)
        ours, theirs = jitney.compile(function, backend=backend)(x), function(x)
        torch.testing.assert_close(ours, theirs)
        if function is scaled:
            torch.testing.assert_close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(theirs.sum(), x))


@dataclass
class Disk:
    """Counts what is written to a folder, and lets one of these writes fail (all of them: -1)."""

    folder: Path
    failing: int
    half: bool
    writes: int = 0

    def fail(self) -> None:
        """Patch the operations that make files."""
        tempfile.mkstemp = self._counted(tempfile.mkstemp)  # type: ignore[assignment]
        if not self.half:
            os.replace = self._counted(os.replace)

    def _counted(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if not any(str(a).startswith(str(self.folder)) for a in arguments):
                return operation(*arguments)
            self.writes += 1
            if self.failing in (self.writes, -1):
                if self.half:
                    handle, path = operation(*arguments)
                    os.write(handle, b"jitney")
                    os.close(handle)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return operation(*arguments)

        return run


@dataclass
class Process:
    """A process that compiles with a folder as its cache; forked, so that it need not import torch."""

    pid: int
    said: IO[str]

    def end(self) -> tuple[int, str]:
        """How it ended, and what it said."""
        said = self.said.read()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), said


def started(folder: Path, failing: int = 0, half: bool = False) -> Process:
    """A process that compiles, and compares with eager."""
    mine, its = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its)
        return Process(pid, os.fdopen(mine))
    text, code = "", 1
    try:
        signal.alarm(PATIENCE_S)
        jitney.config.cache, jitney.config.cache_dir = True, str(folder)
        disk = Disk(folder, failing, half)
        if failing:
            disk.fail()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            compile_all()
        messages = [str(w.message) for w in told if "jitney" in str(w.message)]
        assert len(messages) <= 1 and all("not kept" in m for m in messages), messages
        text, code = f"{disk.writes}", 0
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
    finally:
        os.write(its, text.encode())
        os._exit(code)


def problem(process: Process) -> str:
    """What is wrong with how it ended; empty if nothing is."""
    code, said = process.end()
    return "" if code == 0 else f"ended with {code}: {said}"


def abandoned(folder: Path) -> list[Path]:
    """Files that somebody has begun, and not put in their place."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".bin"]


def kills(folder: Path, times: int, draw: random.Random) -> Iterator[str]:
    """Processes are killed while they write, one after the other, into one folder."""
    killed, next_look = 0, 10
    begin = time.perf_counter()
    if found := problem(started(folder)):
        yield f"before any kill: {found}"
    seconds = time.perf_counter() - begin
    for number in range(times):
        for path in folder.rglob("*.bin"):  # some entries have to be written again
            if draw.random() < 0.7:
                path.unlink()
        process = started(folder)
        time.sleep(draw.uniform(0.0, 0.9 * seconds))
        os.kill(process.pid, signal.SIGKILL)
        killed += process.end()[0] == -signal.SIGKILL
        if number + 1 == next_look or number + 1 == times:
            next_look += 10
            if found := problem(started(folder)):
                yield f"after kill {number}: {found}"
            left = abandoned(folder)
            if len(left) > killed:
                yield f"{len(left)} files are left of {killed} processes"
    for path in abandoned(folder):
        os.utime(path, (0, 0))  # hours later
    for path in folder.rglob("*.bin"):
        path.unlink()
    if found := problem(started(folder)):
        yield f"hours later: {found}"
    if left := abandoned(folder):
        yield f"hours later there is {left}"
    print(f"kill -9: {killed} of {times} processes killed")


def full(folder: Path, every: int) -> Iterator[str]:
    """Each write fails in turn; then every one."""
    code, said = started(folder / "count", failing=1 << 30).end()
    assert code == 0, said
    writes, runs = int(said), 0
    for half in (False, True):
        for failing in [*range(1, writes + 1, every), -1]:
            place = folder / f"{half}{failing}"
            if found := problem(started(place, failing=failing, half=half)):
                yield f"write {failing} fails ({'half-way' if half else 'whole'}): {found}"
            if not half and (left := abandoned(place)):
                yield f"write {failing} fails: there is {left}"
            if failing % 3 == 1 and (found := problem(started(place))):
                yield f"the process after a failed write {failing}: {found}"
            runs += 1
    place = folder / "read-only"
    place.mkdir()
    if os.getuid():  # root may write anywhere
        place.chmod(0o500)
    else:
        for part in ("frames", "llvm_cpu"):
            (place / part).write_text("a file where a folder should be")
    if found := problem(started(place)):
        yield f"a folder that cannot be written: {found}"
    print(f"full disk: {runs} processes, {writes} places; a folder that cannot be written: 1")


def at_once(folder: Path, processes: int) -> Iterator[str]:
    """Many begin with an empty folder, then with what these have left."""
    for turn in ("cold", "warm"):
        running = [started(folder) for k in range(processes)]
        for number, process in enumerate(running):
            if found := problem(process):
                yield f"{turn}, process {number} of {processes}: {found}"
        if left := abandoned(folder):
            yield f"{turn}: there is {left}"
    print(f"one folder: {processes} processes at once, cold and warm")


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="how many processes are killed (%(default)s)")
    parser.add_argument("--every", type=int, default=1, help="of the writes that fail, each so many-th (%(default)s)")
    parser.add_argument("--processes", type=int, default=8, help="how many at once (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    faults = list[str]()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of forks beside threads
    with jitney.config.patch(cache=False):
        compile_all()  # imports
    jitney.reset()
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        if options.kills:
            faults += kills(folder / "killed", options.kills, random.Random(options.seed))
        if options.every:
            (folder / "full").mkdir()
            faults += full(folder / "full", options.every)
        if options.processes:
            faults += at_once(folder / "at once", options.processes)
    print(f"seed {options.seed}: {len(faults)} faults", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
