"""Bytes kept on disk from one process to the next, under a key that says all they depend on.

An entry is one file: a header (magic, length, checksum) and the bytes. It is written beside its place and moved there,
so that a reader sees all of it or nothing, whoever else is writing. What does not fit its header is removed and made
again. A cache that cannot be written costs one warning in the process (or none, see ``quiet``) and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from jitney._util.forks import reentrant_lock
from jitney.config import config

MAGIC = b"jitney\x00\x01"
LIMIT_BYTES = 512 << 20
_HEADER = struct.Struct("<8sQ32s")
_SUFFIX, _TEMPORARY = ".bin", ".tmp"
# A file that is written beside its place for longer than this belongs to a process that died.
_ABANDONED_S = 3600.0

_warned = threading.Event()
# What this process has read or written, by folder: each name once, in order. See ``artifacts.py``.
used: dict[Path, dict[str, None]] = {}


def cache_folder(part: str = "", option: str = "") -> Path | None:
    """Where ``part`` of what is kept lies: in ``option``, else ``config.cache_dir``, else the user's cache folder.

    None if none is named and the user has no home.
    """
    base = option or config.cache_dir
    if base:
        return Path(base).expanduser() / part
    try:
        return _user_cache() / "jitney" / part
    except RuntimeError:  # pathlib: no home directory
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".cache"  # a relative one is invalid, says XDG


class DiskCache:
    """A folder of entries, at most about ``limit_bytes`` of them: the least recently used go first.

    Args:
        folder: made at the first ``store``; several processes and threads may share it.
        limit_bytes: what all entries together may take.
        quiet: no warning where it cannot be written; ``problem`` says why.
    """

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES, quiet: bool = False) -> None:
        self.folder = folder
        self.quiet = quiet
        self.problem = ""  # why nothing can be written
        self.limit_bytes = limit_bytes
        self._lock = reentrant_lock()
        self._usable: bool | None = None  # not looked at yet
        self._writable = True
        # What the folder held at the last look, and what this process added; None before the first look.
        self._size: int | None = None

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / f"{key}{_SUFFIX}"

    def load(self, key: str) -> bytes | None:
        """The bytes stored under ``key``, or None; an entry that is damaged is removed."""
        if not self._trusted():
            return None
        path = self.path(key)
        try:
            content = path.read_bytes()
        except OSError:  # not there, or not for us
            return None
        data = unsealed(content)
        with contextlib.suppress(OSError):  # a read-only folder keeps its damage and its order
            if data is None:
                path.unlink()
            else:
                os.utime(path)
        if data is not None:
            self._note(key)
        return data

    def remove(self, key: str) -> None:
        """Forget what is stored under ``key``."""
        used.get(self.folder, {}).pop(key, None)
        if self._trusted():
            with contextlib.suppress(OSError):
                self.path(key).unlink()

    def store(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``; if that is not possible, warn once in the process and go on."""
        if not self._writable:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._trusted():
                return
            self._write(self.path(key), sealed(data))
        except OSError as error:
            self._writable = False
            self._tell(f"compiled code is not kept: {error}")
            return
        self._note(key)
        self._make_room(_HEADER.size + len(data))

    def _note(self, key: str) -> None:
        used.setdefault(self.folder, {})[key] = None

    def _write(self, path: Path, content: bytes) -> None:
        handle, temporary = tempfile.mkstemp(_TEMPORARY, path.stem[:16], self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _trusted(self) -> bool:
        """What is loaded from here runs: nobody else may be able to write it."""
        if self._usable is None and os.name == "posix":
            try:
                found = self.folder.stat()
            except OSError:
                return False  # nothing there yet; it may come
            self._usable = found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o002
            if not self._usable:
                self._tell(f"compiled code is not kept: others may write to {self.folder}")
        return self._usable is not False

    def _tell(self, problem: str) -> None:
        self.problem = problem
        if not self.quiet:
            _warn_once(problem)

    def _make_room(self, added: int) -> None:
        with self._lock:
            self._size = self._evict(self.limit_bytes) if self._size is None else self._size + added
            if self._size > self.limit_bytes:
                # Well below the limit, so that the next stores need not look again.
                self._size = self._evict(self.limit_bytes * 4 // 5)

    def _evict(self, limit: int) -> int:
        """Remove the least recently used entries until ``limit`` bytes are left; how many are."""
        entries = []
        now = time.time()
        with contextlib.suppress(OSError), os.scandir(self.folder) as found:
            for file in found:
                with contextlib.suppress(OSError):  # another process may remove it just now
                    status = file.stat()
                    if file.name.endswith(_SUFFIX):
                        entries.append((status.st_mtime, status.st_size, file.path))
                    elif file.name.endswith(_TEMPORARY) and now - status.st_mtime > _ABANDONED_S:
                        os.unlink(file.path)
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
        return total


@dataclass(frozen=True)
class Held:
    """One file of a cache: of which part, its name, bytes, when it was used last (seconds since 1970)."""

    part: str
    name: str
    size: int
    used: float
    path: str

    def remove(self) -> bool:
        """Remove the file; False if that was not possible."""
        try:
            os.unlink(self.path)
        except OSError:
            return False
        return True


def held(folder: Path) -> list[Held]:
    """The files of all parts of a cache; other files in its folder are not touched."""
    found = []
    for path in sorted(folder.glob(f"*/*{_SUFFIX}")):
        with contextlib.suppress(OSError):  # another process may remove it just now
            status = path.stat()
            found.append(Held(path.parent.name, path.stem, status.st_size, status.st_mtime, str(path)))
    return found


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def sealed(data: bytes) -> bytes:
    """Bytes under a header with their checksum."""
    return _HEADER.pack(MAGIC, len(data), _digest(data)) + data


def unsealed(content: bytes) -> bytes | None:
    """The bytes again; None if they are not what was sealed."""
    if len(content) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    return data if magic == MAGIC and length == len(data) and digest == _digest(data) else None


def _warn_once(message: str) -> None:
    if not _warned.is_set():
        _warned.set()
        warnings.warn(f"jitney: {message}", RuntimeWarning, stacklevel=2)
