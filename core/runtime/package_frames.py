"""The frames of a file that ``jitney.save`` wrote, for the function that they were loaded for."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jitney._util import callers
from jitney.backends import BoundBackend
from jitney.backends.identity import identity, identity_of_handlers
from jitney.cache import package_file
from jitney.cache.digest import of_code
from jitney.cache.key import contents
from jitney.capture.marks import everything_said
from jitney.errors import SavedError
from jitney.runtime import frame_cache
from jitney.runtime.entry import CodeEntries


class PackageFrames:
    """The frames of a function and of its rests after graph breaks.

    Args:
        path: of the file, for messages.
        about: what the file says of itself.
        contents: the frames.
        compile: may calls that no frame fits be compiled here?
    """

    def __init__(self, path: Path, about: package_file.About, contents: list[bytes], compile: bool) -> None:
        self.path = path
        self.about = about
        self.contents: dict[str, list[tuple[str, bytes]]] = {}
        for label, name, content in zip(about.labels, about.digests, contents, strict=True):
            self.contents.setdefault(label, []).append((name, content))
        self.compile = compile
        self._reasons: list[str] = []
        self._warned = False

    def frames(
        self, owner: CodeEntries, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[frame_cache.LoadedFrame]:
        """Those that fit a call."""
        self._reasons = []
        assert owner.home is not None
        problems = package_file.differences(self.about.needs, needs(owner.home))
        if problems:
            self._reasons.append("; ".join(problems))
            return
        found = self.contents.get(frame_cache.label(owner), [])
        if not found:
            self._reasons.append("no call came here before it was saved")
        held = [(name, content, functools.partial(bytes, content)) for name, content in found]
        if frame_cache.oldest_first(owner):
            held.reverse()
        yield from frame_cache.load_from(owner, held, args, kwargs, self._reasons)

    def missed(self, owner: CodeEntries) -> None:
        """No frame fits a call: an error, or a warning at the first one, with the reason for each frame.

        What ran eagerly where it was saved does so here.
        """
        eager = self.about.eager.get(frame_cache.label(owner))
        if eager:
            owner.skip_frame(eager)
            return
        name, why = described(owner), "\n".join(f"  {reason}" for reason in dict.fromkeys(self._reasons))
        if not self.compile:
            raise SavedError(
                f"no form of {name} in {self.path} fits this call:\n{why}",
                hint="load(..., compile=True) compiles it here; or call it so before it is saved",
            )
        if not self._warned:
            self._warned = True
            callers.warn(f"no form of {name} in {self.path} fits this call, it is compiled here:\n{why}")


def described(owner: CodeEntries) -> str:
    """Whose frames they are, for messages."""
    place = owner.place
    return owner.target.name if place is None else f"{owner.target.name}, from line {place.line} on,"


def needs(root: CodeEntries) -> dict[str, str]:
    """What must be the same where a function's frames are loaded."""
    target, backend = root.target, root.session.backend
    found = package_file.machine_needs()
    found["the backend"] = json.dumps(identity_of_files(backend))
    found["what handles functions"] = json.dumps(identity_of_handlers(_contents))
    found["what is allowed, disallowed or disabled"] = str(everything_said(with_torchs=False))
    found[f"the signature of {target.name}"] = target.signature()
    found[f"the code of {target.name}"] = of_code(target.code)[:12]
    if root.shown is not target.code:
        found[f"the code of {root.shown.co_qualname}"] = of_code(root.shown)[:12]
    return found


def identity_of_files(backend: BoundBackend) -> list[Any] | None:
    """What the backend's graphs depend on, its files by what is in them."""
    return identity(backend, _contents)


def _contents(package: str) -> str:
    return contents(package)[:12]
