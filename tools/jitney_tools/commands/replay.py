"""Capture a recorded frame again, without the program that it came from: jitney replay FILE.

With JITNEY_REPLAY_RECORD_ENABLED=1 a frame whose capture fails is written into config.base_dir: its code, what that
reaches, and the facts of its tensors (with JITNEY_REPLAY_RECORD_DATA=1 their numbers, too). Replaying captures it, and
runs no graph; C functions are called as capture calls them. The exit status is 1 if capture fails again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jitney.backends import resolve
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.interpreter.target import Target
from jitney.config import config
from jitney.debug.explain import observe
from jitney.errors import CaptureError
from jitney.runtime.compile_frame import compile_frame
from jitney.runtime.dispatch import Dispatcher, Point, Root
from jitney.runtime.entry import CaptureFault, Session
from jitney_tools.replay import Record, read_record


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a record of a frame")


def run(arguments: argparse.Namespace) -> int:
    """Read the record, capture the frame, print what came of it."""
    record = read_record(arguments.file)
    print(f"{record.name} ({record.place}), recorded with Python {record.versions['python']}, ", end="")
    print(f"torch {record.versions['torch']}: {record.error.partition(chr(10))[0]}")
    for what in dict.fromkeys(record.missing):
        print(f"not recorded: {what}")
    with config.patch(cache=False, replay_record_enabled=False), observe() as found:
        try:
            compile_frame(_dispatcher(record), dict(record.arguments), record.cells)
        except GiveUp as reason:
            print(f"capture gives up: {reason.reason}")
            return 1
        except CaptureFault as fault:
            raise CaptureError(
                f"a bug of jitney's: {type(fault.error).__name__}: {fault.error}", user_stack=fault.user_stack
            ) from fault.error
    print("captured:")
    print(found)
    return 0


def _dispatcher(record: Record) -> Dispatcher:
    session = Session(resolve("eager"), fullgraph=False, dynamic=None)
    if record.function is not None:
        return Root(session, record.function)
    return Point(session, Target(record.code, record.space, None))
