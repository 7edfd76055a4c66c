"""What extensions may do besides observing: options of their own, modules, ATen graphs, variants of a backward."""

import contextlib
import dataclasses
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from torch import nn

import jitney
from jitney.backends import ExtensionOptions, hookimpl, registry, resolve
from jitney.errors import BackendFailed, InvalidOption, JitneyError, PluginError


@dataclasses.dataclass(frozen=True)
class Options:
    toy: Literal["on", "off"] = "off"
    toy_size: int = 3

    def __post_init__(self):
        if self.toy_size < 1:
            raise ValueError(f"toy_size is at least 1, got {self.toy_size}")


@contextlib.contextmanager
def extended(name="toy", **hooks):
    """An extension with these hooks, until the block ends."""
    extension = SimpleNamespace(**{f"jitney_{hook}": hookimpl(function) for hook, function in hooks.items()})
    registry.register_extension(extension, name)
    try:
        yield extension
    finally:
        registry.unregister_extension(extension)


@pytest.mark.parametrize("backend", ["aot_eager", ["aot_eager", "eager"], lambda graph, inputs: graph])
def test_options_of_an_extension_stand_beside_the_backends(backend):
    with extended(options=lambda: Options):
        bound = resolve(backend, {"toy": "on"})
        assert bound.request("forward", "f").extensions.of(Options) == Options("on", 3)
        assert resolve(backend).request("forward", "f").extensions.of(Options) == Options()


def test_backend_and_extension_each_get_their_own():
    with extended(options=lambda: Options):
        bound = resolve("aot_eager", {"toy_size": 5, "decompose": "core"})
    assert bound.options.decompose == "core"
    assert bound.extensions == ExtensionOptions({Options: Options("off", 5)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"toy": "maybe"}, "option 'toy' of extension 'toy' is 'on' . 'off', got 'maybe'"),
        ({"toy_size": 0}, "extension 'toy' refuses its options: toy_size is at least 1"),
        ({"toi": "on"}, "backend 'aot_eager' has no option 'toi'"),
    ],
)
def test_a_wrong_option_of_an_extension_is_an_error(given, message):
    with extended(options=lambda: Options), pytest.raises(InvalidOption, match=message) as e:
        resolve("aot_eager", given)
    assert "toi" not in given or "'toy'" in e.value.hint


def test_an_option_of_two_extensions_names_both():
    @dataclasses.dataclass
    class Others:
        toy: str = ""

    with extended(options=lambda: Options), extended("other", options=lambda: Others):
        with pytest.raises(InvalidOption, match="'toy' is owned by two extensions"):
            resolve("eager", {"toy": "on"})


def test_an_extension_whose_options_are_no_dataclass_is_named():
    with extended(options=lambda: dict), pytest.raises(PluginError, match="extension 'toy' is a dataclass"):
        resolve("eager", {"toy": "on"})


