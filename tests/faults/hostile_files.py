"""Files and cache entries that somebody has made to do harm.

    python tests/faults/hostile_files.py --times 10000 --seed 7

What ``jitney.save`` has written is changed: bits, bytes cut off or put in, names of members that lead elsewhere or are
there twice, symbolic links, sizes that are declared and not there, compressed members, pickles in the place of
anything, and descriptions under a right checksum whose fields are of other types, long, deep or foreign names. Each is
an error of jitney's, or what was written is loaded. Meanwhile an audit hook of Python's sees to it that nothing is
compiled, imported, executed or unpickled, no process begins, and no file is written. The same goes for artifacts of
the cache, which write nothing outside it, and for calls that find changed entries there.
"""

from __future__ import annotations

import argparse
import codecs
import io
import json
import os
import pickle
import random
import struct
import sys
import tempfile
import typing
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import jitney
from jitney.cache import frames, package_file, store
from jitney.errors import JitneyError

Draw = random.Random
FORBIDDEN = {
    *("exec", "compile", "import", "pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.posix_spawn"),
    *("os.fork", "subprocess.Popen", "ctypes.dlopen", "ctypes.dlsym", "socket.connect", "shutil.unpack_archive"),
}
WRITES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
}
PAGE = 4096


def fn(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
    """What is saved: two forms, and a rest after a graph break."""
    y = (x * k).relu()
    print(end="")
    return y.softmax(-1)


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


class Watch:
    """Sees what a process does, while it is on; ``folder`` may be written to."""

    def __init__(self) -> None:
        self.on = False
        self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self, folder: str = "") -> Iterator[list[str]]:
        """What is not allowed comes into the list."""
        self.on, self.folder, self.seen = True, folder, []
        try:
            yield self.seen
        finally:
            self.on = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FORBIDDEN:
            if sys._getframe(1).f_code.co_filename == typing.__file__:  # annotations of options, which are text
                return
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event in WRITES or (event == "open" and _writes(*arguments)):
            if isinstance(arguments[0], int):  # a file that is open
                return
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not self.folder or os.path.commonpath((path, self.folder)) != self.folder:
                self.seen.append(f"{event} {arguments!r:.200}")


def _writes(path: Any, mode: Any, flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


# ---------------------------------------------------------------------- changes of any bytes


def flipped(content: bytes, draw: Draw) -> bytes:
    """Some bits are others."""
    made = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
    return bytes(made)


def cut(content: bytes, draw: Draw) -> bytes:
    """The end, the beginning or the middle is missing."""
    a, b = sorted((draw.randrange(len(content) + 1), draw.randrange(len(content) + 1)))
    return draw.choice((content[:a], content[b:], content[:a] + content[b:]))


def grown(content: bytes, draw: Draw) -> bytes:
    """Something is put in: noise, zeros, a part of its own."""
    at = draw.choice((0, len(content), draw.randrange(len(content))))
    part = draw.choice((draw.randbytes(draw.choice((1, 7, PAGE))), bytes(PAGE), content[at : at + PAGE], content))
    return content[:at] + part + content[at:]


def renumbered(content: bytes, draw: Draw) -> bytes:
    """A number of two, four or eight bytes is zero, one or huge."""
    width, text = draw.choice(((2, "<H"), (4, "<I"), (8, "<Q")))
    at = draw.choice((draw.randrange(len(content)), max(len(content) - draw.randrange(200), 0)))
    number = draw.choice((0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), len(content), 0x7FFF))
    packed = struct.pack(text, number & ((1 << 8 * width) - 1))
    return (content[:at] + packed + content[at + width :])[: max(len(content), at + width)]


BYTES = (flipped, cut, grown, renumbered)

# ---------------------------------------------------------------------- values that do not belong where they are


def hostile(draw: Draw, like: Any = None) -> Any:
    """What JSON can say, in the place of something else."""
    deep: Any = []
    for _ in range(draw.choice((3, 500))):
        deep = [deep]
    names = ["../../x", "/etc/passwd", "os:system", "os.system", "builtins", "subprocess", "__main__", "a\0b", "\ud800"]
    plain: list[Any] = [None, True, -1, 0, 1 << 70, 1.5, float("nan"), "", "x" * 100_000, [], {}, deep, {"a": deep}]
    numbers = [1e308, -0.0, 99, 2]
    return draw.choice([*plain, *numbers, *names, [like], {"": like}, [draw.choice(names)], {draw.choice(names): 1}])


def changed(value: Any, draw: Draw) -> Any:
    """JSON, somewhere in which is something else."""
    if draw.random() < 0.3 or not isinstance(value, (dict, list, tuple)) or not value:
        return hostile(draw, value)
    if isinstance(value, Mapping):
        made = dict(value)
        key = draw.choice(list(made))
        match draw.randrange(6):
            case 0:
                del made[key]
            case 1:
                made[str(hostile(draw))[:1000]] = made[key]
            case _:
                made[key] = changed(made[key], draw)
        return made
    items = list(value)
    at = draw.randrange(len(items))
    match draw.randrange(6):
        case 0:
            del items[at]
        case 1:
            items *= 2
        case _:
            items[at] = changed(items[at], draw)
    return items


