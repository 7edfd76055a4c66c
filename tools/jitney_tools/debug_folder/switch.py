"""Whether a debug folder is written; what writes it is imported when the first event comes that goes there."""

from __future__ import annotations

import importlib

from jitney import events
from jitney.config import config


def _collect(event: events.Event) -> None:
    if config.compile_debug:
        importlib.import_module("jitney_tools.debug_folder.folder").add(event)


events.subscribe(_collect)
