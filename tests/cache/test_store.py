from __future__ import annotations

import errno
import os
import warnings

import pytest
from fork_server import Program

import jitney
from jitney.cache import store
from jitney.cache.store import DiskCache, cache_folder

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def no_warning_yet():
    store._warned.clear()
    yield
    store._warned.clear()


def test_what_was_stored_is_loaded_by_another_object(tmp_path):
    DiskCache(tmp_path / "new").store(KEY, b"code")
    assert DiskCache(tmp_path / "new").load(KEY) == b"code"
    assert DiskCache(tmp_path / "new").load("cd" * 32) is None


def test_nothing_is_an_entry_too(tmp_path):
    DiskCache(tmp_path).store(KEY, b"")
    assert DiskCache(tmp_path).load(KEY) == b""


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:-1] + b"?",
        lambda content: b"X" + content[1:],
        lambda content: b"\0" * len(content),
    ],
)
def test_a_damaged_entry_is_removed_and_made_again(tmp_path, damage):
    kept = DiskCache(tmp_path)
    kept.store(KEY, b"code" * 100)
    path = kept.path(KEY)
    path.write_bytes(damage(path.read_bytes()))
    assert kept.load(KEY) is None and not path.exists()
    kept.store(KEY, b"code" * 100)
    assert kept.load(KEY) == b"code" * 100


def test_the_least_recently_used_goes_first(tmp_path):
    kept = DiskCache(tmp_path, limit_bytes=10_000)
    for k in range(4):
        kept.store(f"{k}", bytes(2000))
        os.utime(kept.path(f"{k}"), (k, k))
    assert kept.load("0") is not None  # used just now
    kept.store("4", bytes(2000))
    assert {path.stem for path in tmp_path.iterdir()} == {"0", "3", "4"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000


def test_an_older_process_left_too_much(tmp_path):
    for k in range(5):
        DiskCache(tmp_path).store(f"{k}", bytes(2000))
    kept = DiskCache(tmp_path, limit_bytes=5_000)
    kept.store("new", bytes(2000))
    assert kept.load("new") is not None
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5_000


def test_abandoned_temporary_files_go(tmp_path):
    old, young = tmp_path / "old.tmp", tmp_path / "young.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    DiskCache(tmp_path).store(KEY, b"code")
    assert not old.exists() and young.exists()


def failing(monkeypatch, error):
    def fail(*arguments, **keywords):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(store.os, "replace", fail)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_read_only_disk_is_one_warning_in_the_process(tmp_path, monkeypatch, error):
    failing(monkeypatch, error)
    kept = DiskCache(tmp_path)
    with pytest.warns(RuntimeWarning, match=os.strerror(error)):
        kept.store(KEY, b"code")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept.store(KEY, b"code")
        DiskCache(tmp_path).store(KEY, b"code")
    assert kept.load(KEY) is None
    assert list(tmp_path.iterdir()) == []  # no temporary file stays


def test_a_quiet_cache_says_what_is_wrong_when_it_is_asked(tmp_path):
    (tmp_path / "file").write_text("")
    kept = DiskCache(tmp_path / "file", quiet=True)
    assert kept.problem == ""
    kept.store(KEY, b"code")
    assert "not kept" in kept.problem


def test_a_file_in_the_place_of_the_folder_is_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    kept = DiskCache(tmp_path / "file" / "llvm_cpu")
    with pytest.warns(RuntimeWarning, match="not kept"):
        kept.store(KEY, b"code")
    assert kept.load(KEY) is None


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_a_folder_that_anybody_may_write_to_is_not_used(tmp_path):
    DiskCache(tmp_path).store(KEY, b"code")
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert DiskCache(tmp_path).load(KEY) is None


HAMMER = """
import sys, threading
from pathlib import Path
from jitney.cache.store import DiskCache

def hammer(seed):
    kept = DiskCache(Path(sys.argv[1]), limit_bytes=200_000)
    for k in range(150):
        key = f"{(k * 7 + seed) % 20}"
        found = kept.load(key)
        if found not in (None, key.encode() * 5000):
            failures.append(key)
        kept.store(key, key.encode() * 5000)

failures = []
threads = [threading.Thread(target=hammer, args=(k,)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(len(failures))
"""


def test_many_writers_and_readers_never_see_half_an_entry(tmp_path):
    processes = [Program("-W", "error", "-c", HAMMER, tmp_path) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert not list(tmp_path.glob("*.tmp"))


def test_the_folder_is_the_option_then_the_setting_then_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(store.sys, "platform", "linux")
    monkeypatch.setattr(jitney.config, "cache_dir", "")
    assert cache_folder("llvm_cpu") == tmp_path / "xdg" / "jitney" / "llvm_cpu"
    with jitney.config.patch(cache_dir=str(tmp_path / "setting")):
        assert cache_folder("llvm_cpu") == tmp_path / "setting" / "llvm_cpu"
        assert cache_folder("llvm_cpu", str(tmp_path / "option")) == tmp_path / "option" / "llvm_cpu"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("llvm_cpu") == tmp_path / "home" / ".cache" / "jitney" / "llvm_cpu"


def test_a_user_without_a_home_has_no_folder(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(jitney.config, "cache_dir", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(store.Path, "home", no_home)
    assert cache_folder("llvm_cpu") is None
