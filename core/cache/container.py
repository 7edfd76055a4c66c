"""One entry as bytes: JSON, then bytes that JSON cannot say."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<Q")


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
    data, sizes = json.loads(content[_LENGTH.size : at])
    if at + sum(sizes) != len(content):
        raise ValueError("another length than it says")
    blobs = []
    for size in sizes:
        blobs.append(content[at : at + size])
        at += size
    return data, blobs
