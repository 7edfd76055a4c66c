"""disable, graph_break, allow_in_graph, disallow_in_graph, is_compiling, fullgraph: the user's levers."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import pytest
import torch
from helpers import FRONTEND, check, check_made, check_scenario, compile_fn, disable, graph_break, observe, t

COMPILED: Any = None
only_jitney = pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own names")


def test_disabled_function_runs_as_it_is() -> None:
    @disable
    def opaque(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        log.append(torch.compiler.is_compiling())
        return x.sum() + len(log)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        y = opaque(x + 1, log)
        return y * 2, log

    check(fn, t(), graphs=2, breaks=1, skips=None)


def test_disabled_method() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        @disable
        def opaque(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.opaque(x + 1) + self.opaque(x) + self.calls

    check(Model(), t(), skips=None)


def test_disabled_functions_of_torch_are_honoured() -> None:
    @torch.compiler.disable
    def opaque(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x + 1, torch.compiler.is_compiling()

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y, flag = opaque(x * 2)
        return y - 1, flag

    check(fn, t(), graphs=2, breaks=1, skips=None)


def test_disabled_function_as_argument_and_with_arguments() -> None:
    @disable(recursive=False)
    def shell(f: Any, x: torch.Tensor) -> torch.Tensor:
        y = f(x)
        print("shell")
        return y + 1

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    check(lambda x: shell(inner, x + 1) - 1, t(), skips=None)


def test_torch_library_function_marked_by_dynamo_is_honoured() -> None:
    @torch._dynamo.disable
    def opaque(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x + 1, torch.compiler.is_compiling()

    check(lambda x: opaque(x * 2), t(), graphs=1, breaks=1, skips=None)


def test_is_compiling_is_true_inside_and_false_outside() -> None:
    def fn(x: torch.Tensor) -> tuple[bool, bool, torch.Tensor]:
        return torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling(), x + 1

    compiled = compile_fn(fn)
    inside = FRONTEND != "identity"
    assert compiled(t())[:2] == (inside, inside)
    assert fn(t())[:2] == (False, False)
    assert not torch.compiler.is_compiling()


@only_jitney
def test_own_is_compiling() -> None:
    import jitney

    def fn(x: torch.Tensor) -> tuple[bool, bool, torch.Tensor]:
        return jitney.is_compiling(), jitney.is_dynamo_compiling(), x + 1

    assert compile_fn(fn)(t())[:2] == (True, True)
    assert not jitney.is_compiling()


@only_jitney
def test_allow_in_graph_records_the_function_itself() -> None:
    import jitney

    @jitney.allow_in_graph
    def secret(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row * 2 for row in x.unbind()])

    with observe() as seen:
        out = compile_fn(lambda x: secret(x + 1) - 1)(t())
    assert torch.equal(out, (t() + 1) * 2 - 1)
    assert len(seen.graphs) == 1 and not seen.breaks
    assert any(node.target is secret for node in seen.graphs[0].graph.nodes)


@only_jitney
def test_disallow_in_graph_breaks_at_the_operation() -> None:
    import jitney

    jitney.disallow_in_graph(torch.sinh)
    try:
        with observe() as seen:
            out = compile_fn(lambda x: torch.sinh(x + 1) * 2)(t())
    finally:
        jitney.capture.marks._disallowed.discard(torch.sinh)
    assert torch.equal(out, torch.sinh(t() + 1) * 2)
    assert len(seen.graphs) == 2 and len(seen.breaks) == 1


@torch.library.custom_op("jitney_escape::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


F = torch.nn.functional
OPS = torch.ops.jitney_escape
FORMS = (lambda x: twice(x), lambda x: OPS.twice(x), lambda x: OPS.twice.default(x))
DISALLOWED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a custom operator": (twice, FORMS),
    "its packet": (OPS.twice, FORMS),
    "its overload": (OPS.twice.default, FORMS),
    "a packet of aten": (torch.ops.aten.sin, (lambda x: torch.ops.aten.sin(x),)),
    "an overload of aten": (torch.ops.aten.sin.default, (lambda x: torch.ops.aten.sin.default(x),)),
    "a method in C": (torch.Tensor.sin, (lambda x: x.sin(), lambda x: torch.Tensor.sin(x))),
    "a method in Python": (torch.Tensor.split, (lambda x: x.split(1)[0],)),
    "a function in Python": (F.softmax, (lambda x: F.softmax(x, 0),)),
    "a function in C": (F.gelu, (lambda x: F.gelu(x),)),
    "a list": ([torch.cos, torch.sinh], (lambda x: torch.cos(x), lambda x: torch.sinh(x))),
    "a callback": (torch.sinh, (lambda x: list(map(torch.sinh, [x]))[0],)),
}


@only_jitney
@pytest.mark.parametrize("name", DISALLOWED)
@pytest.mark.parametrize("of_torch", [False, True])
def test_whatever_is_disallowed_breaks_the_graph(name: str, of_torch: bool) -> None:
    import jitney

    what, forms = DISALLOWED[name]
    compiler: Any = importlib.import_module("torch._dynamo.trace_rules")._disallowed_callable_ids
    marked = what if isinstance(what, list) else [what]
    if of_torch:
        assert torch._dynamo.decorators._disallow_in_graph_helper(throw_if_not_allowed=False)(what) in (what, marked)
    else:
        assert jitney.disallow_in_graph(what) in (what, marked)
    try:
        for form in forms:
            with observe() as seen:
                out = compile_fn(lambda x, form=form: form(x + 1) * 2)(t())
            assert torch.equal(out, form(t() + 1) * 2)
            assert seen.breaks and all("disallowed" in reason for reason in seen.breaks)
    finally:
        for fn in marked:
            compiler.remove(id(fn))
            jitney.allow_in_graph(fn)
            jitney.capture.marks._allowed.discard(fn)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


SCALED = Scaled(3.0)


@only_jitney
@pytest.mark.parametrize("method", [Twice.apply, SCALED.scale], ids=["of a class", "of an object"])
def test_bound_methods_are_marked_though_each_access_makes_them_anew(method: Any) -> None:
    import jitney

    owner, name = method.__self__, method.__name__
    call = lambda x: getattr(owner, name)(x + 1) - 1  # noqa: E731
    x = t().requires_grad_()
    for mark, breaks in ((jitney.disallow_in_graph, 1), (jitney.allow_in_graph, 0)):
        mark(getattr(owner, name))
        with observe() as seen:
            out = compile_fn(call)(x)
        assert torch.equal(out, call(x)) and len(seen.breaks) == breaks
        assert any("disallowed" in reason for reason in seen.breaks) == bool(breaks)
    assert any(getattr(node.target, "__name__", "").endswith(name) for node in seen.graphs[0].graph.nodes)
    assert jitney.capture.marks.is_allowed(getattr(owner, name))
    jitney.capture.marks._allowed.discard(getattr(owner, name))
    assert not jitney.capture.marks.is_allowed(getattr(owner, name))


@only_jitney
def test_torchs_allow_in_graph_is_one_node() -> None:
    def secret(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert torch.compiler.allow_in_graph(secret) is secret
    with observe() as seen:
        assert torch.equal(compile_fn(lambda x: secret(x + 1) - 1)(t()), (t() + 1) * 2 - 1)
    assert any(node.target is secret for node in seen.graphs[0].graph.nodes)
    from jitney.capture.marks import _names, everything_said

    gc.freeze()  # as a server does before it forks
    try:
        _names.cache_clear()
        assert any("secret" in said for said in everything_said())
    finally:
        gc.unfreeze()


@only_jitney
def test_what_cannot_be_in_a_graph_is_refused() -> None:
    import jitney

    mixed: Any = [torch.sin, 3]
    with pytest.raises(TypeError, match="not callable"):
        jitney.disallow_in_graph(mixed)
    jitney.allow_in_graph(torch.sin)
    jitney.capture.marks._allowed.discard(torch.sin)


@only_jitney
def test_fullgraph_refuses_a_break_and_names_the_line() -> None:
    from jitney.errors import Unsupported

    def fn(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        items.append(1)
        y = x + 1
        print("here")
        return y * 2

    items: list[int] = []
    with pytest.raises(Unsupported) as caught:
        compile_fn(fn, fullgraph=True)(t(), items)
    first = str(caught.value).splitlines()[0]
    assert "test_escape_hatches.py" in first and 'print("here")' in first
    assert items == []


def test_fullgraph_accepts_what_has_no_break() -> None:
    check(lambda x: torch.relu(x + 1), t(), compile_options={"fullgraph": True}, graphs=1)


@only_jitney
def test_compile_disabled_is_the_function() -> None:
    with observe() as seen:
        assert torch.equal(compile_fn(lambda x: x + 1, disable=True)(t()), t() + 1)
    assert not seen.graphs


def test_compile_as_decorator() -> None:
    @compile_fn
    def fn(x: torch.Tensor, n: int = 2) -> torch.Tensor:
        """Doubles."""
        return x * n

    assert torch.equal(fn(t()), t() * 2)
    assert torch.equal(fn(t(), n=3), t() * 3)
    assert fn.__name__ == "fn" and fn.__doc__ == "Doubles."


def test_compiled_function_called_from_compiled_function() -> None:
    global COMPILED
    COMPILED = compile_fn(lambda x: x * 2)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return COMPILED(x + 1) - 1

    check(fn, t(), skips=None)


def test_compiled_method() -> None:
    class Model:
        def __init__(self) -> None:
            self.n = 3

        def run(self, x: torch.Tensor) -> torch.Tensor:
            self.n += 1
            return x * self.n

    check(Model().run, t(), calls=3)


def test_graph_break_alone() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        graph_break()
        return x + 1

    check(fn, t(), graphs=1, breaks=1)


def test_recursive_disable_covers_callees() -> None:
    def make() -> Any:
        log: list[bool] = []

        def inner(x: torch.Tensor) -> torch.Tensor:
            log.append(torch.compiler.is_compiling())
            return x + 1

        @disable
        def outer(x: torch.Tensor) -> torch.Tensor:
            return inner(x) * 2

        return (lambda x: outer(x - 1)), log

    check_made(make, t(), skips=None)


@only_jitney
def test_what_raises_under_compilation_goes_as_in_eager() -> None:
    """mace: whoever compiles is to have asked for gradients of the positions before."""

    def forces(data: dict[str, torch.Tensor], weight: torch.Tensor) -> Any:
        if not torch.compiler.is_compiling():
            data["positions"].requires_grad_(True)
        positions = data["positions"]
        energy = (positions.sin() * weight).sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return energy, -gradient

    def scenario(compile: Any) -> Any:
        compiled, told = compile(forces), []
        for _ in range(3):
            weight = t(3).requires_grad_()
            energy, found = compiled({"positions": t(3)}, weight)
            (energy + found.square().sum()).backward()
            told.append((energy, found, weight.grad))
        return told

    with observe() as seen:
        check_scenario(scenario)
    assert seen.skips == []
    check(forces, {"positions": t(3).requires_grad_()}, t(3).requires_grad_(), graphs=1, breaks=0)


@only_jitney
@pytest.mark.parametrize("own", [False, True])
def test_a_refusal_to_be_compiled_is_not_met(own: bool) -> None:
    import jitney

    asked = jitney.is_compiling if own else torch.compiler.is_compiling

    def fn(x: torch.Tensor) -> torch.Tensor:
        if asked():
            raise NotImplementedError("not under compilation")
        return x + 1

    check(fn, t(2), graphs=1, breaks=0)


@only_jitney
def test_an_exception_that_the_program_handles_is_no_refusal() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            if torch.compiler.is_compiling():
                raise NotImplementedError("not under compilation")
        except NotImplementedError:
            return x * 2
        return x + 1

    assert compile_fn(fn)(torch.ones(2)).tolist() == [2, 2]


def test_what_raises_either_way_raises() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2 if torch.compiler.is_compiling() else x + x
        if x.dim() == 1:
            raise ValueError(f"one dimension of {x.dim()}")
        return y @ x

    check(fn, t(2), raises=ValueError)
    check(fn, t(2, 3), raises=RuntimeError)
