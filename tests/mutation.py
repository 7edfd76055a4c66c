"""Mutation testing: would a test notice, if a guard, the partition or the schedule were a little wrong?

    python tests/mutation.py --sample 60 --seed 7

Places where a mutant may be are drawn: comparisons, ``and`` and ``or``, ``not``, arithmetic, whole numbers and truth
values, conditions of ``if``, ``any`` and ``all``, ``min`` and ``max``. The tests of a folder run once with a counter at
each place, which tells what tests come there. Then each mutant meets these tests, in a process of its own, until one
fails. No file is written: a mutant is a syntax tree that is compiled in the place of its file.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import functools
import importlib.machinery
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HITS = "jitney_mutation_hits"
# Of each part of the code, the tests that are its own.
FOLDERS = {
    "core/guards": ["tests/guards"],
    "core/aot/partition": ["tests/aot/partition"],
    "lowering/jitney_lowering/scheduler": ["tests/lowering"],
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min"}


def mutated(node: ast.expr) -> ast.expr | None:
    """The wrong expression that stands for a right one; None where there is none."""
    made = copy.deepcopy(node)
    match made:
        case ast.Compare(ops=[op]):
            made.ops = [COMPARISONS[type(op)]()]
        case ast.BoolOp():
            made.op = ast.Or() if isinstance(made.op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            return made.operand
        case ast.BinOp() if type(made.op) in ARITHMETIC and not isinstance(made.left, (ast.Constant, ast.JoinedStr)):
            made.op = ARITHMETIC[type(made.op)]()
        case ast.Constant(value=bool()):
            made.value = not made.value
        case ast.Constant(value=int()):
            made.value = int(made.value) + 1
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED:
            made.func = ast.Name(SWAPPED[name], ast.Load())
        case _:
            return None
    return made


def expressions(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Expressions of code that runs: where each hangs (its parent, the field, the index), and itself."""
    todo: list[ast.AST] = [tree]
    while todo:
        parent = todo.pop()
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "slice") or isinstance(parent, ast.JoinedStr):
                continue
            for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.pattern) or not isinstance(child, ast.AST):
                    continue
                todo.append(child)
                if isinstance(child, ast.expr) and not isinstance(parent, ast.AnnAssign):
                    yield parent, field, at, child


@dataclass(frozen=True)
class Site:
    """A place in a file: the number of an expression that has a mutant."""

    file: str
    number: int
    line: int
    was: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.was} -> {self.becomes}"


def sites(path: Path) -> list[Site]:
    """All places in a file."""
    found = []
    for number, (*_, node) in enumerate(expressions(ast.parse(path.read_text()))):
        other = mutated(node)
        if other is not None:
            texts = (ast.unparse(node)[:100], ast.unparse(other)[:100])
            found.append(Site(str(path.relative_to(ROOT)), number, node.lineno, *texts))
    return found


def rewritten(file: str, changes: dict[int, Callable[[ast.expr], ast.expr]]) -> Any:
    """The code of a file, some of whose expressions are others."""
    tree = ast.parse((ROOT / file).read_text())
    for number, (parent, field, at, node) in enumerate([*expressions(tree)]):
        if number in changes:
            made = ast.copy_location(changes[number](node), node)
            if at is None:
                setattr(parent, field, made)
            else:
                getattr(parent, field)[at] = made
    return compile(ast.fix_missing_locations(tree), str(ROOT / file), "exec", dont_inherit=True)


def counted(place: int, node: ast.expr) -> ast.expr:
    """The expression, and a note that it was reached: by a method of C's, as guards watch for Python that runs."""
    made = ast.parse(f"({HITS}.add({place}), None)[1]", mode="eval").body
    assert isinstance(made, ast.Subscript) and isinstance(made.value, ast.Tuple)
    made.value.elts[1] = node
    return made


