"""What was captured and compiled is used again by a program that begins again, and does what eager does."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
from cache.again import begin, run

import jitney
from jitney.cache import frames, store
from jitney.torch_compat import torch_private

PROGRAMS = {
    "a function": """
        def fn(x): return torch.softmax(x * 2, -1)
        def arguments(): return [torch.arange(6.).view(2, 3)]
    """,
    "a callee, a constant, a default": """
        SCALE = 3.0
        def inner(x, k=2): return x * k + SCALE
        def fn(x, *, bias=1): return inner(x) - inner(x, 5) * bias
        def arguments(): return [torch.arange(6.)]
    """,
    "a closure": """
        def make(n):
            def scaled(x): return x * n
            def fn(x): return scaled(x) + n
            return fn
        fn = make(4)
        def arguments(): return [torch.arange(6.)]
    """,
    "a lambda in a list": """
        STEPS = [lambda x: x + 1, lambda x: x * 2]
        def fn(x):
            for step in STEPS:
                x = step(x)
            return x
        def arguments(): return [torch.arange(6.)]
    """,
    "a sequence of the standard library's kind, whose module calls itself otherwise": """
        from collections.abc import Sequence
        class Scales(Sequence):
            def __getitem__(self, n): return (1, 2, 3)[n]
            def __len__(self): return 3
        scales = Scales()
        def fn(x):
            for scale in scales:
                x = x * scale
            return x
        def arguments(): return [torch.arange(6.)]
    """,
    "a logger's helper that writes once": """
        import functools, logging
        logger = logging.getLogger("begun.again")
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
        @functools.lru_cache(None)
        def warning_once(self, *args): self.warning(*args)
        def fn(x):
            warning_once(logger, "written once")
            return x * 2
        def arguments(): return [torch.arange(6.)]
    """,
    "a module": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
                self.norm = nn.LayerNorm(4)
            @property
            def scale(self): return 2
            def forward(self, x): return self.norm(self.linear(x).relu()) * self.scale
        torch.manual_seed(0)
        fn = nn.Sequential(Block(), Block())
        def arguments(): return [torch.arange(8.).view(2, 4)]
    """,
    "batch norm in training": """
        fn = nn.BatchNorm1d(4).train()
        def arguments(): return [torch.arange(8.).view(2, 4)]
    """,
    "dropout": """
        def fn(x): return F.dropout(x, 0.5) + torch.rand_like(x)
        def arguments(): return [torch.arange(64.)]
    """,
    "autocast": """
        def fn(x, w):
            with torch.autocast("cpu", torch.bfloat16):
                return x @ w
        def arguments(): return [torch.ones(4, 4), torch.eye(4)]
    """,
    "a write to an argument": """
        def fn(x, y):
            x.mul_(2)
            y += x
            return x + y
        def arguments(): return [torch.arange(4.), torch.ones(4)]
    """,
    "results that are views and the argument itself": """
        def fn(x): return x, x.t(), (x + 1).view(-1)[1:], None, 7
        def arguments(): return [torch.arange(6.).view(2, 3)]
    """,
    "a dataclass and a dictionary": """
        import dataclasses
        @dataclasses.dataclass
        class Out:
            a: torch.Tensor
            b: dict
        def fn(x):
            made = Out(x + 1, {"k": [x * 2]})
            return made.a, made.b
        def arguments(): return [torch.arange(4.)]
    """,
    "state in a list": """
        LOG = []
        def fn(x):
            LOG.append(x.shape[0])
            return x + len(LOG)
        def arguments(): return [torch.arange(4.)]
    """,
    "a class with a decorator": """
        import functools
        def twice(f):
            @functools.wraps(f)
            def wrapper(*a): return f(*a) * 2
            return wrapper
        class C:
            @twice
            def apply(self, x): return x + 1
            @staticmethod
            def plain(x): return x - 1
            @classmethod
            def of(cls, x): return cls.plain(x)
        c = C()
        def fn(x): return c.apply(x) + C.of(x)
        def arguments(): return [torch.arange(4.)]
    """,
    "an enumeration": """
        import enum
        class Mode(enum.Enum):
            A = 1
            B = 2
        mode = Mode.B
        def fn(x): return x + (10 if mode is Mode.B else 1)
        def arguments(): return [torch.arange(4.)]
    """,
    "no tensor operation": """
        def fn(x, n): return n + 1
        def arguments(): return [torch.arange(4.), 3]
    """,
    "an operator of several results": """
        def fn(x):
            v, i = x.topk(2)
            return v.sum() + i.sum(), x.split(2)
        def arguments(): return [torch.arange(6.)]
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu", "auto"])
def test_a_program_that_begins_again_is_loaded_and_does_what_eager_does(name: str, backend: str) -> None:
    for turn, wanted in enumerate(("stored", "loaded", "loaded")):
        found, expected, story = run(PROGRAMS[name], backend=backend)
        torch.testing.assert_close(found, expected)
        assert story.steps[-1] == wanted, (turn, story.steps)
        assert turn == 0 or story.loaded


def test_state_of_modules_is_written_by_loaded_frames_too() -> None:
    text = PROGRAMS["batch norm in training"]
    run(text)
    module = begin(text)
    twin = begin(text)
    compiled = jitney.compile(module.fn, backend="aot_eager")
    for _ in range(3):
        with torch.no_grad():
            compiled(*module.arguments()), twin.fn(*module.arguments())
    torch.testing.assert_close(module.fn.state_dict(), twin.fn.state_dict())
    assert module.fn.num_batches_tracked == 3


def test_each_shape_has_its_frame_and_one_for_all_of_them() -> None:
    text = """
        def fn(x): return x.sum(0) * x.shape[0]
        def arguments(): return [torch.ones(5, 2), torch.ones(6, 2), torch.ones(7, 2), torch.ones(9, 2)]
    """

    def each(function, module):
        with torch.no_grad():
            return [function(x) for x in module.arguments()]

    found, expected, story = run(text, each)
    assert found[0].tolist() == expected[0].tolist() and story.steps.count("captured") == 2  # one size, then any
    found, expected, story = run(text, each)
    torch.testing.assert_close(found, expected)
    assert story.loaded


def test_calls_with_other_keywords_find_the_frame_that_fits() -> None:
    text = """
        def fn(x, flag=False, *rest, k=1, **more): return x * (2 if flag else 3) + k + sum(rest) + len(more)
        def arguments(): return torch.ones(3)
    """

    def calls(function, module):
        x = module.arguments()
        with torch.no_grad():
            return [function(x), function(x, True), function(x, True, 5, 6, k=7), function(x, a=1, b=2)]

    for wanted in ("stored", "loaded"):
        found, expected, story = run(text, calls)
        torch.testing.assert_close(found, expected)
        assert story.steps[-1] == wanted
    assert story.loaded


def test_a_size_that_the_last_process_did_not_see_becomes_symbolic_at_once() -> None:
    text = """
        def fn(x): return x.sum(0) * x.shape[0]
        def arguments(): return [torch.ones(5, 2), torch.ones(6, 2), torch.ones(7, 2)]
    """

    def some(count):
        def each(function, module):
            with torch.no_grad():
                return [function(x) for x in module.arguments()[:count]]

        return each

    run(text, some(1))
    found, expected, story = run(text, some(3))
    torch.testing.assert_close(found, expected)
    assert story.steps.count("loaded") == story.steps.count("captured") == 1


def test_the_report_of_a_recompile_names_the_guard_of_a_loaded_frame() -> None:
    text = """
        K = 1
        def fn(x, n): return x * n + K
        def arguments(): return [torch.ones(5, 2), 7.5]
    """
    run(text)
    told: list[str] = []

    def listener(event: object) -> None:
        if isinstance(event, jitney.events.Recompiled):
            told.append(event.guard)

    def calls(function, module):
        x, n = module.arguments()
        with torch.no_grad():
            function(x, n)
            function(x.double(), n)
            module.K = 2
            return function(x.double(), n)

    with jitney.events.listen(listener):
        found, expected, story = run(text, calls)
    torch.testing.assert_close(found, expected)
    assert story.steps[0] == "loaded"
    assert (
        told[0] == "x is Tensor(5, 2) torch.float32 cpu requires_grad=False (found Tensor(5, 2) torch.float64 cpu "
        "requires_grad=False)"
    )
    assert told[1].endswith("(found 2)")


def test_a_function_transform_is_loaded_though_it_makes_torch_register_kernels() -> None:
    text = """
        def inner(x): return (x * 2).sin().sum()
        def fn(x): return torch.vmap(torch.func.grad(inner))(x)
        def arguments(): return [torch.arange(6.).view(2, 3)]
    """
    for wanted in ("stored", "loaded"):
        found, expected, story = run(text, backend="llvm_cpu")
        torch.testing.assert_close(found, expected)
        assert story.steps[-1] == wanted


def test_a_graph_that_is_given_addresses_is_given_them_when_it_is_loaded() -> None:
    text = """
        def fn(a, b, c): return a.mul_(0.5).sub_(b), c.add_(a).sum()
        def arguments(): return [torch.arange(6.) + n for n in range(3)]
    """

    def call(fn: Any, module: Any) -> Any:
        given, others = module.arguments(), module.arguments()
        return [fn(*given)[1].item(), fn(*given)[1].item(), fn(*others)[1].item(), given]

    for wanted in ("stored", "loaded"):
        found, expected, story = run(text, call, backend="llvm_cpu")
        torch.testing.assert_close(found, expected)
        assert story.steps[-1] == wanted


def test_what_vmap_registers_when_it_is_called_first_is_no_kernel_of_the_programs() -> None:
    before = torch_private.program_kernels()
    torch.vmap(torch.sin)(torch.ones(2, 3))
    assert torch_private.program_kernels() == before
    assert any(name.endswith("/FuncTorchBatched") for name in torch.library._impls)  # else it registers nothing


def test_a_loaded_frame_that_fails_draws_what_eager_draws() -> None:
    text = """
        def fn(x, at): return F.dropout(x, 0.5) + torch.rand(4), x[at]
        def arguments(): return [torch.ones(4), torch.tensor([1])]
    """

    def call(fn: Any, module: Any) -> Any:
        x, at = module.arguments()
        fn(x, at)
        with pytest.raises(IndexError):
            fn(x, at + 7)
        return torch.rand(3)

    for loaded in (False, True):
        found, expected, story = run(text, call)
        assert torch.equal(found, expected)
        assert story.loaded == loaded, story.steps


RAISING = """
    import sys, traceback
    def fails(x):
        raise ValueError("no")
    def told(error):
        return [(entry.lineno, entry.name) for entry in traceback.extract_tb(error.__traceback__)]
    def caught(x):
        try:
            fails(x)
        except ValueError as error:
            return x + 1, error
    def line(x):
        try:
            fails(x)
        except ValueError as error:
            return x + 1, error.__traceback__.tb_next.tb_lineno
    def asks(x):
        return x + 1, sys.exception()
    def arguments():
        return (torch.ones(3),)
