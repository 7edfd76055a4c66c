"""One compiled function as one file, for another machine: a zip of its frames and of what these were made with.

``about.json`` says what the file holds and needs, ``frames/0`` and so on are frames as the cache keeps them. Every byte
of them is under a checksum, and nothing is unpickled. Frames do hold Python text and machine code, which calls run.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import secrets
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch

from jitney._util.type_check import has_type
from jitney.cache.key import contents, flags, settings, variables
from jitney.errors import SavedError

FORMAT = 2
LONGEST = 10_000  # characters of a backend's name and options
SEVERAL = 20  # differences in one message
ABOUT = "about.json"
# Of the environment: where things lie, or how many there are, says nothing of what is computed.
_PLACES = ("_DIR", "_HOME", "_PATH", "_ROOT", "_FOLDER", "_DEVICES", "_NUM_THREADS")


@dataclass(frozen=True)
class About:
    """What a saved file says of itself.

    Args:
        name: the function's, as messages have it.
        place: the module and the qualified name under which it may be found; empty texts for what has none.
        needs: what must be the same where it is loaded, as text, by what it is.
        spec: the backend, as it was given to ``compile``; options, mode, fullgraph and dynamic likewise.
        digests: SHA-256 of each frame.
        labels: which rest of the function each frame is; empty texts for the function itself.
        eager: why rests of the function run eagerly, by label.
        format: of the file.
    """

    name: str
    place: tuple[str, str]
    needs: dict[str, str]
    spec: str | list[str]
    options: dict[str, Any] | None
    mode: str | None
    fullgraph: bool
    dynamic: bool | None
    digests: list[str]
    labels: list[str]
    eager: dict[str, str]
    format: int = FORMAT


_FIELDS = get_type_hints(About)


def shown(value: object) -> str:
    """What somebody else may have written, for messages: not long, and nothing that a terminal obeys."""
    text = str(value)[:300]
    return text if text.isprintable() else ascii(text)[1:-1]


def write(path: Path, about: About, frames: Sequence[bytes]) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(asdict(about), indent=1, allow_nan=False).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(ABOUT, text)
        for number, frame in enumerate(frames):
            archive.writestr(f"frames/{number}", frame)
        archive.comment = sha256(text).encode()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")  # other threads may write it, too
    try:
        temporary.write_bytes(made.getvalue())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read(path: Path) -> tuple[About, list[bytes]]:
    """What was written.

    Raises:
        SavedError: it is no such file, of another format, or damaged.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read(path, archive, len(content))
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError, NotImplementedError, EOFError) as e:
        if isinstance(e, SavedError):
            raise
        raise SavedError(
            f"{path} was not written by jitney.save, or is damaged: {type(e).__name__}: {shown(e)}"
        ) from None


def _read(path: Path, archive: zipfile.ZipFile, whole: int) -> tuple[About, list[bytes]]:
    members = archive.infolist()
    if any(m.compress_type != zipfile.ZIP_STORED or m.file_size > whole for m in members):  # no bomb unfolds
        raise ValueError("members that are compressed")
    text = archive.read(ABOUT)
    if sha256(text).encode() != archive.comment:
        raise ValueError(f"{ABOUT} is not what was written")
    found = json.loads(text)
    if found["format"] != FORMAT:
        raise SavedError(
            f"{path} has format {shown(found['format'])}, this version of jitney reads {FORMAT}",
            hint="save it again with this version",
        )
    about = About(**{**found, "place": tuple(found["place"])})
    if not all(has_type(getattr(about, name), kind) for name, kind in _FIELDS.items()):
        raise ValueError("fields of other types")
    if len(json.dumps([about.spec, about.options, about.mode])) > LONGEST:  # messages tell them
        raise ValueError("a backend or options that long")
    if len(about.labels) != len(about.digests):
        raise ValueError("another number of frames than it says")
    frames = [archive.read(f"frames/{number}") for number in range(len(about.digests))]
    if [sha256(frame) for frame in frames] != about.digests:
        raise ValueError("a frame is not what was written")
    return about, frames


def sha256(data: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def machine_needs() -> dict[str, str]:
    """What every saved function needs: versions, the processor's vectors, settings, flags of torch's."""
    version = getattr(sys.modules["jitney"], "__version__", "")
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    found = {
        "Python": f"{platform.python_implementation()} {'.'.join(map(str, sys.version_info[:3]))}",
        "the platform": f"{sys.platform} {platform.machine()}",
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "NumPy": np.__version__,
        "jitney": f"{version}, sources {contents('jitney')[:12]}",
        "the CPU": torch.backends.cpu.get_cpu_capability(),
        "the CUDA device": cuda,
    }
    found |= {f"config.{name}": repr(value) for name, value in settings()}
    found |= {name: str(sorted(value) if isinstance(value, (set, frozenset)) else value) for name, value in flags()}
    return found | {f"${name}": text for name, text in variables() if not name.endswith(_PLACES)}


def differences(needs: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What is needed and otherwise here, a sentence each."""
    return [
        f"{shown(name)} is {here.get(name, 'not there')}, it was {shown(needs.get(name, 'not there'))}"
        for name in sorted({*needs, *here})
        if needs.get(name) != here.get(name)
    ][:SEVERAL]
