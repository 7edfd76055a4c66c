"""Tensors of the program's own classes: by name only, with torch's own ``__torch_function__``, with one of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import compile_fn, observe, t
from torch import nn
from torch.overrides import TorchFunctionMode

CALLS: list[str] = []


class Plain(torch.Tensor):
    pass


class Below(Plain):
    pass


class Boxes(torch.Tensor):
    """Has properties, methods and a class attribute."""

    SCALE = 2

    @property
    def sides(self) -> Any:
        return self[:, 2:] - self[:, :2]

    @property
    def unit(self) -> Any:
        return self._unit

    @unit.setter
    def unit(self, value: str) -> None:
        self._unit = value + "!"

    def area(self) -> Any:
        sides = self.sides
        return sides[:, 0] * sides[:, 1] * self.SCALE

    def clone(self, *args: Any, **kwargs: Any) -> Any:
        return super().clone(*args, **kwargs) + 1

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Any:
        return tensor.as_subclass(cls)


class Meta(torch.Tensor):
    """Hands a note on to what is computed of it."""

    note: Any

    @staticmethod
    def __new__(cls, data: torch.Tensor, note: Any = None) -> Any:
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data: torch.Tensor, note: Any = None) -> None:
        self.note = note

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Meta):
            result.note = next((a.note for a in args if isinstance(a, Meta) and hasattr(a, "note")), None)
        return result


class Image(torch.Tensor):
    """Keeps its class in a few operations only, and looks at tensors as plain ones meanwhile."""

    kind: str

    def __new__(cls, data: Any, kind: str = "rgb") -> Any:
        made = torch.as_tensor(data).as_subclass(cls)
        made.kind = kind
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if func in (torch.Tensor.clone, torch.Tensor.to):
            result = result.as_subclass(cls)
            result.kind = args[0].kind
        return result


class Spy(torch.Tensor):
    """Notes each call."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _note(func, types, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs or {})


class SpyMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _note(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def _note(func: Any, types: Any, args: Any, kwargs: Any) -> None:
    owner = getattr(getattr(func, "__self__", None), "__name__", "")
    CALLS.append(f"{owner}.{func.__name__} {[c.__name__ for c in types]} {len(args)} {sorted(kwargs or {})}")


class Weight(nn.Parameter):
    """Switches ``__torch_function__`` off, as its base does."""

    scale: float

    def loss(self) -> Any:
        return self.pow(2).sum() * self.scale


def picture(value: Any) -> Any:
    """What a value is, down to the class, the attributes and the gradient of each tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(value, torch.Tensor):
            grad = picture(value.grad) if value.is_leaf else None
            facts = (value.tolist(), value.requires_grad, str(value.dtype), value.stride(), grad)
            return (type(value).__name__, *facts, {k: picture(v) for k, v in vars(value).items()})
        if isinstance(value, (tuple, list)):
            return [picture(v) for v in value]
        return {k: picture(v) for k, v in value.items()} if isinstance(value, dict) else repr(value)


def story(fn: Any, make: Callable[[], tuple[Any, ...]], calls: int = 2) -> Any:
    """Results, arguments and gradients of some calls."""
    told = []
    for _ in range(calls):
        args = make()
        torch.manual_seed(0)
        result = fn(*args)
        wanted = [r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, torch.Tensor)]
        if wanted := [r for r in wanted if r.grad_fn is not None]:
            torch.autograd.backward([r.sum() for r in wanted])
        told.append(picture((result, args)))
    return told


def plain(*sizes: int) -> Any:
    return t(*sizes).as_subclass(Plain)


def inner(*sizes: int) -> Any:
    return (t(*sizes).requires_grad_() * 2).as_subclass(Plain)


def in_place(x: Any, y: Any) -> Any:
    x.add_(1)
    y.mul_(x)
    x[0] = 5
    x += 1
    return x, y, y + x


def views(x: Any) -> Any:
    first, second = x.chunk(2)
    x.view(2, 2)[0] = 0
    alias = x.as_subclass(torch.Tensor)
    alias.mul_(2)
    return first, second, alias, [*x.unbind(0)], x.max(dim=0), x.t(), len(x), x.contiguous() is x, x


def asked(x: Any) -> Any:
    kinds = isinstance(x, Plain), isinstance(x, nn.Parameter), isinstance(x, (int, Spy)), issubclass(type(x), Plain)
    return *kinds, type(x) is Plain, x.__class__ is Plain, torch.is_tensor(x), type(x * 2).__name__


def attributes(x: Any) -> Any:
    made = x * 1
    made.unit, x.unit, made.info = "cm", "mm", {"of": x}
    return made, made.unit, hasattr(made, "info"), hasattr(made, "other"), Boxes.of(t(2, 4)).area()


def steps(x: Any) -> Any:
    weight = torch.ones(3, requires_grad=True)
    loss = (x * weight).sum()
    loss.backward()
    return weight.grad, {"used up": [loss, loss.detach()]}


def unasked(x: Any) -> Any:
    image = Image(x, "grey")
    with torch._C.DisableTorchFunctionSubclass():
        sum_ = image.clone() + 1
    return image, image.clone(), image.clone().kind, image * 2, sum_, image.shape[0]


PROGRAMS: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {
    "results": (lambda x: (x * 2 + 1, torch.relu(x), x.sum(), x.shape, x.dtype), lambda: (plain(2, 3),)),
    "gradients of a leaf": (lambda x: (x * 2).sin().sum(), lambda: (plain(3).requires_grad_(),)),
    "gradients of what was computed": (lambda x: (F.linear(x, x), F.dropout(x, 0.5)), lambda: (inner(2, 2),)),
    "in place": (in_place, lambda: (plain(3), t(3))),
    "views": (views, lambda: (plain(4),)),
    "kinds": (asked, lambda: (plain(2),)),
    "one below another": (
        lambda a, b, c: (a + b, b + a, c + b, torch.stack([c, a]), torch.where(a > 0, a, b)),
        lambda: (plain(3), t(3).as_subclass(Below), t(3)),
    ),
    "methods": (
        lambda b: (b.area(), b.sides, b.clone(), b.SCALE, Boxes.of(b + 1), b.mean()),
        lambda: (t(3, 4).as_subclass(Boxes),),
    ),
    "attributes": (attributes, lambda: (t(3, 4).as_subclass(Boxes),)),
    "notes": (lambda x: (x * 2, x.sum(0).note, x.relu().unbind(0)), lambda: (Meta(t(2, 3), "a"),)),
    "notes made": (lambda x: (Meta(x, {"k": 1}).relu(), Meta(x).note), lambda: (t(2, 3),)),
    "unasked": (unasked, lambda: (t(2, 3),)),
    "fields": (lambda x: (x.clone(), x.to(torch.float64), x.shape, x + 1), lambda: (Image(t(2, 3)),)),
    "a step": (steps, lambda: (plain(3),)),
    "in no grad mode": (lambda x: (_without(x), x * 3), lambda: (inner(2),)),
    "arrays": (lambda x: (x.numpy() + 1, torch.from_numpy(x.numpy()) * 2), lambda: (plain(2),)),
    "itself": (lambda x: (x, {"x": x}), lambda: (plain(2),)),
    "plain ones": (lambda x: _tagged(x * 2, "tag"), lambda: (t(3),)),
}


def _without(x: Any) -> Any:
    with torch.no_grad():
        return x * 2


def _tagged(x: Any, tag: str) -> Any:
    x.tag = tag
    return x, x.tag


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_one_graph_with_the_results_of_eager(name: str, backend: str) -> None:
    fn, make = PROGRAMS[name]
    compiled = compile_fn(fn, fullgraph=True, backend=backend)
    assert story(compiled, make) == story(fn, make)


OPERATIONS = """x.T|x.data|x.dtype|x.device|x.device.type|x.shape|x.size(0)|x.ndim|x.numel()|x.stride()|x.layout
len(x)|[r for r in x]|list(x)|x[0]|x[i]|x[i, 0]|x[:, i]|x[None]|x[..., 0]|sum([x, x])|x @ x.T|-x|abs(x)|1 - x|2 / x
x ** 2|2 ** x|x // 2|x % 2|x == x|x != 1|x < 1|x + x|x.__add__(1)|x.requires_grad|x.is_leaf|x.grad|x.grad_fn
x.is_contiguous()|x.contiguous()|x.storage_offset()|x.cpu()|x.float()|x.to("cpu")|x.type(torch.float64)|x.type()
x.new_zeros(2)|x.new_tensor([1.0])|torch.zeros_like(x)|torch.ones(2)|torch.tensor([1.0])|torch.as_tensor(x)|x.clone()
x.detach()|x.view(-1)|x.reshape(3, -1)|x.split(1)|x.chunk(2)|torch.stack([x, x])|torch.cat((x, x))|x.max(0)
x.max(dim=0).values|F.relu(x)|F.linear(x, x)|F.softmax(x, -1)|F.layer_norm(x, (3,))|F.mse_loss(x, x)|F.gelu(x)
F.dropout(x, 0.5, True)|F.pad(x, (1, 1))|F.interpolate(x[None], scale_factor=2.0)|F.embedding(i, x)|F.one_hot(i, 5)
F.cross_entropy(x, torch.tensor([0, 1]))|torch.where(x > 0, x, x)|torch.einsum("ij,kj->ik", x, x)|x.norm()|torch.norm(x)
x.fill_(1)|x.add_(1)|x.copy_(x + 1)|torch.meshgrid(x[0], x[0], indexing="ij")|bool(x.is_floating_point())|x.expand_as(x)
x.type_as(x)|x.masked_fill(x > 0, 0)|x.gather(0, i[None, None])|x.std(0)|torch.std_mean(x)|F.cosine_similarity(x, x)"""


def _watched(make: Callable[[], Any], around: Callable[[], Any], operations: str = OPERATIONS) -> list[str]:
    """Operations whose results, or the calls that the program sees of them, are not eager's."""
    different = []
    for text in operations.replace("\n", "|").split("|"):
        operation = eval(f"lambda x, i: {text.strip()}", globals())

        def fn(x: Any, i: Any, operation: Any = operation) -> Any:
            with around():
                return operation(x, i)

        told = []
        for call in (fn, compile_fn(fn)):
            CALLS.clear()
            x = make()
            results = []
            for _ in range(2):
                torch.manual_seed(0)
                result = call(x, torch.tensor(1))
                seen = CALLS.copy()
                results.append(picture(result))
            told.append((results, seen))
        if told[0] != told[1]:
            different.append(text)
    return different


@pytest.mark.filterwarnings("ignore")
def test_a_class_sees_the_calls_that_it_sees_in_eager() -> None:
    from contextlib import nullcontext

    assert not _watched(lambda: t(2, 3).as_subclass(Spy), nullcontext)


@pytest.mark.filterwarnings("ignore")
def test_a_mode_sees_the_calls_that_it_sees_in_eager() -> None:
    assert not _watched(lambda: t(2, 3), SpyMode)


def test_each_class_has_its_graph() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x * 2

    makes = [lambda: t(2), lambda: plain(2), lambda: t(2).as_subclass(Spy), lambda: nn.Parameter(t(2))]
    compiled = compile_fn(fn, fullgraph=True)
    for make in [*makes, *reversed(makes)]:
        assert picture(compiled(make())) == picture(fn(make()))


def test_guards_run_nothing_of_the_class() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.sin() + x.shape[0]

    compiled = compile_fn(fn, fullgraph=True)
    with observe() as seen:
        for n in (2, 4, 5, 6):
            told = []
            for call in (fn, compiled):
                CALLS.clear()
                result = call(t(n, 3).as_subclass(Spy))
                told.append((CALLS.copy(), picture(result)))
            assert told[0] == told[1]
    assert len(seen.graphs) == 2  # with sizes that change


def test_a_class_that_changes_is_captured_anew() -> None:
    class Changing(torch.Tensor):
        factor = 1

        def scaled(self) -> Any:
            return self * self.factor

    def fn(x: Any) -> Any:
        return x.scaled(), x + 1

    compiled = compile_fn(fn)

    def rules(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    for _ in range(2):
        assert picture(compiled(t(2).as_subclass(Changing))) == picture(fn(t(2).as_subclass(Changing)))
    Changing.factor = 3
    assert picture(compiled(t(2).as_subclass(Changing))) == picture(fn(t(2).as_subclass(Changing)))
    Changing.__torch_function__ = classmethod(rules)  # type: ignore[assignment]
    assert picture(compiled(t(2).as_subclass(Changing))) == picture(fn(t(2).as_subclass(Changing)))


def test_where_no_class_is_asked_the_results_are_plain() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x * 2

    compiled = compile_fn(fn)
    for _ in range(2):
        assert type(compiled(plain(2))) is Plain
        with torch._C.DisableTorchFunctionSubclass():
            assert type(compiled(plain(2))) is torch.Tensor


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_of_a_class_train(backend: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Weight(t(3, 3))
            self.weight.scale = 2.0

        def forward(self, x: torch.Tensor) -> Any:
            kinds = type(self.weight).__name__, isinstance(self.weight, Weight), isinstance(self.weight, nn.Parameter)
            return (x @ self.weight).sum() + self.weight.loss(), kinds

    ends = []
    for wrap in (lambda fn: fn, lambda fn: compile_fn(fn, fullgraph=True, backend=backend)):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss, kinds = model(x)
            loss.backward()
            optimizer.step()
            assert kinds == ("Weight", True, True)
            return loss.detach()

        step = wrap(step)
        ends.append(([step(t(2, 3)) for _ in range(3)], model.weight.detach()))
    torch.testing.assert_close(ends[0], ends[1])


def test_what_does_not_ask_the_class_is_a_break() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    for fn in (Square.apply, torch.vmap(lambda a: a * 2)):
        compiled = compile_fn(lambda x, fn=fn: fn(x))
        with observe() as seen:
            assert picture(compiled(plain(2, 2))) == picture(fn(plain(2, 2)))
        assert len(seen.breaks) == 1


class Scaled(nn.Parameter):
    """All have a scale, some one of their own."""

    scale = 1.0

    def unit(self) -> Any:
        return 1.0


def test_an_attribute_of_the_class_may_be_hidden_by_one_of_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "tag", 1.0, raising=False)

    class Model(nn.Module):
        def __init__(self, cls: Any, **attributes: Any) -> None:
            super().__init__()
            self.weight = cls(torch.ones(2))
            for name, value in attributes.items():
                setattr(self.weight, name, value)

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.weight.tag * getattr(self.weight, "scale", 1) * getattr(self.weight, "unit", float)()

    given: list[Any] = [{}, {"scale": 3.0}, {"unit": lambda: 5.0}, {"tag": 7.0}, {}]
    for cls in (Scaled, nn.Parameter):
        compiled = compile_fn(lambda m, x: m(x))
        for attributes in given if cls is Scaled else ({}, {"tag": 7.0}):
            model = Model(cls, **attributes) if cls is Scaled else Model(cls, unit=lambda: 1.0, **attributes)
            assert picture(compiled(model, t(2))) == picture(model(t(2)))


@pytest.mark.parametrize("name", ["__add__", "__lt__", "__getitem__", "__len__", "__neg__", "relu", "device"])
def test_what_a_class_comes_to_have_is_noticed(name: str) -> None:
    for base in (torch.Tensor, nn.Parameter):

        class Late(base):  # type: ignore[valid-type, misc]
            pass

        def fn(x: Any) -> Any:
            return x + 1, x < x, x[0], len(x), -x, x.relu(), x.device

        compiled = compile_fn(fn)
        assert picture(compiled(t(2).as_subclass(Late))) == picture(fn(t(2).as_subclass(Late)))
        value: Any = property(lambda self: torch.device("meta")) if name == "device" else lambda self, *args: 5
        setattr(Late, name, value)
        for call in (compiled, compile_fn(lambda x: fn(x))):
            assert picture(call(t(2).as_subclass(Late))) == picture(fn(t(2).as_subclass(Late)))
        delattr(Late, name)
        assert picture(compiled(t(2).as_subclass(Late))) == picture(fn(t(2).as_subclass(Late)))


def _in_place(x: Any, name: str, *args: Any) -> Any:
    y = x * 2
    x = getattr(x, name)(*args)
    return x, y.unsqueeze_(0)


def _to_out(x: Any) -> Any:
    torch.ones(4, out=x)
    return x + 1


RESHAPES: dict[str, Any] = {
    "out=": _to_out,
    "data": lambda x: setattr(x, "data", x + 1) or x + 1,
    "operator": lambda x: (torch.ops.aten.unsqueeze_.default(x, 0), x + 1)[1],
    **{
        name: lambda x, name=name, args=args: _in_place(x, name, *args)
        for name, args in {
            "unsqueeze_": (0,), "squeeze_": (), "t_": (), "transpose_": (0, 1), "swapaxes_": (0, 1), "detach_": (),
            "swapdims_": (0, 1), "as_strided_": ((2,), (1,)), "resize_": (1, 2),
        }.items()
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", RESHAPES)
def test_a_tensor_from_outside_is_given_its_new_shape(name: str) -> None:
    """The graph has another object around the same data."""
    fn = RESHAPES[name]
    for backend in ("eager", "aot_eager"):
        compiled = compile_fn(fn, backend=backend)
        for cls in (Plain, Spy):
            make = lambda cls=cls: torch.Tensor._make_subclass(cls, t(1, 3))  # noqa: E731 (no view, as ``detach_`` asks)
            assert story(compiled, lambda make=make: (make(),)) == story(fn, lambda make=make: (make(),))


def _clamped(w: Any, alias: Any = lambda w: w) -> Any:
    with torch.no_grad():
        alias(w).clamp_(min=0)
    return (w * w).sum()


def _thawed(w: Any, x: Any = 3.0) -> Any:
    w.requires_grad_(False)
    view = w.view(-1)
    w.requires_grad_(True)
    return view * x, view.requires_grad, (w * x).sum()


LEAVES: dict[str, Any] = {
    "written": _clamped,
    "written by another function": lambda w: (torch._foreach_add_([w.detach()], 1), (w * w).sum())[1],
    "written through another": lambda w: _clamped(w, torch.Tensor.detach),
    "written through a view": lambda w: _clamped(w, lambda w: w[:1]),
    "frozen": lambda w: (w * 2).sum() + w.requires_grad_(False).sum(),
    "frozen for a while": _thawed,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_keeps_its_gradient(name: str, backend: str) -> None:
    fn = LEAVES[name]
    for make in (
        lambda: plain(3).requires_grad_(),
        lambda: nn.Parameter(plain(3)),
        lambda: t(3).as_subclass(Spy).requires_grad_(),
    ):
        told = []
        for call in (fn, compile_fn(fn, backend=backend)):
            CALLS.clear()
            told.append((story(call, lambda make=make: (make(),)), [c for c in CALLS if "requires_grad_" in c]))
        assert told[0] == told[1]


IGNORED = """F.hardswish(x)|F.hardsigmoid(x)|torch.fill(x, 2)|torch.vander(x[0])|torch.as_strided(x, (2,), (1,))
torch.linspace(x[0, 0], x[0, 1], 3)|torch.logspace(x[0, 0], 1.0, 3)|torch.rand_like(x)|torch.randn_like(x)
torch.randint_like(x, 5)|torch.normal(x, 1.0)|torch.normal(0.0, x.abs())|torch.bernoulli(x.abs() % 1)
torch.result_type(x, 1)|torch.empty_like(x) * 0|torch.zeros_like(x)|torch.full_like(x, 2)|torch.tensor(x)
torch.as_tensor(x)|torch.asarray(x)|torch.full((2,), 1.0) + x[0, 0]|F.sigmoid(x)|F.tanh(x)
torch.can_cast(x.dtype, x.dtype)|torch.promote_types(x.dtype, x.dtype)|torch.zeros(x.shape)|torch.arange(x.shape[0])
torch.bernoulli(x.abs() % 1, 0.5)
torch.is_tensor(x)|torch.broadcast_shapes(x.shape, (1,))|torch.scalar_tensor(1.0) + x|torch.empty(x.shape).shape
torch.poisson(x.abs())|torch.multinomial(x.abs() + 1, 1)|nn.init.zeros_(x * 2)"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [lambda: t(2, 3).as_subclass(Spy), lambda: plain(2, 3)])
def test_what_torch_says_to_ignore_asks_classes_all_the_same(make: Any) -> None:
    from contextlib import nullcontext

    assert not _watched(make, nullcontext, IGNORED)


def _with_sum(value: Any) -> Any:
    tensor = t(3)
    tensor.sum = value  # type: ignore[method-assign]
    return tensor


def _hides(x: Any) -> Any:
    y = x + 1
    y.add = lambda other: 5
    return y + 0, torch.Tensor.add(y, 1), y.mul(2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_attribute_of_a_tensor_may_hide_a_method(backend: str) -> None:
    fns: list[Any] = [lambda x: (x.sum(), x + 1), lambda x: (torch.Tensor.sum(x), x + 1), _hides]
    for fn in fns:
        compiled = compile_fn(fn, backend=backend)
        for make in (lambda: t(3), lambda: _with_sum(lambda: 7), lambda: _with_sum(lambda: 8), lambda: t(3)):
            got, wanted = compiled(make()), fn(make())
            assert [picture(g) for g in got] == [picture(w) for w in wanted]


@pytest.mark.filterwarnings("ignore")
def test_functions_that_capture_knows_are_seen_as_in_eager() -> None:
    from contextlib import nullcontext

    calls = """torch.stft(x.view(-1), 4, window=torch.ones(4), return_complex=True)|torch.einsum("ij->i", x)
    torch.istft(torch.stft(x.view(-1), 4, window=torch.ones(4), return_complex=True), 4, window=torch.ones(4))
    torch.unbind(x)|torch.split(x, 1)|torch.nn.utils.rnn.pad_sequence([x, x])|torch.broadcast_tensors(x, x)"""
    assert not _watched(lambda: t(2, 3), SpyMode, calls)
    assert not _watched(lambda: t(2, 3).as_subclass(Spy), nullcontext, calls)
