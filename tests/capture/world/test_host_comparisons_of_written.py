"""Numbers read of tensors that are written to in ways that no node of theirs tells: the branch is eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney.config import config

Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def items(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    t[...] = t + 1
    return x * 2 if t.item() > 2 else x


def statistics(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    F.batch_norm(x[:, None], t[None], torch.ones(1), training=True)
    return x * 2 if t.item() > 2 else x


def twice_in_a_list(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([t, t], 1)
    return x * 2 if t.item() > 3 else x


def made_inside(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    s = torch.zeros(1)
    s[0] = t
    s[:] = s + 1
    t.add_(1)
    return x * 2 if s.item() > 3 else x


def out(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    torch.add(t, 1, out=t)
    return x * 2 if t.item() > 3 else x


def reflected(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    t.add_(1)
    return x * 2 if (1 - 0.9**t).item() > 0.25 else x


def counted(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    t.add_(1)
    return x * 2 if t.item() > 3 else x


def across_lists(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    other = t * 0 + 1
    torch._foreach_add_([t, other], [other, t])  # the second sum has the first one's
    return x * 2 if other.item() > 2 else x


def list_and_number(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    t.add_(1)
    other = t + 0
    torch._foreach_mul_([t, other], t)
    return x * 2 if other.item() > 3 else x


def named(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_(self=[t], scalar=1)
    return x * 2 if torch.gt(input=t, other=3) else x


def observed(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    on, scale, zero = torch.ones(1, dtype=torch.int64), torch.ones(1), torch.zeros(1, dtype=torch.int32)
    y = torch.fused_moving_avg_obs_fake_quant(x, on, on, torch.zeros(()), t, scale, zero, 0.1, 0, 255, 0)
    return y * 2 if t > 9 else y


def noisy(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    noise = torch.zeros(2)
    torch.ops.aten.rrelu_with_noise(x, noise, training=True)
    return x * 2 if noise.sum() > 0 else x


WRITING = [
    items, statistics, twice_in_a_list, made_inside, out, reflected, counted, across_lists, list_and_number, named,
    observed, noisy,
]  # fmt: skip


@pytest.mark.parametrize("fn", WRITING)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_branch_is_eagers(fn: Program, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "capture_scalar_outputs", True)
    results = []
    for run in (fn, jitney.compile(fn, backend=backend)):
        t = torch.zeros(())
        results.append([run(torch.full((2,), 30.0), t) for _ in range(6)] + [t])
    torch.testing.assert_close(*results)


def test_answers_are_those_of_a_default_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "capture_scalar_outputs", True)
    t, x = torch.tensor(1.0, dtype=torch.float64), torch.ones(2)

    def fn(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x * 2 if (t * torch.tensor(0.1)).item() > 0.1 else x

    before = torch.get_default_dtype()
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            torch.testing.assert_close(jitney.compile(fn, backend="eager")(x, t), fn(x, t))
        finally:
            torch.set_default_dtype(before)


@pytest.mark.parametrize("late", [False, True])
def test_autocast_is_on_where_the_branch_is_not(late: bool) -> None:
    t, x = torch.tensor([1.0078125, 0.99609375], dtype=torch.bfloat16), torch.ones(2)  # its product is rounded to 1

    def fn(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=late):
            product = t.prod()
        return x * 2 if product > 1 else x

    compiled = jitney.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x, t), fn(x, t))
        t = t.clone()


def test_an_answer_under_autocast_is_not_one_without() -> None:
    t, x = torch.tensor([1.0078125, 0.99609375], dtype=torch.bfloat16), torch.ones(2)

    def fn(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x * 2 if t.prod() > 1 else x

    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(jitney.compile(fn, backend="eager")(x, t), fn(x, t))
    torch.testing.assert_close(jitney.compile(fn, backend="eager")(x, t), fn(x, t))


def test_a_recompile_prints_no_memory() -> None:
    def fn(x: torch.Tensor, t: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
        large += 1
        return x * 2 if t.sum() > 2 else x

    compiled, memory = jitney.compile(fn, backend="eager"), torch.zeros(100)
    with jitney.CompileProfiler() as profile:
        compiled(torch.ones(1), torch.zeros(3), torch.zeros(90))
        assert compiled(torch.ones(1), memory[5:8], memory[:90]) == 2
    ((cause, _),) = profile.causes()
    assert "memory that is written to before it, by t, large" in cause and len(cause) < 200
