import importlib.metadata
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import jitney
from jitney.backends import Backend, Listing, register_backend, registry
from jitney.cli import CORE, ELSEWHERE, main
from jitney.commands import explain
from jitney.config import config
from jitney_tools.commands import demo, demo_speed, doctor


def test_python_dash_m_and_the_installed_script_are_the_same_program():
    done = subprocess.run([sys.executable, "-m", "jitney", "--version"], capture_output=True, text=True, check=True)
    script = os.path.join(os.path.dirname(sys.executable), "jitney")
    other = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == other.stdout == "jitney 0.1.0\n"


def test_every_command_has_help(capsys):
    for name in (*CORE, *ELSEWHERE):
        with pytest.raises(SystemExit) as e:
            main([name, "--help"])
        assert e.value.code == 0
        assert len(capsys.readouterr().out.splitlines()) > 4


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_command_that_is_not_installed_says_how_to_get_it(name, capsys, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    assert main([name, "--whatever", "file.py"]) == 1
    assert f"pip install 'jitney[{ELSEWHERE[name]}]'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "not installed" in " ".join(capsys.readouterr().out.split())


def test_a_command_whose_package_is_broken_says_so_and_harms_no_other(capsys, monkeypatch, tmp_path):
    (tmp_path / "broken_commands.py").write_text("raise RuntimeError('no such luck')")
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("fancy", "broken_commands", "jitney.commands")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: (point,))
    assert main(["fancy"]) == 1
    assert "broken_commands fails to import: RuntimeError: no such luck" in capsys.readouterr().err
    assert main(["cache", "size"]) == 0


@pytest.mark.parametrize("argv", [[], ["frobnicate"], ["backends", "--xml"], ["explain"]])
def test_wrong_usage_exits_with_2(argv, capsys):
    with pytest.raises(SystemExit) as e:
        main(argv)
    assert e.value.code == 2
    assert "usage: jitney" in capsys.readouterr().err


def test_backends_as_a_table(capsys):
    assert main(["backends"]) == 0
    out = capsys.readouterr().out
    assert "eager" in out and "jitney-eager" in out and "loaded" in out


