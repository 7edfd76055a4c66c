"""One compiled function or module on its way to another machine: ``jitney.save`` and ``jitney.load``.

What travels is compiled code: the frames that the function has become, as the cache on disk keeps them, and what they
need. Parameters and buffers do not, since they are inputs of compiled code: a file serves every checkpoint of a model.
The program itself, whose function or module it is, is there already, and is compared with what was compiled.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

from jitney.backends import resolve
from jitney.cache import package_file
from jitney.cache.digest import NotStorable
from jitney.errors import SavedError
from jitney.runtime import frame_cache
from jitney.runtime.dispatch import Root
from jitney.runtime.entry import CodeEntries, FrameState, Session
from jitney.runtime.package_frames import PackageFrames, described, identity_of_files, needs
from jitney.runtime.wrappers import root_of, wrap


def save(compiled: Any, path: str | Path) -> Path:
    """Write what a function or module has been compiled to into one file, for ``load`` in another process.

    Each form that its calls have led to so far (dtypes, sizes, training or not) is in it; a backward if it has run.
    So is what follows a graph break, for the branches that calls have taken.
    Parameters, buffers and other tensors are not: they are the program's, which ``load`` finds or is given.

    Args:
        compiled: made by ``jitney.compile``, and called.
        path: of the file; replaced if it exists.

    Raises:
        SavedError: something in it cannot be made again elsewhere; the message says what.
        TypeError: it was not made by ``jitney.compile``.
        OSError: the file cannot be written.
    """
    root = _root_of(compiled)
    name, path = root.target.name, Path(path)
    if not root.entries:
        why = f"it runs eagerly: {root.skip_reason}" if root.skip_reason else "it was not called yet"
        raise SavedError(f"nothing of {name} is compiled: {why}", phase="save", hint="call it once, then save it")
    owners: list[CodeEntries] = [root, *(point for point in root.session.points.values() if point.home is root)]
    frames: list[bytes] = []
    owner: CodeEntries = root
    try:
        about = _about(root, compiled)
        for owner in owners:
            label = frame_cache.label(owner)
            if owner.state is FrameState.EAGER:
                about.eager[label] = owner.skip_reason
            frames += [entry.content() for entry in owner.entries]
            about.labels.extend([label] * len(owner.entries))
    except NotStorable as reason:
        where = "" if owner is root else f"{described(owner)} "
        raise SavedError(
            f"{name} cannot be saved: {where}{reason}", phase="save", hint="JITNEY_LOGS=cache says more"
        ) from None
    about.digests.extend(map(package_file.sha256, frames))
    package_file.write(path, about, frames)
    return path


def load(path: str | Path, target: Any = None, *, compile: bool = True) -> Any:
    """A function or module with what ``save`` has written of it: calls for which it was compiled compile nothing.

    Nothing is unpickled. But a file holds Python text and machine code, which calls run: load files whose origin you
    trust, as you would import a module. It is compared with the program: what calls lead to must be the same code.

    Args:
        path: of the file.
        target: the function or module, with its own parameters; a function may be left out if its module is imported.
        compile: may other calls be compiled here, with one warning? If not, they are a ``SavedError``: before anything
            has run, or after a graph break if what follows it is what was not saved.

    Raises:
        SavedError: the file is damaged, or something that it needs is otherwise here; the message says what.
        BackendNotFound, PluginError, InvalidOption: its backend cannot be used here.
        OSError: the file cannot be read.
    """
    path = Path(path)
    about, frames = package_file.read(path)
    target = _found(path, about) if target is None else target
    compiled = wrap(target, Session(resolve(about.spec, about.options, about.mode), about.fullgraph, about.dynamic))
    root = _root_of(compiled)
    problems = package_file.differences(about.needs, needs(root))
    if problems:
        raise SavedError(f"{path} does not fit: {'; '.join(problems)}", hint="save it again from here")
    root.package = PackageFrames(path, about, frames, compile)
    return compiled


def _about(root: Root, compiled: Any) -> package_file.About:
    session = root.session
    asked = session.backend.asked
    if session.backend.own.freeze:
        raise NotStorable("with options={'freeze': True} the numbers of parameters are in its code")
    if frame_cache.frame_key(root) is None or asked is None or identity_of_files(session.backend) is None:
        raise NotStorable("its backend did not come by an entry point, or something changes or watches its graphs")
    spec = asked.spec if isinstance(asked.spec, (str, list, tuple)) else session.backend.backend.name
    options = None if asked.options is None else dict(asked.options)
    if options is not None and json.loads(json.dumps(options, default=str)) != options:
        raise NotStorable("its options are more than numbers and text")
    original: Any = compiled.__func__ if isinstance(compiled, types.MethodType) else compiled
    function = getattr(original, "_jitney_original", None)
    place = ("", "")
    if isinstance(function, types.FunctionType) and original is compiled:
        place = (function.__module__, function.__qualname__)
    return package_file.About(
        name=root.target.name,
        place=place,
        needs=needs(root),
        spec=spec if isinstance(spec, str) else list(spec),
        options=options,
        mode=asked.mode,
        fullgraph=session.fullgraph,
        dynamic=session.dynamic,
        digests=[],
        labels=[],
        eager={},
    )


def _root_of(compiled: Any) -> Root:
    try:
        root = root_of(compiled)
    except TypeError:
        raise TypeError("jitney.save takes a function or module returned by jitney.compile") from None
    if root is None:
        raise SavedError(f"an extension runs the {compiled.__class__.__name__} in its own way", phase="save")
    return root


def _found(path: Path, about: package_file.About) -> Any:
    """The function, where it says that it is."""
    module, name = about.place
    found: Any = sys.modules.get(module) if module else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, types.FunctionType):  # or a compiled one
        return found
    named = package_file.shown(f"{module}.{name}" if module else about.name)
    what = f"{named}, which is not imported" if module else f"{named}, which no name leads to"
    raise SavedError(f"{path} is for {what}", hint="jitney.load(path, function or module)")
