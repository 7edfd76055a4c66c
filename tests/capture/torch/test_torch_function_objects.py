"""Objects that are no tensors and take over torch's functions: ``__torch_function__`` is interpreted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import compile_fn, observe, t

LOG: list[str] = []


class Masked:
    """A tensor and which of its elements count."""

    def __init__(self, data: torch.Tensor, mask: torch.Tensor) -> None:
        self.data = data
        self.mask = mask

    @classmethod
    def __torch_function__(cls, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        mask = next(a.mask for a in args if isinstance(a, Masked))
        plain = [a.data if isinstance(a, Masked) else a for a in args]
        if func is torch.sum:
            return (plain[0] * mask).sum()
        return cls(func(*plain, **(kwargs or {})), mask)

    def __add__(self, other: Any) -> Any:
        return torch.add(self, other)


class Noted:
    """Notes what it is asked, and leaves some of it to others."""

    def __init__(self, value: float) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = [kind.__name__ for kind in classes]
        LOG.append(f"{cls.__name__} {getattr(func, '__name__', '?')} {names} {len(args)} {sorted(kwargs or {})}")
        if func is torch.sub:
            return NotImplemented
        return [a.value if isinstance(a, Noted) else a for a in args if not isinstance(a, (list, tuple))]


class Below(Noted):
    pass


class Other:
    value = 5.0

    def __repr__(self) -> str:
        return "Other()"

    @classmethod
    def __torch_function__(cls, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(f"Other {len(args)}")
        return "other"


def test_masked_tensors_are_one_graph() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> Any:
        masked = torch.exp(Masked(x, mask)) + 1
        return torch.sum(masked), F.relu(masked).data, torch.relu(masked).data

    compiled = compile_fn(fn, fullgraph=True)
    with observe() as seen:
        for n in (2, 3, 4):
            x = t(n, 3)
            torch.testing.assert_close(compiled(x, x > 0), fn(x, x > 0))
    assert len(seen.graphs) <= 2


def test_one_from_outside_is_guarded() -> None:
    compiled = compile_fn(lambda m: torch.sum(torch.mul(m, 2)), fullgraph=True)
    for dtype in (torch.float32, torch.float64):
        x = t(3).to(dtype)
        assert compiled(Masked(x, x > 0)).equal((x * 2 * (x > 0)).sum())


CALLS: dict[str, Any] = {
    "a function": lambda x, a, b: torch.add(x, a),
    "a keyword": lambda x, a, b: torch.add(x, other=a),
    "in a list": lambda x, a, b: torch.cat([x, a, b]),
    "two classes": lambda x, a, b: torch.add(a, b),
    "the other order": lambda x, a, b: torch.add(b, a),
    "of nn.functional": lambda x, a, b: F.softmax(a, dim=0),
    "a method": lambda x, a, b: x.mul(a),
    "a method of the class": lambda x, a, b: torch.Tensor.mul(x, a),
    "an operator": lambda x, a, b: (x + a, x * b, a - x if False else 0),
    "a reflected operator": lambda x, a, b: a * x,
    "a comparison": lambda x, a, b: torch.eq(x, a),
    "declined": lambda x, a, b: torch.sub(a, b),
    "not where tensors are": lambda x, a, b: torch.sum(x, dim=a),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("other", [Below, Noted, Other])
def test_torch_decides_who_is_asked(name: str, other: Any) -> None:
    def fn(x: torch.Tensor, a: Any, b: Any) -> Any:
        try:
            return x + 1, CALLS[name](x, a, b)
        except TypeError as error:
            return x - 1, str(error)

    told = []
    for call in (compile_fn(fn), fn):
        LOG.clear()
        told.append((repr(call(t(), Noted(1.0), other(2.0) if other is not Other else Other())), list(LOG)))
    assert told[0] == told[1]


def test_a_break_within_it() -> None:
    class Broken:
        @classmethod
        def __torch_function__(cls, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0].sum().item() if torch.is_tensor(args[0]) else func

    compiled = compile_fn(lambda x: x * torch.add(x, Broken()))
    assert compiled(t()).equal(t() * t().sum().item())


class Proxy:
    """Stands for a tensor that it makes when it is asked for something."""

    def __init__(self) -> None:
        self.made: Any = None
        self.asked = 0

    def get(self) -> Any:
        if self.made is None:
            self.made = torch.arange(2.0)
        return self.made

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        return getattr(self.get(), name)

    def __rmul__(self, other: Any) -> Any:
        return other * self.get()

    def __mul__(self, other: Any) -> Any:
        return self.get() * other


ASKING: dict[str, Any] = {
    "reflected": lambda x, p: x * p,
    "its own": lambda x, p: p * x,
    "a function": lambda x, p: torch.add(x, p),
    "in a list": lambda x, p: torch.stack([x, p]),
    "a method": lambda x, p: x.add(p),
    "an index": lambda x, p: x[p],
    "who asks first": lambda x, p: (torch.overrides.has_torch_function((p,)), x + 1),
}


@pytest.mark.parametrize("name", ASKING)
def test_what_an_object_answers_to_torch_itself_is_not_captured(name: str) -> None:
    told = []
    for call in (compile_fn(ASKING[name]), ASKING[name]):
        proxy = Proxy()
        for _ in range(2):
            try:
                outcome = call(torch.ones(2), proxy)
            except TypeError as error:
                outcome = str(error)
            told.append((repr(outcome), type(proxy.made), proxy.asked))
    assert told[:2] == told[2:]


def test_an_object_comes_to_take_over_between_calls() -> None:
    class Plain:
        pass

    def fn(x: torch.Tensor, value: Any) -> Any:
        try:
            return x + 1, torch.add(x, value)
        except TypeError as error:
            return x - 1, str(error)

    compiled, value = compile_fn(fn), Plain()
    assert repr(compiled(t(2), value)) == repr(fn(t(2), value))
    cls: Any = Plain
    cls.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: 42)
    assert compiled(t(2), value)[1] == 42
    del cls.__torch_function__
    cls.__getattr__ = lambda self, name: torch.Tensor.__torch_function__ if name == "__torch_function__" else None
    assert repr(compiled(t(2), value)) == repr(fn(t(2), value))