def test_backends_as_json(capsys):
    assert main(["backends", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["backends"]
    eager = next(row for row in rows if row["name"] == "eager")
    assert (eager["package"], eager["version"], eager["status"]) == ("jitney-eager", "0.1.0", "loaded")


def test_backends_shows_the_traceback_of_a_broken_one(capsys, monkeypatch):
    row = Listing("bad", "badpkg", "1.0", "broken", "Traceback: no module named [thing]")
    monkeypatch.setattr(registry, "listings", lambda load: [row])
    assert main(["backends"]) == 0
    assert "Traceback: no module named [thing]" in capsys.readouterr().out


def test_doctor_is_content_here(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "Python" in out and "torch" in out and "cache_size_limit" in out


def test_doctor_names_a_misspelt_variable(capsys, monkeypatch):
    monkeypatch.setenv("JITNEY_CACHE_SIZE_LIMT", "3")
    assert main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "JITNEY_CACHE_SIZE_LIMT" in out and "did you mean 'JITNEY_CACHE_SIZE_LIMIT'" in out


def test_doctor_lists_variables_that_are_refused(capsys, monkeypatch):
    monkeypatch.setenv("JITNEY_CACHE_SIZE_LIMIT", "many")
    monkeypatch.setenv("JITNEY_LOGS", "recompile")
    assert main(["doctor"]) == 1
    bad = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.startswith("bad")]
    assert bad == [
        "bad JITNEY_CACHE_SIZE_LIMIT environment variable JITNEY_CACHE_SIZE_LIMIT is an int of at least 0, got 'many' "
        "try: JITNEY_CACHE_SIZE_LIMIT=8, the default",
        "bad JITNEY_LOGS environment variable JITNEY_LOGS: there is no log artefact 'recompile' "
        "try: did you mean 'recompiles'?",
    ]


def test_doctor_leaves_the_variables_of_test_suites_alone(capsys, monkeypatch):
    monkeypatch.setenv("JITNEY_TEST_ANYTHING", "3")
    assert main(["doctor"]) == 0
    assert "JITNEY_TEST_ANYTHING" not in capsys.readouterr().out


def test_doctor_finds_a_broken_plugin(monkeypatch, capsys):
    row = Listing("bad", "badpkg", "1.0", "broken", "Traceback:\n  line\nModuleNotFoundError: No module named 'x'")
    monkeypatch.setattr(registry, "listings", lambda load: [row])
    assert main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "bad backend bad badpkg 1.0: broken (ModuleNotFoundError: No module named 'x') `jitney backends` shows" in out
    )


def doctors_word(capsys, name):
    """Status and line of a backend's row."""
    status = main(["doctor"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if f"backend {name} " in line)
    return status, " ".join(line.split())


def test_doctor_tries_each_backend(capsys):
    for name in ("eager", "aot_eager"):
        package = f"jitney-{name.replace('_', '-')}"
        word = f"ok backend {name} {package} 0.1.0: loaded, a small training step is right"
        assert doctors_word(capsys, name)[1] == word


def multiplied(graph, inputs, request):
    return lambda *args: [x * 1.1 if isinstance(x, torch.Tensor) else x for x in graph.forward(*args)]


def raising(graph, inputs, request):
    raise KeyError("no such operator")


def failing_late(graph, inputs, request):
    return (lambda *args: 1 / 0) if request.kind == "backward" else graph.forward


@pytest.mark.parametrize(
    ("compile_graph", "devices", "mark", "word"),
    [
        (multiplied, (), "bad", "differs from eager"),
        (raising, (), "bad", "fails: raised KeyError: 'no such operator'"),
        (failing_late, ("cuda", "cpu"), "bad", "fails: the compiled backward graph of _step raised ZeroDivisionError"),
        (raising, ("martian",), "ok", "not tried, there is no martian here"),
    ],
)
def test_doctor_finds_an_ill_backend(capsys, compile_graph, devices, mark, word):
    register_backend(Backend("patient", compile_graph, level="aten", device_types=devices))
    try:
        status, line = doctors_word(capsys, "patient")
    finally:
        registry.unregister_backend("patient")
    assert line.startswith(f"{mark} backend patient (this process)") and word in line
    assert status == 1 or mark == "ok"


@pytest.mark.parametrize(("devices", "mark"), [(("cuda",), "ok"), (("cpu",), "bad")])
def test_doctor_says_what_a_backend_lacks_on_this_machine(capsys, monkeypatch, devices, mark):
    """A machine without a GPU is well all the same."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    register_backend(
        Backend("patient", raising, level="aten", device_types=devices, lacks=lambda: ["no fuel", "no wheels"])
    )
    try:
        status, line = doctors_word(capsys, "patient")
    finally:
        registry.unregister_backend("patient")
    assert line.startswith(f"{mark} backend patient") and line.endswith("cannot work here: no fuel; no wheels")
    assert status == (mark == "bad")


def test_doctor_contains_a_backend_whose_lacks_raises(capsys):
    def lacks():
        raise OSError("the driver does not answer")

    register_backend(Backend("patient", raising, level="aten", lacks=lacks))
    try:
        status, line = doctors_word(capsys, "patient")
        others = doctors_word(capsys, "eager")[1]
    finally:
        registry.unregister_backend("patient")
    assert line.startswith("bad backend patient") and status == 1
    assert line.endswith("its field 'lacks' raised OSError: the driver does not answer")
    assert others.startswith("ok backend eager") and others.endswith("a small training step is right")


def test_doctor_finds_a_folder_that_cannot_be_written(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with config.patch(base_dir=str(tmp_path / "new")):
        assert main(["doctor"]) == 1
    assert "not writable" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "good"), [((2, 10), False), ((2, 11), True), ((2, 13), True), ((2, 14), False), ((3, 0), False)]
)
def test_doctor_knows_which_versions_are_supported(version, good):
    assert doctor.supported(version, doctor.TORCHES) is good


PROGRAM = """
import torch

def example_inputs():
    return torch.ones(3), 2

def scaled(x, n):
    print("woo")
    return x.sin() * n

NOT_A_FUNCTION = 3
"""
LONELY = "import torch\ndef alone(n=2):\n    return torch.ones(3) * n\ndef needy(x, *rest, k=1):\n    return x\n"


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "a_program.py"
    path.write_text(PROGRAM)
    yield path
    sys.modules.pop("a_program", None)


def test_explain_calls_the_function_with_the_example_inputs(program, capsys):
    assert main(["explain", f"{program}:scaled", "--plain"]) == 0
    out = capsys.readouterr().out
    assert 'a_program.py:8, in scaled: print("woo")' in out
    assert "Graph break count: 1" in out and "sin" in out
    assert main(["explain", f"{program}:scaled"]) == 0
    assert "1 breaks" in capsys.readouterr().out


def test_explain_calls_without_arguments_if_none_are_needed(tmp_path, capsys):
    (tmp_path / "lonely.py").write_text(LONELY)
    assert main(["explain", f"{tmp_path}/lonely.py:alone", "--plain"]) == 0
    assert "Graph count: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("a_program.py", "is not FILE:FUNCTION"),
        ("absent.py:f", "there is no file"),
        ("a_program.py:scale", "did you mean 'scaled'?"),
        ("a_program.py:NOT_A_FUNCTION", "no function 'NOT_A_FUNCTION'"),
        ("lonely.py:needy", "needy takes x, and"),
        ("lonely.py:needy", "example_inputs"),
    ],
)
def test_explain_says_what_is_wrong_with_its_target(program, target, message, capsys, monkeypatch):
    monkeypatch.chdir(program.parent)
    (program.parent / "lonely.py").write_text(LONELY)
    assert main(["explain", target]) == 1
    err = capsys.readouterr().err
    assert err.startswith("jitney explain: ") and message in err
    assert "explain: explain" not in err


FAILING = """import torch

def example_inputs():
    return torch.ones(3), {count}

def fails(x):
    return inner(x.sin())

def inner(x):
    print("woo")
    y = x @ torch.ones(4, 4)
    return y

{last}
"""


def explained(tmp_path, capsys, monkeypatch, name, **parts):
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    path = tmp_path / "failing.py"
    path.write_text(FAILING.format(**({"count": "", "last": ""} | parts)))
    assert main(["explain", f"{path}:{name}"]) == 1
    return path, capsys.readouterr().err


def test_explain_shows_what_the_function_raises_as_python_would(tmp_path, capsys, monkeypatch):
    path, err = explained(tmp_path, capsys, monkeypatch, "fails")
    assert err == (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 7, in fails\n'
        "    return inner(x.sin())\n"
        "           ^^^^^^^^^^^^^^\n"
        f'  File "{path}", line 11, in inner\n'
        "    y = x @ torch.ones(4, 4)\n"
        "        ~~^~~~~~~~~~~~~~~~~~\n"
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3 and 4x4)\n"
    )


@pytest.mark.parametrize(
    ("last", "lines"),
    [
        ('x = {}["k"]', [", line 14, in <module>", 'x = {}["k"]', "KeyError: 'k'"]),
        ("def f(:", [", line 14", "def f(:", "SyntaxError: invalid syntax"]),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError from e",
            ["ZeroDivisionError: division by zero", "direct cause", ", line 17, in <module>", "KeyError"],
        ),
    ],
)
def test_explain_shows_what_the_file_raises_as_python_would(tmp_path, capsys, monkeypatch, last, lines):
    path, err = explained(tmp_path, capsys, monkeypatch, "fails", last=last)
    assert all(line in err for line in lines) and str(path) in err
    assert str(Path(jitney.__file__).parent) not in err and "importlib" not in err


def test_explain_says_that_the_example_inputs_do_not_fit(tmp_path, capsys, monkeypatch):
    path, err = explained(tmp_path, capsys, monkeypatch, "fails", count="2")
    assert err == (
        f"jitney explain: example_inputs() of {path} does not fit fails(x): too many positional arguments\n"
        "try: a tuple with the arguments of fails\n"
    )


def test_a_fault_of_jitneys_in_explain_is_not_hidden(program, monkeypatch):
    def broken(function, **how):
        raise AssertionError("a bug")

    code = broken.__code__.replace(co_filename=jitney.__file__)
    monkeypatch.setattr(explain, "explain", types.FunctionType(code, broken.__globals__))
    with pytest.raises(AssertionError, match="a bug"):
        main(["explain", f"{program}:scaled"])


def test_explain_cuts_no_line_number_whatever_the_width(tmp_path, capsys, monkeypatch):
    folder = tmp_path / ("a_folder_with_a_long_name_" * 5)
    folder.mkdir()
    (folder / "a_program.py").write_text(PROGRAM)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", f"{folder}/a_program.py:scaled"]) == 0
    out = capsys.readouterr().out
    line = f'       {folder}/a_program.py:8, in scaled: print("woo")'
    assert line in out.splitlines()
    sys.modules.pop("a_program", None)


def test_a_difference_is_never_called_equal():
    import torch

    one = {"a": torch.ones(2), "b": torch.zeros(1)}
    assert demo.difference(one, {"a": torch.ones(2), "b": torch.zeros(1)}) == 0
    assert demo.difference(one, {"a": torch.ones(2), "b": torch.full((1,), 0.5)}) == 0.5
    for other in ({"a": torch.ones(2)}, {"a": torch.ones(2), "c": torch.zeros(1)}, torch.ones(2)):
        assert demo.difference(one, other) == float("inf")
    assert demo.difference(torch.ones(2), torch.ones(2, dtype=torch.float64)) == float("inf")
    assert [demo.verdict(value).split("]")[1][:6] for value in (0.0, 1e-7, 1e-3, float("nan"), float("inf"))] == [
        "equal[",
        "~1e-07",
        "differ",
        "differ",
        "differ",
    ]


@pytest.mark.slow
def test_the_demo_finds_every_program_equal(monkeypatch, capsys):
    monkeypatch.setattr(demo, "ROUNDS", 2)
    monkeypatch.setattr(demo_speed, "ROUNDS", 2)
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "differs" not in out and "BERT" in out and "GPT-2" in out
    assert out.count("speedup") == 2 and "softmax" in out