class Wrapped(nn.Module):
    """What a library wraps around a user's module."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


def test_an_extension_says_how_a_module_is_called():
    asked = []

    def wrap_module(module, compile, options):
        asked.append((type(module), options.of(Options).toy))
        if isinstance(module, Wrapped):
            inner = compile(module.inner)
            return lambda x: inner(x) + 100
        return None

    model = Wrapped(nn.Linear(3, 3))
    x = torch.ones(2, 3)
    with extended(options=lambda: Options, wrap_module=wrap_module):
        compiled = jitney.compile(model, backend="eager", options={"toy": "on"})
        plain = jitney.compile(model.inner, backend="eager")
    assert asked == [(Wrapped, "on"), (nn.Linear, "off")]
    torch.testing.assert_close(compiled(x), model.inner(x) + 100)
    torch.testing.assert_close(plain(x), model.inner(x))
    assert isinstance(compiled, Wrapped) and list(compiled.parameters()) == list(model.parameters())


def test_an_extension_that_fails_to_wrap_is_named():
    with extended(wrap_module=lambda module: 1 / 0), pytest.raises(PluginError, match="'toy' raised ZeroDivisionError"):
        jitney.compile(nn.Linear(1, 1), backend="eager")


def test_inputs_are_told_by_name_and_by_tensor():
    seen = []
    model = nn.Linear(3, 3)
    with extended(transform_graph=lambda graph, request: seen.append((request.arguments, request.whole))):
        jitney.compile(model, backend="eager")(torch.ones(2, 3))
    ((arguments, whole),) = seen
    assert whole
    found = {a.name.rpartition(".")[2].rstrip("']"): a.tensor for a in arguments}
    assert any(t is model.weight for t in found.values()) and any(t is model.bias for t in found.values())
    held = [a for a in arguments if a.tensor is model.weight]
    del model, found
    assert held[0].tensor is None


def test_a_graph_beside_a_break_is_not_the_whole():
    seen = []

    def run(x):
        y = x.sin()
        jitney.graph_break()
        return y.cos()

    with extended(transform_graph=lambda graph, request: seen.append(request.whole)):
        jitney.compile(run, backend="eager")(torch.ones(2))
    assert seen == [False, False]


def doubled(graph, request):
    """Each gradient that a backward computes, times two."""
    if request.kind != "backward" or request.variant != "double":
        return None
    output = next(iter(reversed(graph.graph.nodes)))
    with graph.graph.inserting_before(output):
        new = []
        for node in output.args[0]:
            made = graph.graph.call_function(torch.ops.aten.mul.Tensor, (node, 2.0))
            made.meta.update(node.meta)
            new.append(made)
    output.args = (tuple(new),)
    graph.recompile()
    return graph


class Run:
    def __init__(self):
        self.variant = None
        self.got = []

    def finished(self, gradients):
        self.got.append(gradients)
        return gradients


def test_an_extension_chooses_a_variant_of_the_backward_until_it_runs():
    runs, seen = [], []

    def watch_training(request):
        seen.append([request.arguments[i].tensor for i in request.gradients])
        return lambda: runs.append(Run()) or runs[-1]

    weight = torch.ones(3, requires_grad=True)
    compiled = jitney.compile(lambda x, w: (x * w).sum(), backend="aot_eager")
    x = torch.arange(3.0)
    with extended(transform_aten=doubled, watch_training=watch_training):
        for variant in (None, "double", None, "double"):
            loss = compiled(x, weight)
            runs[-1].variant = variant
            (gradient,) = torch.autograd.grad(loss, weight)
            torch.testing.assert_close(gradient, x * (2 if variant else 1))
    assert len(seen) == 1 and seen[0][0] is weight
    assert [len(run.got) for run in runs] == [0, 1, 0, 1]
    torch.testing.assert_close(runs[1].got[0][1], x * 2)


def test_what_a_transformed_graph_gets_wrong_is_found():
    def shrink(graph, request):
        output = next(iter(reversed(graph.graph.nodes)))
        output.args = (output.args[0][:-1],)
        graph.recompile()
        return graph

    with extended(transform_aten=shrink), pytest.raises(BackendFailed, match="0 outputs, 1 were expected"):
        jitney.compile(lambda x: x.sin(), backend="aot_eager", fullgraph=True)(torch.ones(2))


def test_an_error_that_an_extension_means_is_raised_as_it_is():
    def refuse(graph):
        raise JitneyError("not like this", hint="like that")

    with extended(split_graph=lambda graph, places: refuse(graph)), pytest.raises(JitneyError, match="not like this"):
        jitney.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)(torch.ones(2))


def test_an_extension_that_does_not_act_is_not_asked_and_costs_no_cache():
    asked = []
    with extended(acts=lambda: False, transform_graph=lambda graph: asked.append(graph)):
        assert not registry.changes_graphs()
        jitney.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
    with extended(transform_graph=lambda graph: None):
        assert registry.changes_graphs()
    assert asked == []


def test_what_extensions_tell_is_explained():
    def transform_graph(graph, request):
        request.tell("Toy", ["one row", "another"])

    with extended(transform_graph=transform_graph):
        text = str(jitney.explain(lambda x: x.sin())(torch.ones(2)))
    assert "Toy:\n  <lambda>:\n  one row\n  another\n" in text
