"""Torch function modes of the program's that the frame enters: their ``__torch_function__`` is interpreted."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from helpers import compile_fn, graph_break, observe, t
from torch import nn
from torch.overrides import TorchFunctionMode


class Twice(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.add else result


class Count(TorchFunctionMode):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.count = dict.fromkeys(names, 0)
        self.depth = 0

    def __enter__(self) -> Any:
        self.depth += 1
        return super().__enter__()

    def __exit__(self, *args: Any) -> Any:
        self.depth -= 1
        return super().__exit__(*args)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in self.count:
            self.count[func.__name__] += 1
        return func(*args, **(kwargs or {}))


class Rounded(TorchFunctionMode):
    """Rounds what layers are given, and makes new tensors double."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.linear:
            args = (args[0].round(), *args[1:])
        if func in (torch.ones, torch.tensor):
            kwargs.setdefault("dtype", torch.float64)
        return func(*args, **kwargs)


def nested(x: torch.Tensor) -> Any:
    with Twice(), Count("add", "relu") as count:
        y = torch.add(x, 1).relu()
        with Twice():
            z = torch.add(y, 2)
    return y, z, torch.add(z, 1), count.count, count.depth


def test_modes_that_the_frame_makes() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))

    def layers(x: torch.Tensor) -> Any:
        with Rounded():
            return model(x), torch.ones(2) + x[0, 0], torch.tensor([1.0, 2.0])

    def raised(x: torch.Tensor) -> Any:
        try:
            with Twice():
                x = torch.add(x, 1)
                raise ValueError
        except ValueError:
            return torch.add(x, 1)

    def pushed(x: torch.Tensor) -> Any:
        mode = Twice()
        mode.__enter__()
        y = torch.add(x, 1)
        mode.__exit__(None, None, None)
        return torch.add(y, 1)

    for fn in (nested, layers, raised, pushed):
        compiled = compile_fn(fn, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(t(2, 3)), fn(t(2, 3)))


def test_a_mode_sees_that_gradients_are_switched_off() -> None:
    class Names(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(f"{func.__name__}{args[-1:] if func is torch._C._set_grad_enabled else ''}")
            return func(*args, **(kwargs or {}))

    def fn(x: torch.Tensor) -> Any:
        with Names() as mode:
            with torch.no_grad():
                y = x * 2
            with torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
                z = x @ x.t()
        return y.requires_grad, z.requires_grad, z, mode.names

    compiled = compile_fn(fn, fullgraph=True)
    for _ in range(2):
        told, want = compiled(t(2, 3, requires_grad=True)), fn(t(2, 3, requires_grad=True))
        assert (told[:2], told[3]) == (want[:2], want[3])
        torch.testing.assert_close(told[2], want[2])


def test_a_mode_from_outside_is_written_to() -> None:
    modes = Count("add", "mul"), Count("add", "mul")

    def fn(x: torch.Tensor, mode: Count) -> Any:
        with mode:
            return torch.add(x, 1) * 2

    compiled = compile_fn(fn, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(t(3), modes[0]), fn(t(3), modes[1]))
    assert modes[0].count == modes[1].count == {"add": 3, "mul": 3}


def test_a_break_within_leaves_the_mode_to_python() -> None:
    def fn(x: torch.Tensor) -> Any:
        x = torch.add(x, 1)
        with Twice():
            y = torch.add(x, 1)
            graph_break()
            y = torch.add(y, 1)
        return torch.add(y, 1)

    compiled = compile_fn(fn)
    with observe() as seen:
        for _ in range(2):
            torch.testing.assert_close(compiled(t(3)), fn(t(3)))
    assert any(reason.startswith("within the torch function mode Twice: ") for reason in seen.breaks)


def test_a_mode_that_stays_is_a_break() -> None:
    mode = Twice()

    def fn(x: torch.Tensor) -> Any:
        mode.__enter__()
        return torch.add(x, 1)

    compiled = compile_fn(fn)
    for call in (fn, compiled, compiled):
        torch.testing.assert_close(call(t(3)), (t(3) + 1) * 2)
        mode.__exit__(None, None, None)
    torch.testing.assert_close(torch.add(t(3), 1), t(3) + 1)


def test_replaced_rules_of_a_mode_are_refused_as_torch_refuses_them() -> None:
    def rules(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) * 3

    def bound(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) * 5

    forms = [bound, classmethod(bound), staticmethod(rules), property(lambda mode: rules), functools.partial(rules)]
    for form in forms:

        class Mode(Twice):
            pass

        def program(x: torch.Tensor, mode: Any) -> torch.Tensor:
            with mode:
                return torch.add(x, 1)

        compiled = compile_fn(program)
        for replaced in (None, form, bound, form):
            if replaced is not None:
                Mode.__torch_function__ = replaced  # type: ignore[method-assign, assignment]
            outcomes = []
            for fn in (program, compiled):
                try:
                    outcomes.append(fn(t(3), Mode()).tolist())
                except RuntimeError as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1], (form, replaced)
