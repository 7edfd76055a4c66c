"""Capture a recorded frame again, without the program that it came from: jitney replay FILE.

With JITNEY_REPLAY_RECORD_ENABLED=1 a frame whose capture fails is written into config.base_dir: its code, what that
reaches, and the facts of its tensors (with JITNEY_REPLAY_RECORD_DATA=1 their numbers, too). Replaying captures it, and
runs no graph; C functions are called as capture calls them. The exit status is 1 if capture fails again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jitney.backends import FailedFrame
from jitney.config import config
from jitney.debug import observe
from jitney.runtime.replay import capture_again
from jitney_tools.replay import read_record


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
    frame = FailedFrame(record.function, record.code, record.space, record.arguments, record.cells)
    with config.patch(cache=False, replay_record_enabled=False), observe() as found:
        refusal = capture_again(frame)
    if refusal:
        print(f"capture gives up: {refusal}")
        return 1
    print("captured:")
    print(found)
    return 0
