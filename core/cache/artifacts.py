"""What this process has compiled, or found compiled, as bytes: for another machine's cache on disk.

The counterparts of ``torch.compiler.save_cache_artifacts`` and ``load_cache_artifacts``. Nothing is unpickled, but what
is in such bytes runs: load them as you would import a module. Every name in them is one that a cache gives.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from jitney._util.type_check import has_type
from jitney.cache import frames, store
from jitney.config import config
from jitney.errors import SavedError

_PART, _NAME = re.compile(r"[a-z][a-z0-9_]*"), re.compile(r"[0-9A-Za-z]+")


@dataclass(frozen=True)
class CacheInfo:
    """How many entries there are, by part of the cache: ``frames``, and what backends keep besides."""

    entries: dict[str, int]


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """All that this process has compiled or taken from its cache on disk, as bytes; None if that is nothing.

        saved = jitney.save_cache_artifacts()
        if saved is not None:
            data, info = saved

    Unlike ``jitney.save``, which takes one function and says what is missing, this is as good as the cache is: where
    versions, settings or the processor differ, or the program, the other machine compiles as if it were not there.
    """
    rows: list[list[str]] = []
    blobs: list[bytes] = []
    for folder, names in [*store.used.items()]:
        cache = store.DiskCache(folder, quiet=True)
        known = [*names]
        for name in known:
            content = cache.load(name)
            kept = frames.names_in(content) if folder.name == frames.FOLDER else None
            if content is not None:
                rows.append([folder.name, name, *([] if kept is None else [n for n in kept if n in names])])
                blobs.append(content if kept is None else b"")
    if not rows:
        return None
    return store.sealed(frames.pack(rows, blobs)), _info(rows)


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo:
    """Put what ``save_cache_artifacts`` has given into this machine's cache on disk, for calls that come.

    Raises:
        SavedError: these are no bytes, the bytes are damaged, or there is no cache on disk.
    """
    if not isinstance(serialized_artifacts, bytes | bytearray | memoryview):
        raise SavedError(
            f"the bytes that jitney.save_cache_artifacts gives are needed, not {type(serialized_artifacts).__name__!r}",
            phase="load",
            hint="it gives a tuple, whose first item they are, or None where nothing is compiled",
        )
    data = store.unsealed(bytes(serialized_artifacts))
    if data is None:
        raise SavedError("these bytes are not from jitney.save_cache_artifacts, or they are damaged", phase="load")
    try:
        rows, blobs = frames.unpack(data)
    except (ValueError, LookupError, TypeError) as error:
        raise SavedError(f"these artifacts cannot be read: {error}", phase="load") from None
    if not has_type(rows, list[list[str]]) or len(rows) != len(blobs) or not all(map(_is_row, rows)):
        raise SavedError("these artifacts have entries that no cache writes", phase="load")
    caches: dict[str, store.DiskCache] = {}
    for (part, name, *names), content in zip(rows, blobs, strict=True):
        if part not in caches:
            folder = store.cache_folder(part)
            if folder is None or not config.cache:
                raise SavedError("there is no cache on disk", phase="load", hint="JITNEY_CACHE=1, JITNEY_CACHE_DIR")
            caches[part] = store.DiskCache(folder)
        if names:
            frames.merge(caches[part], name, names)
        elif content:
            caches[part].store(name, content)
    return _info(rows)


def _is_row(row: list[str]) -> bool:
    return len(row) > 1 and bool(_PART.fullmatch(row[0])) and all(_NAME.fullmatch(name) for name in row[1:])


def _info(rows: list[list[str]]) -> CacheInfo:
    return CacheInfo(dict(Counter(row[0] for row in rows)))
