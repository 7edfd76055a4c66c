"""The frames on disk: under one key all those that one function was compiled to, the newest first; each as bytes."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from jitney.cache.digest import digest
from jitney.cache.store import DiskCache, cache_folder

FOLDER = "frames"
MOST = 64  # frames under one key: blocks of a model that break share what follows, and may be of many forms
_LENGTH = struct.Struct("<Q")


@functools.lru_cache(maxsize=16)
def _cache(folder: Path) -> DiskCache:
    return DiskCache(folder, quiet=True)


def frames_on_disk() -> DiskCache | None:
    """The cache of frames in the folder that the settings name; None where there can be none."""
    folder = cache_folder(FOLDER)
    return None if folder is None else _cache(folder)


def stored(
    cache: DiskCache, key: str, oldest_first: bool = False, without: Container[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """What was kept under a key, with the names, the newest first or last; what is gone or damaged is passed over.

    Args:
        cache: where.
        key: under what.
        oldest_first: the order.
        without: names that are not wanted.
    """
    names = [name for name in _names(cache, key) if name not in without]
    for name in reversed(names) if oldest_first else names:
        content = cache.load(name)
        if content is not None:
            yield name, content


def store(cache: DiskCache, key: str, content: bytes, instead: str = "") -> str:
    """Keep one more frame under a key, or another one ``instead`` of one of them, in its place; its name.

    Of two processes that do so at once, one may be forgotten.
    """
    name = name_of(key, content)
    cache.store(name, content)
    before = _names(cache, key)
    at = before.index(instead) if instead in before else 0
    names = [n for n in before if n not in (name, instead)]
    names.insert(at, name)
    cache.store(key, json.dumps(names[:MOST]).encode())
    if instead and instead != name:
        cache.remove(instead)
    return name


def name_of(key: str, content: bytes) -> str:
    """Under what name a frame lies."""
    return digest(key, content)


def merge(cache: DiskCache, key: str, names: Sequence[str]) -> None:
    """Have frames under a key, which come before those that are there."""
    before = [name for name in _names(cache, key) if name not in names]
    cache.store(key, json.dumps([*names, *before][:MOST]).encode())


def _names(cache: DiskCache, key: str) -> list[str]:
    return names_in(cache.load(key)) or []


def names_in(content: bytes | None) -> list[str] | None:
    """The names of frames that are kept under a key; None for what is a frame itself."""
    if content is None or content[:1] != b"[":
        return None
    try:
        found = _read(content)
    except ValueError:
        return None
    return [n for n in found if isinstance(n, str) and n.isalnum()] if isinstance(found, list) else []


# ------------------------------------------------------------------ one frame: JSON, then bytes that JSON cannot say


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None


def pack(data: Any, blobs: Sequence[bytes]) -> bytes:
    """``data`` (what JSON can say) and some bytes as one piece."""
    text = json.dumps([data, [len(b) for b in blobs]], separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *blobs])


def unpack(content: bytes) -> tuple[Any, list[bytes]]:
    """What was packed. Raises ``ValueError`` for anything else."""
    if len(content) < _LENGTH.size:
        raise ValueError("too short")
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    data, sizes = _read(content[_LENGTH.size : at])
    if at + sum(sizes) != len(content):
        raise ValueError("another length than it says")
    blobs = []
    for size in sizes:
        blobs.append(content[at : at + size])
        at += size
    return data, blobs
