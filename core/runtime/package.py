"""One compiled function or module on its way to another machine: ``jitney.save`` and ``jitney.load``.

What travels is compiled code: the frames that the function has become, as the cache on disk keeps them, and what they
need. Parameters and buffers do not, since they are inputs of compiled code: a file serves every checkpoint of a model.
The program itself, whose function or module it is, is there already, and is compared with what was compiled.
"""

from __future__ import annotations

import functools
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jitney._util import callers
from jitney.backends import BoundBackend, resolve
from jitney.cache import package_file
from jitney.cache.digest import NotStorable, of_code
from jitney.cache.key import contents
from jitney.capture.marks import everything_said
from jitney.errors import SavedError
from jitney.runtime import frame_cache
from jitney.runtime.dispatch import Dispatcher, Root, Session
from jitney.runtime.wrappers import CompiledFunction, CompiledModule, wrap


class Shipped:
    """The frames of a file, for the function that they were loaded for and its rests after graph breaks.

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

    def frames(self, owner: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[frame_cache.Loaded]:
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
        yield from frame_cache.load_of(owner, held, args, kwargs, self._reasons)

    def missed(self, owner: Dispatcher) -> None:
        """No frame fits a call: an error, or a warning at the first one, with the reason for each frame.

        What ran eagerly where it was saved does so here.
        """
        eager = self.about.eager.get(frame_cache.label(owner))
        if eager:
            owner.skip_frame(eager)
            return
        name, why = _described(owner), "\n".join(f"  {reason}" for reason in self._reasons)
        if not self.compile:
            raise SavedError(
                f"no form of {name} in {self.path} fits this call:\n{why}",
                hint="load(..., compile=True) compiles it here; or call it so before it is saved",
            )
        if not self._warned:
            self._warned = True
            callers.warn(f"no form of {name} in {self.path} fits this call, it is compiled here:\n{why}")


def _described(owner: Dispatcher) -> str:
    """Whose frames they are, for messages."""
    place = frame_cache.place_in(owner)
    return owner.target.name if place is None else f"{owner.target.name}, from line {place.line} on,"


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
        why = f"it runs eagerly: {root.skip}" if root.skip else "it was not called yet"
        raise SavedError(f"nothing of {name} is compiled: {why}", phase="save", hint="call it once, then save it")
    owners: list[Dispatcher] = [root, *(point for point in root.session.points.values() if point.home is root)]
    frames: list[bytes] = []
    owner: Dispatcher = root
    try:
        about = _about(root, compiled)
        for owner in owners:
            label = frame_cache.label(owner)
            if owner.skip:
                about.eager[label] = owner.skip
            frames += [entry.content() for entry in owner.entries]
            about.labels.extend([label] * len(owner.entries))
    except NotStorable as reason:
        where = "" if owner is root else f"{_described(owner)} "
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
    root.shipped = Shipped(path, about, frames, compile)
    return compiled


def needs(root: Root) -> dict[str, str]:
    """What must be the same where a function's frames are loaded."""
    target, backend = root.target, root.session.backend
    found = package_file.machine_needs()
    found["the backend"] = json.dumps(_identity(backend))
    found["what is allowed, disallowed or disabled"] = str(everything_said())
    found[f"the signature of {target.name}"] = target.signature()
    found[f"the code of {target.name}"] = of_code(target.code)[:12]
    if root.shown is not target.code:
        found[f"the code of {root.shown.co_qualname}"] = of_code(root.shown)[:12]
    return found


def _identity(backend: BoundBackend) -> Any:
    return frame_cache.identity(backend, lambda package: contents(package)[:12])


def _about(root: Root, compiled: Any) -> package_file.About:
    session = root.session
    asked = session.backend.asked
    if session.backend.own.freeze:
        raise NotStorable("with options={'freeze': True} the numbers of parameters are in its code")
    if frame_cache.frame_key(root) is None or asked is None or _identity(session.backend) is None:
        raise NotStorable("its backend did not come by an entry point, or something changes or watches its graphs")
    spec = asked.spec if isinstance(asked.spec, (str, list, tuple)) else session.backend.backend.name
    options = None if asked.options is None else dict(asked.options)
    if options is not None and json.loads(json.dumps(options, default=str)) != options:
        raise NotStorable("its options are more than numbers and text")
    original: Any = compiled.__func__ if isinstance(compiled, types.MethodType) else compiled
    function = original._jitney_original
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
    found: Any = compiled.__func__ if isinstance(compiled, types.MethodType) else compiled
    root = found._jitney_root if type(found) in (CompiledFunction, CompiledModule) else None
    if isinstance(root, Root):
        return root
    if type(found) is CompiledModule:
        raise SavedError(f"an extension runs the {found.__class__.__name__} in its own way", phase="save")
    raise TypeError("jitney.save takes a function or module returned by jitney.compile")


def _found(path: Path, about: package_file.About) -> Any:
    """The function, where it says that it is."""
    module, name = about.place
    found: Any = sys.modules.get(module) if module else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, (types.FunctionType, CompiledFunction)):
        return found
    what = f"{module}.{name}, which is not imported" if module else f"{about.name}, which no name leads to"
    raise SavedError(f"{path} is for {what}", hint="jitney.load(path, function or module)")