def install(codes: dict[str, Any]) -> None:
    """Have imports of these files run this code."""
    ours = {str(ROOT / file): code for file, code in codes.items()}
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, name: str) -> Any:
        return ours.get(os.path.realpath(self.get_filename(name))) or usual(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


class Recorder:
    """A plugin of pytest's that notes which tests come to which places."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hits: dict[int, list[str]] = {}
        self.now: set[int] = set()
        setattr(builtins, HITS, self.now)

    def pytest_runtest_logstart(self) -> None:
        """A test begins."""
        self.now.clear()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test ends."""
        for place in self.now:
            self.hits.setdefault(place, []).append(nodeid)

    def pytest_sessionfinish(self) -> None:
        """All are over."""
        self.path.write_text(json.dumps(self.hits))


def child(work: Callable[[], int], seconds: float) -> int:
    """The exit status of a process that does this with no output, or -1 if it took too long."""
    pid = os.fork()
    if not pid:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        status = 70
        try:
            status = int(work())
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return abs(os.waitstatus_to_exitcode(status))
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


def run_tests(*arguments: str, plugins: Sequence[Any] = ()) -> int:
    """Pytest, here."""
    import pytest

    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", *arguments]
    return int(pytest.main(options, plugins=list(plugins)))


def reached(chosen: Sequence[Site], tests: Sequence[str], seconds: float) -> dict[int, list[str]] | None:
    """The tests that come to each place; None if they do not pass as the code is."""

    def record() -> int:
        changes: dict[str, dict[int, Callable[[ast.expr], ast.expr]]] = {}
        for place, site in enumerate(chosen):
            changes.setdefault(site.file, {})[site.number] = functools.partial(counted, place)
        install({file: rewritten(file, each) for file, each in changes.items()})
        return run_tests(*tests, plugins=[Recorder(path)])

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hits"
        if child(record, seconds) != 0:
            return None
        return {int(place): names for place, names in json.loads(path.read_text()).items()}


def survives(site: Site, tests: Sequence[str], seconds: float) -> bool:
    """Do these tests pass with a mutant? One that hangs does not survive."""

    def meet() -> int:
        def other(node: ast.expr) -> ast.expr:
            return mutated(node) or node

        install({site.file: rewritten(site.file, {site.number: other})})
        return run_tests("-x", *tests)

    return child(meet, seconds) == 0


def drawn(folder: str, count: int, draw: random.Random) -> list[Site]:
    """Some places of a folder."""
    found = [site for path in sorted((ROOT / folder).rglob("*.py")) for site in sites(path)]
    return draw.sample(found, min(count, len(found)))


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if the tests do not pass as the code is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="how many mutants in all (%(default)s)")
    parser.add_argument("--folders", default=",".join(FOLDERS), help="of the code (%(default)s)")
    parser.add_argument("--tests", default="", help="instead of the folders' own, separated by commas")
    parser.add_argument("--most", type=int, default=40, help="how many tests meet a mutant (%(default)s)")
    parser.add_argument("--seconds", type=float, default=300, help="for these; ten times as many for all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    os.environ["JITNEY_CACHE"] = "0"
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "tests"))
    import torch  # children need not

    torch.set_num_threads(1)
    folders, draw = options.folders.split(","), random.Random(options.seed)
    killed, survivors, unreached = 0, list[Site](), list[Site]()
    for number, folder in enumerate(folders):
        count = options.sample // len(folders) + (number < options.sample % len(folders))
        chosen = drawn(folder, count, draw)
        hits = reached(chosen, options.tests.split(",") if options.tests else FOLDERS[folder], 10 * options.seconds)
        if hits is None:
            print(f"{folder}: its tests do not pass, or take too long")
            return 1
        for place, site in enumerate(chosen):
            tests = hits.get(place, [])
            if not tests:
                unreached.append(site)
            elif survives(site, draw.sample(tests, min(len(tests), options.most)), options.seconds):
                survivors.append(site)
                print(f"survives {len(tests)} tests: {site}", flush=True)
            else:
                killed += 1
    print(f"seed {options.seed}: {killed} killed, {len(survivors)} survive, {len(unreached)} are where no test comes")
    print(*(f"not reached: {site}" for site in unreached), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
