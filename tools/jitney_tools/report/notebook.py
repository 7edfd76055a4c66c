"""The report in a notebook: ``Report()`` as the last line of a cell shows the page."""

from __future__ import annotations

from pathlib import Path

from jitney.config import config
from jitney.errors import JitneyError
from jitney_tools.debug_folder.event_log import FILE
from jitney_tools.report.html import escape
from jitney_tools.report.page import page
from jitney_tools.report.run import load

HEIGHT = 640  # pixels


class Report:
    """The page of a debug folder, as it is when it is shown.

    Args:
        folder: one that ``JITNEY_COMPILE_DEBUG=1`` or ``config.compile_debug`` has written, or the folder that has such
            folders: then the newest; ``config.base_dir`` if None.

    Raises:
        JitneyError: there is none.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = newest(Path(config.base_dir if folder is None else folder))

    def __repr__(self) -> str:
        return f"<report of {self.folder}>"

    def _repr_html_(self) -> str:
        """In a frame of its own, so that the notebook's style and the page's do not meet."""
        text = escape(page(load(self.folder)), quote=True)
        return f'<iframe srcdoc="{text}" sandbox="allow-scripts" width="100%" height="{HEIGHT}"></iframe>'


def newest(path: Path) -> Path:
    """The folder itself, or the newest debug folder in it."""
    if (path / FILE).is_file():
        return path
    found = sorted(path.glob(f"run_*/{FILE}"), key=lambda file: file.stat().st_mtime)
    if not found:
        hint = "JITNEY_COMPILE_DEBUG=1 python ... writes one, and says where"
        raise JitneyError(f"there is no debug folder at {path}", hint=hint, phase="report")
    return found[-1].parent