"""


def _raising(name: str) -> str:
    return textwrap.dedent(RAISING) + f"fn = {name}\n"


def test_a_traceback_names_the_lines_of_the_file_as_it_is_now() -> None:
    def call(function: Any, module: Any) -> Any:
        return module.told(function(torch.ones(3))[1])

    found, expected, story = run(_raising("caught"), call)
    assert found == expected and "stored" in story.steps
    found, expected, story = run("\n# one line more\n" + _raising("caught"), call)
    assert found == expected and story.loaded


def test_a_frame_that_read_a_line_of_a_traceback_is_not_kept() -> None:
    for text in (_raising("line"), "\n# one line more\n" + _raising("line")):
        found, expected, story = run(text)
        assert found[1] == expected[1] and not story.loaded


def test_a_frame_that_asked_what_is_handled_asks_again_when_it_was_loaded() -> None:
    def call(function: Any, module: Any) -> Any:
        found = [function(torch.ones(3))[1]]
        try:
            raise KeyError("outside")
        except KeyError as outside:
            return [*found, function(torch.ones(3))[1] is outside]

    for _ in range(2):
        found, expected, story = run(_raising("asks"), call)
        assert found == expected == [None, True]
    assert "loaded" in story.steps


def test_a_frame_for_strides_that_vary_is_not_for_strides_of_one() -> None:
    """Of the next process the first call, when the frame of the last one is all there is."""
    text = """
        def fn(x): return x.is_contiguous(), x + 1
        whole = torch.arange(24.).reshape(4, 6)
    """

    def call(function: Any, module: Any) -> Any:
        return [function(x)[0] for x in (module.whole.t(), module.whole[:, ::2])]

    assert run(text, call, "eager")[2].steps.count("stored") == 2
    module = begin(text)
    compiled = jitney.compile(module.fn, backend="eager")
    assert [compiled(x)[0] for x in (module.whole[1:], module.whole[:, 1:], module.whole)] == [True, False, True]


def test_names_and_frames_too_deep_to_read_are_passed_over(folder: Any) -> None:
    text = "def fn(x): return x * 2\n"

    def call(function: Any, module: Any) -> Any:
        return function(torch.ones(2))

    run(text, call)
    for path in folder.glob("frames/*"):
        path.write_bytes(store.sealed(b"[" * 100_000))
    found, expected, story = run(text, call)
    torch.testing.assert_close(found, expected)
    assert "captured" in story.steps
    with pytest.raises(ValueError, match="too deep"):
        frames.unpack(b"\xa0\x86\x01\0\0\0\0\0" + b"[" * 100_000)