# ---------------------------------------------------------------------- zip files


def archive(members: list[tuple[zipfile.ZipInfo | str, bytes]], comment: bytes) -> bytes:
    """A zip of members, some of them maybe twice."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members:
            file.writestr(name, data)
        file.comment = comment
    return made.getvalue()


def parts(content: bytes) -> tuple[list[tuple[zipfile.ZipInfo | str, bytes]], bytes]:
    """The members and the comment of a whole file."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return [(name, file.read(name)) for name in file.namelist()], file.comment


def members(content: bytes, draw: Draw, bomb: bytes) -> bytes:
    """Members that lead elsewhere, are there twice, are links, folders, compressed, missing, or pickles."""
    found, comment = parts(content)
    at = draw.randrange(len(found))
    name, data = found[at]
    assert isinstance(name, str)
    names = [
        f"../{name}",
        f"/{name}",
        f"../../../../tmp/{name}",
        f"C:\\{name}",
        f"{name}\0x",
        f"{name}/",
        f"./{name}",
    ]
    info = zipfile.ZipInfo(name)
    match draw.randrange(8):
        case 0:
            found[at] = (draw.choice(names), data)
        case 1:
            found.insert(draw.randrange(len(found) + 1), (draw.choice(names), draw.choice((data, bomb))))
        case 2:
            found.insert(draw.randrange(len(found) + 1), (name, draw.choice((bomb, flipped(data, draw), b""))))
        case 3:
            info.external_attr = 0o120777 << 16  # a symbolic link
            found[at] = (info, draw.choice((b"/etc/passwd", b"../about.json", data)))
        case 4:
            info.compress_type = draw.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            found[at] = (info, draw.choice((data, bytes(10_000_000))))
        case 5:
            del found[at]
        case 6:
            found[at] = (name, bomb)
        case _:
            info.extra = draw.randbytes(draw.choice((1, 4, 20)))
            found[at] = (info, data)
    return archive(found, draw.choice((comment, comment, b"", comment + b"0")))


def declared(content: bytes, draw: Draw, bomb: bytes) -> bytes:
    """A directory whose sizes, places, flags or methods are others than those of its members."""
    made = bytearray(content)
    ends = [at for at in range(len(made) - 46) if made[at : at + 4] in (b"PK\1\2", b"PK\3\4")]
    at = draw.choice(ends)
    field, width = draw.choice(
        ((8, 2), (10, 2), (20, 4), (24, 4), (28, 2), (30, 2), (42, 4), (18, 4), (22, 4), (26, 2))
    )
    number = draw.choice(((1 << 8 * width) - 1, 1 << (8 * width - 1), draw.randrange(1 << 8 * width), 1, 0))
    made[at + field : at + field + width] = number.to_bytes(width, "little")
    return bytes(made)


def foreign(content: bytes, draw: Draw, bomb: bytes) -> bytes:
    """Something else altogether."""
    other = io.BytesIO()
    torch.save({"weights": torch.ones(2)}, other)
    return draw.choice((bomb, other.getvalue(), b"", b"PK", b"\x7fELF", json.dumps([1]).encode(), b"[" * 100_000))


def described(content: bytes, draw: Draw, bomb: bytes) -> bytes:
    """Another description, under a right checksum."""
    found, _ = parts(content)
    about = json.loads(found[0][1])
    text = draw.choice((json.dumps(changed(about, draw)).encode(), b"[" * 200_000, b"1" * 10_000, b"\xff\xfe", b"{}"))
    if draw.random() < 0.9:
        text = json.dumps(changed(about, draw)).encode()
    return archive([(package_file.ABOUT, text), *found[1:]], package_file.sha256(text).encode())


ZIPS = (members, declared, foreign, described)

# ---------------------------------------------------------------------- trying them


def load_files(folder: Path, times: int, draw: Draw, watch: Watch) -> Iterator[str]:
    """``jitney.load`` of ``times`` files."""
    path, outside = folder / "fn.jitney", folder / "bomb"
    compiled = jitney.compile(fn, backend="llvm_cpu")
    for x in (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)):
        compiled(x)
    whole = jitney.save(compiled, path).read_bytes()
    about, contents = package_file.read(path)
    jitney.load(path, fn)(torch.ones(2, 3))  # imports
    bomb, damaged = pickle.dumps(Bomb(outside)), folder / "damaged"
    loaded = refused = 0
    for number in range(times):
        kind: Callable[..., bytes] = draw.choice((*BYTES, *ZIPS, described))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that are there twice
            content = kind(whole, draw) if kind in BYTES else kind(whole, draw, bomb)
        damaged.write_bytes(content)
        where = f"file {number} ({kind.__name__})"
        try:
            with watch.watching() as seen:
                jitney.load(damaged, fn)
            loaded += 1
            if kind is not described and package_file.read(damaged) != (about, contents):
                yield f"{where}: what was loaded is not what was saved"
        except JitneyError as error:
            refused += 1
            if len(str(error)) > 20_000:
                yield f"{where}: a message of {len(str(error))} characters"
        except BaseException as error:
            yield f"{where}: {type(error).__name__}: {error!s:.200}"
        if seen:
            yield f"{where}: {seen[:3]}"
        if outside.exists():
            yield f"{where}: it was unpickled"
            outside.unlink()
    print(f"jitney.load: {times} files, {refused} refused, {loaded} loaded")


