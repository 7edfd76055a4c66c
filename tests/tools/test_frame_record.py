"""Records of frames whose capture fails: what is in them, and that they are captured again without the program."""

from __future__ import annotations

import collections
import enum
import functools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fork_server import run_python

import jitney
from jitney.backends import FailedFrame
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.cli import main
from jitney.config import config
from jitney.errors import CaptureError
from jitney_tools.frame_record import Recorder, write_record
from jitney_tools.replay import Missing, NotReplayed, read_record


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.patch(base_dir=str(tmp_path)):
        yield tmp_path


PROGRAM = """
import math
import torch
from torch import nn

SCALE = {"a": 2.0, "b": [1, 2]}

def helper(x, *, power=2):
    return x ** power * SCALE["a"]

class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.register_buffer("offset", torch.ones(size))
    def forward(self, x):
        return torch.relu(self.linear(x)) + self.offset

class Net(nn.Sequential):
    def forward(self, x):
        return helper(super().forward(x)) + math.pi

def make(k):
    net = Net(Block(4), Block(4))
    def run(x, flag=True):
        y = net(x) if flag else x
        return y * k @ y.t()
    return run
"""


def failed(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    """The record of a frame in which capture meets a bug."""
    source = folder / "recorded_program.py"
    source.write_text(PROGRAM)
    space: dict[str, Any] = {"__name__": "recorded_program"}
    exec(compile(PROGRAM, str(source), "exec"), space)
    run = jitney.compile(space["make"](3), backend="eager")

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("a bug")

    with monkeypatch.context() as patch, config.patch(replay_record_enabled=True, **changes):
        patch.setitem(HANDLERS, "BINARY_OP", broken)
        with pytest.raises(CaptureError), pytest.warns(UserWarning, match="capture of run failed; .*: jitney replay "):
            run(torch.linspace(-1, 1, 8).reshape(2, 4))
    source.unlink()
    (path,) = folder.glob("record_run_*.json")
    return path


def test_a_frame_is_captured_again_without_its_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = failed(folder, monkeypatch)
    assert main(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"run ({folder / 'recorded_program.py'}:25), recorded with Python ")
    assert "KeyError: 'a bug'" in out and "not recorded" not in out
    assert "linear, relu, add, linear, relu, add, pow, mul, add, mul, t, matmul" in out


def test_the_bug_comes_again(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = failed(folder, monkeypatch)

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setitem(HANDLERS, "BINARY_OP", broken)
    assert main(["replay", str(path)]) == 1
    err = capsys.readouterr().err
    assert "capture: a bug of jitney's: KeyError: 'a bug'" in err
    # The line is shown though the file is gone.
    assert f"{folder / 'recorded_program.py'}:" in err and "self.offset" in err


def test_in_a_fresh_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = failed(folder, monkeypatch)
    done = run_python("-m", "jitney", "replay", path, check=True, cwd="/")
    assert "Graph count: 1" in done.stdout


def test_data_is_written_only_if_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = read_record(failed(folder, monkeypatch))
    assert torch.equal(record.arguments["x"], torch.zeros(2, 4))
    for path in folder.glob("record*"):
        path.unlink()
    record = read_record(failed(folder, monkeypatch, replay_record_data=True))
    assert torch.equal(record.arguments["x"], torch.linspace(-1, 1, 8).reshape(2, 4))


def test_frames_that_capture_gives_up_and_breaks_under_fullgraph_are_recorded(folder: Path) -> None:
    def breaks(x: torch.Tensor) -> Any:
        print("now")
        return x + 1

    with config.patch(replay_record_enabled=True), pytest.warns(UserWarning, match="jitney replay"):
        with pytest.raises(jitney.errors.Unsupported):
            jitney.compile(breaks, backend="eager", fullgraph=True)(torch.ones(2))
    (path,) = folder.glob("record_breaks_*.json")
    assert "print() writes" in read_record(path).error
    assert main(["replay", str(path)]) == 0


LONG: Any = None
for _ in range(3000):
    LONG = [LONG]


def test_what_is_too_deep_to_record_is_no_error_of_the_programs(folder: Path) -> None:
    def breaks(x: torch.Tensor) -> Any:
        print("now", len(LONG))
        return x + 1

    with config.patch(replay_record_enabled=True), pytest.warns(UserWarning, match="no record of it"):
        with pytest.raises(jitney.errors.Unsupported):
            jitney.compile(breaks, backend="eager", fullgraph=True)(torch.ones(2))
    assert list(folder.glob("record_*")) == []


def test_without_being_asked_nothing_is_written(folder: Path) -> None:
    with pytest.raises(jitney.errors.Unsupported):
        jitney.compile(lambda x: print(x), backend="eager", fullgraph=True)(torch.ones(2))
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------------- objects


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW, HIGH = 1, 7


class Base:
    kind = "base"

    def __init__(self) -> None:
        self.me = self
        self.items = [self]

    @property
    def double(self) -> int:
        return 2 * len(self.items)

    @staticmethod
    def static(x: int) -> int:
        return x + 1

    @classmethod
    def named(cls) -> str:
        return cls.kind


class Derived(Base):
    kind = "derived"

    def __init__(self) -> None:
        super().__init__()
        self.more = {"a": (1, 2.5, -0.0, math.inf, 1j, None, b"x", ...)}


def again(value: Any, data: bool = True) -> Any:
    """A value that was written and read."""

    def function(value: Any) -> Any:
        return value

    with config.patch(replay_record_data=data):
        frame = FailedFrame(function, function.__code__, function.__globals__, {"value": value}, (), KeyError())
        path = write_record(frame)
    record = read_record(path)
    json.loads(path.read_text())
    path.unlink()
    return record.arguments["value"], record.missing


VALUES: dict[str, Any] = {
    "numbers": (1, 2.5, -0.0, math.inf, 1j, None, True, b"x", ..., "text", 2**70),
    "containers": [1, [2, {3}], {"a": frozenset({4})}, slice(1, None, 2), range(3)],
    "ordered": collections.OrderedDict(b=1, a=2),
    "torch's": [torch.float16, torch.device("cpu"), torch.Size([2, 3]), torch.strided, torch.relu, torch.nn.Linear],
    "more of torch's": [torch.nn.functional.gelu, torch.Tensor.add, torch.ops.aten.relu.default, torch.nn.functional],
    "Python's": [math.sqrt, len, dict.get, functools.reduce, math, int],
    "numpy's": [np.sum, np.float32, np],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_again(name: str) -> None:
    found, missing = again(VALUES[name])
    assert found == VALUES[name] and missing == []
    assert repr(found) == repr(VALUES[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_tensors_come_again(dtype: torch.dtype) -> None:
    value = torch.tensor([[1, 0, 3], [4, 5, 0]]).to(dtype).t()
    found, _ = again([value, value, torch.nn.Parameter(torch.ones(2))])
    assert torch.equal(found[0], value) and found[0].stride() == value.stride() and found[0] is found[1]
    assert isinstance(found[2], torch.nn.Parameter) and found[2].requires_grad
    empty, _ = again(value, data=False)
    assert (empty.shape, empty.stride(), empty.dtype) == (value.shape, value.stride(), value.dtype)


def test_objects_classes_and_cycles_come_again() -> None:
    found, missing = again(Derived())
    assert missing == [] and type(found) is not Derived and type(found).__name__ == "Derived"
    assert found.me is found and found.items[0] is found and found.double == 2
    assert type(found).named() == "derived" and found.static(1) == 2
    assert found.more["a"][:3] == (1, 2.5, -0.0) and type(type(found)()).__mro__[1].__name__ == "Base"


def test_functions_come_again() -> None:
    count = [0]

    def outer(x: int, y: int = 2, *, z: int = 3) -> Any:
        count[0] += 1
        return [x + y + z, len(count), math.floor(2.5), [i * x for i in range(2)]]

    found, _ = again([outer, functools.partial(outer, 5, z=1), Base().static])
    assert found[0](1) == outer(1) and found[1]() == outer(5, z=1) and found[2](1) == 2
    assert found[0].__code__ is not outer.__code__ and count == [2]


def test_enumerations_come_again() -> None:
    (color, level), missing = again([Color.RED, Level.HIGH])
    assert missing == [] and (color.name, color.value) == ("RED", 1) and color is type(color).RED
    assert level == 7 and isinstance(level, enum.IntEnum) and isinstance(level, int)


def test_what_cannot_be_recorded_is_named() -> None:
    found, missing = again([torch.Generator(), iter([1]), memoryview(b"x"), 3])
    assert found[-1] == 3 and all(isinstance(part, Missing) for part in found[:-1])
    assert any("torch._C.Generator" in what for what in missing) and any("list_iterator" in what for what in missing)


def test_what_a_frame_reaches_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitney_tools.frame_record.MAX_OBJECTS", 10)
    recorder = Recorder(False)
    recorder.ref([[i] for i in range(1000)])
    assert sum(recipe[0] == "missing" for recipe in recorder.objects) >= 990


# ---------------------------------------------------------------------- nothing of a record runs while it is read


class Loud:
    """Says so whenever Python runs something of it by itself."""

    def __init__(self) -> None:
        self.__dict__["kept"] = 1

    def __hash__(self) -> int:
        print("RAN hash")
        return 1

    def __eq__(self, other: object) -> bool:
        print("RAN eq")
        return self is other

    def __repr__(self) -> str:
        print("RAN repr")
        return "loud"

    def __getattr__(self, name: str) -> Any:
        print("RAN getattr", name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        print("RAN setattr", name)

    def __del__(self) -> None:
        print("RAN del")

    def __init_subclass__(cls) -> None:
        print("RAN init_subclass")

    def __iter__(self) -> Any:
        print("RAN iter")
        return iter(())

    def __call__(self) -> None:
        """Be callable."""

    @property
    def prop(self) -> int:
        print("RAN property")
        return 3


class Louder(Loud):
    pass


def loud_function() -> None:
    print("RAN function")


def test_reading_runs_nothing_that_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    loud = Louder()
    holder = {loud: 1, "a": loud, (loud, 2): 3, Louder: 4, loud_function: 5}
    values = [holder, {loud, 1}, frozenset([loud, 2]), collections.OrderedDict({loud: 1}), functools.partial(loud, 1)]
    value = [*values, Louder, loud, loud.prop.__add__]
    path = write_record(FailedFrame(again, again.__code__, again.__globals__, {"value": value}, (), KeyError()))
    capsys.readouterr()
    record = read_record(path)
    assert "RAN" not in capsys.readouterr().out
    mapping, items, frozen, ordered, _, cls, made, _ = record.arguments["value"]
    assert list(mapping) == ["a", cls, loud_function_of(mapping)] and items == {1} and frozen == {2} and not ordered
    assert type(made) is cls and "kept" in object.__getattribute__(made, "__dict__")
    assert "a key of a dictionary: a Louder, whose own __hash__ or __eq__ would run" in record.missing
    assert any("__del__" in what for what in record.missing)


def loud_function_of(mapping: dict[Any, Any]) -> Any:
    return next(key for key in mapping if getattr(key, "__name__", "") == "loud_function")


def crafted(folder: Path, *recipes: Any) -> Path:
    """A record whose argument is the last of some recipes; ``N`` in one: the number of the recipe N places before."""

    def add(data: Any) -> None:
        objects = data["objects"]
        for recipe in recipes:
            count = len(objects)
            objects.append(json.loads(json.dumps(recipe), object_hook=lambda of: count - of["before"] if of else of))
        data["frame"]["arguments"] = {"value": len(objects) - 1}

    return damaged(folder, add)


BEFORE = [{"before": number} for number in range(9)]
TEXT = ["json", "x"]
CODE = ["json", "print('RAN')"]
EMPTY = ["pairs", "dict", [], []]


def test_a_name_that_no_text_of_the_record_says_is_seen(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``__hash__`` by way of a constant of some library's."""
    monkeypatch.setattr("string.digits", "__hash__")

    class Keyed:
        def hidden(self) -> int:
            print("RAN")
            return 1

    path = write_record(FailedFrame(again, again.__code__, again.__globals__, {"value": {Keyed(): 1}}, (), KeyError()))
    data = json.loads(path.read_text())
    data["objects"][data["objects"].index(["json", "hidden"])] = ["path", "string", "digits"]
    path.write_text(json.dumps(data))
    assert read_record(path).arguments["value"] == {} and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "recipes",
    [
        # exec(text, {}), as if it made an enumeration
        [EMPTY, ["path", "builtins", "exec"], ["enumeration", "print('RAN')", BEFORE[1], BEFORE[2]]],
        # what deletes a file when it is forgotten
        [EMPTY, ["path", "tempfile", "_TemporaryFileCloser"], ["object", BEFORE[1], BEFORE[2]]],
        [["path", "antigravity", "webbrowser"]],
        [["module", "this"]],
        [TEXT, ["path", "builtins", "print"], ["partial", BEFORE[1], BEFORE[2], BEFORE[2]]],
        [TEXT, ["function", *[BEFORE[1]] * 6]],
        [["own module", "m", {}], ["attribute", BEFORE[1], "x"]],
    ],
)
def test_records_made_by_hand_run_nothing(recipes: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = crafted(folder, *recipes)
    try:
        record = read_record(path)
    except NotReplayed:
        pass
    else:
        assert type(record.arguments["value"]) is Missing
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------- what a record has


def test_of_the_users_modules_only_what_is_looked_up_is_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "recorded_settings.py").write_text(
        "import recorded_more\nSCALE = 2\nTOKEN = 'a secret'\n"
        "def scaled(x):\n    return x * SCALE * recorded_more.FACTOR\ndef unused():\n    return TOKEN\n"
    )
    (folder / "recorded_more.py").write_text("FACTOR = 3\nPASSWORD = 'a secret'\n")
    monkeypatch.syspath_prepend(str(folder))
    settings = __import__("recorded_settings")

    def run(x: Any) -> Any:
        return settings.scaled(x)

    path = write_record(FailedFrame(run, run.__code__, run.__globals__, {"x": 1}, (), KeyError()))
    assert "a secret" not in path.read_text() and "TOKEN" not in path.read_text()
    record = read_record(path)
    assert record.function is not None and record.function(1) == 6 and record.missing == []


def test_the_environment_is_named_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "a secret")
    recorder = Recorder(False)
    recorder.ref(os.environ)
    assert recorder.objects == [["path", "os", "environ"]]


# ---------------------------------------------------------------------- damaged records


def damaged(folder: Path, change: Any) -> Path:
    path = write_record(FailedFrame(again, again.__code__, again.__globals__, {}, (), KeyError()))
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(format=99), "has format 99"),
        (lambda data: data["versions"].update(python="2.7.18"), "Python 2.7.18, whose bytecode"),
        (lambda data: data.pop("versions"), "is no record of a frame"),
        (lambda data: data.pop("sources"), "is damaged: it has no 'sources'"),
        (lambda data: data["frame"].pop("space"), "is damaged: it has no 'space'"),
        (lambda data: data["frame"].update(code=10**6), "is damaged: IndexError"),
        (lambda data: data["frame"].update(code="x"), "is damaged: TypeError"),
        (lambda data: data["objects"].__setitem__(data["frame"]["code"], ["json", 1]), "is damaged"),
        (lambda data: data["objects"].__setitem__(data["frame"]["code"], ["eval", "1"]), "unknown kind of object"),
        (lambda data: data["objects"].__setitem__(data["frame"]["code"], ["module", "pip"]), "names the module pip"),
        (
            lambda data: data["objects"].__setitem__(data["frame"]["code"], ["path", "math", "nothing"]),
            "there is no math",
        ),
    ],
)
def test_other_files_and_damaged_records_are_refused(folder: Path, change: Any, message: str) -> None:
    with pytest.raises(NotReplayed, match=message):
        read_record(damaged(folder, change))


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "nowhere.json"]) == 1
    assert "there is no file nowhere.json" in capsys.readouterr().err