def load_artifacts(folder: Path, times: int, draw: Draw, watch: Watch) -> Iterator[str]:
    """``load_cache_artifacts`` of bytes, most of them under a right checksum."""
    cache = folder / "artifacts"
    jitney.reset()
    with jitney.config.patch(cache=True, cache_dir=str(cache)):
        jitney.compile(fn, backend="aot_eager")(torch.ones(2, 3))
        saved = jitney.save_cache_artifacts()
    assert saved is not None
    data = store.unsealed(saved[0])
    assert data is not None
    rows, blobs = frames.unpack(data)
    refused = 0
    for number in range(times):
        match draw.randrange(4):
            case 0:
                content = draw.choice(BYTES)(saved[0], draw)
            case 1:
                content = store.sealed(draw.choice(BYTES)(data, draw))
            case 2:
                text = draw.choice((b"[" * 100_000, b"[[],[" + b"1," * 1000 + b"1e400]]", b"NaN", b"\xff"))
                content = store.sealed(struct.pack("<Q", len(text)) + text)
            case _:
                text = json.dumps([changed(rows, draw), [len(b) for b in blobs]]).encode()
                content = store.sealed(struct.pack("<Q", len(text)) + text + b"".join(blobs))
        other = folder / "other"
        try:
            with jitney.config.patch(cache=True, cache_dir=str(other)), watch.watching(str(other)) as seen:
                jitney.load_cache_artifacts(content)
        except JitneyError:
            refused += 1
        except BaseException as error:
            yield f"artifacts {number}: {type(error).__name__}: {error!s:.200}"
        if seen:
            yield f"artifacts {number}: {seen[:3]}"
    print(f"load_cache_artifacts: {times} pieces, {refused} refused")


def read_entries(folder: Path, times: int, draw: Draw, watch: Watch) -> Iterator[str]:
    """A cache some of whose entries were changed, or are links, folders, lists of foreign names or deep lists."""
    cache, other = folder / "entries", folder / "elsewhere"
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    theirs = fn(x)
    with jitney.config.patch(cache=True, cache_dir=str(cache)):
        for number in range(times):
            jitney.reset()
            compiled = jitney.compile(fn, backend="aot_eager")
            if not torch.allclose(compiled(x), theirs):
                yield f"entries {number - 1}: the next process does not equal eager"
            files = sorted(cache.rglob("*.bin"))
            for path in draw.sample(files, min(2, len(files))):
                content = path.read_bytes()
                other.write_bytes(content)
                match draw.randrange(5):
                    case 0 | 1:
                        path.write_bytes(draw.choice(BYTES)(content, draw))
                    case 2:
                        path.unlink()
                        path.symlink_to(other)
                        other.write_bytes(draw.choice(BYTES)(content, draw))
                    case 3:
                        names = json.dumps([hostile(draw), "../../elsewhere", "/etc/passwd", path.stem])
                        path.write_bytes(store.sealed(draw.choice((names.encode(), b"[" * 100_000, b"[1"))))
                    case _:
                        path.write_bytes(store.sealed(b"[]"))
            before = other.read_bytes()
            jitney.reset()
            try:
                ours = jitney.compile(fn, backend="aot_eager")(x)
            except BaseException as error:
                yield f"entries {number}: {type(error).__name__}: {error!s:.200}"
                continue
            if not torch.allclose(ours, theirs):
                yield f"entries {number}: not equal to eager"
            if other.read_bytes() != before:
                yield f"entries {number}: a file outside was written"
    print(f"cache: {times} times entries were changed")


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10_000, help="how many files are loaded (%(default)s)")
    parser.add_argument("--artifacts", type=int, default=1000, help="how many artifacts (%(default)s)")
    parser.add_argument("--entries", type=int, default=100, help="how often entries are changed (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    watch, faults = Watch(), list[str]()
    for encoding in ("utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le"):
        codecs.lookup(encoding)  # JSON may be any of these, whose modules are imported at the first one
    with tempfile.TemporaryDirectory() as named, jitney.config.patch(cache=True, cache_dir=f"{named}/cache"):
        folder, draw = Path(named).resolve(), Draw(options.seed)
        faults += load_files(folder, options.times, draw, watch)
        faults += load_artifacts(folder, options.artifacts, draw, watch)
        faults += read_entries(folder, options.entries, draw, watch)
    print(f"seed {options.seed}: {len(faults)} faults", *(ascii(fault) for fault in faults), sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
