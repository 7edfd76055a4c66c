"""What extensions may do besides observing: options of their own, modules, ATen graphs, variants of a backward."""

import contextlib
import dataclasses
import time
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

    with (
        extended(transform_aten=shrink),
        pytest.raises(BackendFailed, match="(?s)extension toy: .* it has 0 outputs, not 1"),
    ):
        jitney.compile(lambda x: x.sin(), backend="aot_eager", fullgraph=True)(torch.ones(2))


def stranger(graph):
    """A node of another graph, in this one."""
    other = torch.fx.Graph().placeholder("other")
    next(n for n in graph.graph.nodes if n.op.startswith("call")).args = (other,)
    return graph


def wider(graph):
    """One more dimension, with or without saying so."""
    output = graph.graph.output_node()
    with graph.graph.inserting_before(output):
        known = output.args[0][0].meta.get("val")
        operator = torch.unsqueeze if known is None else torch.ops.aten.unsqueeze.default
        made = graph.graph.call_function(operator, (output.args[0][0], 0))
        if known is not None:
            made.meta["val"] = known.unsqueeze(0)
    output.args = ((made, *output.args[0][1:]),)
    return graph


def more_inputs(graph):
    with graph.graph.inserting_before(next(iter(graph.graph.nodes))):
        graph.graph.placeholder("more")
    return graph


def running(**run):
    """A watcher whose runs are like this."""
    kind = type("Run", (), {"variant": 1, "finished": lambda self, gradients: gradients, **run})
    return lambda: lambda: kind()


def raising(*given):
    return 1 / 0


WRONG = {
    "raises": ({"transform_graph": lambda: 1 / 0}, "raised ZeroDivisionError.* .in jitney_transform_graph"),
    "a node of another graph": ({"transform_graph": stranger}, "returned a broken graph: Argument 'other'.* does not"),
    "the same in ATen": ({"transform_aten": stranger}, "returned a broken graph: .*in jitney_transform_aten"),
    "another shape": ({"transform_graph": wider}, "after jitney_transform_graph, output 0 is torch.float32.1"),
    "another shape, in ATen": ({"transform_aten": wider}, "output 0 is torch.float32.1, .* not torch.float32.2, 3"),
    "another input": ({"transform_aten": more_inputs}, "it has 4 inputs, not 3"),
    "no nodes": ({"split_graph": lambda: 7}, "returned 7, not a list of nodes .in jitney_split_graph"),
    "no watcher": ({"watch_training": lambda: 7}, "returned a int, which is not callable .in jitney_watch_training"),
    "no run": ({"watch_training": lambda: lambda: 7}, "'int' object has no attribute 'variant' .in jitney_watch_"),
    "no start": ({"watch_training": lambda: raising}, "raised ZeroDivisionError.*in jitney_watch_training"),
    "a list as variant": ({"watch_training": running(variant=[])}, "raised TypeError: unhashable"),
    "no end": ({"watch_training": running(finished=raising)}, "raised ZeroDivisionError.*in jitney_watch_training"),
    "too few gradients": ({"watch_training": running(finished=lambda *given: ())}, "made nothing of 3 gradients"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_an_extension_does_wrong_names_it_and_the_hook(case):
    hooks, message = WRONG[case]
    compiled = jitney.compile(nn.Linear(3, 3), backend="aot_eager")
    with extended(**hooks), pytest.raises(BackendFailed, match=f"(?s)extension toy: .*{message}"):
        compiled(torch.ones(2, 3, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"acts": raising, "transform_graph": lambda: None}, "raised ZeroDivisionError: .* .in jitney_acts"),
        ({"options": raising}, "raised ZeroDivisionError: .* .in jitney_options"),
        ({"wrap_module": lambda: 7}, "returned 7, which is not callable .in jitney_wrap_module"),
    ],
)
def test_so_does_what_is_about_no_graph(hooks, message):
    with extended(**hooks), pytest.raises(PluginError, match=f"extension 'toy' {message}"):
        options = {"toy": 1} if "options" in hooks else {}
        jitney.compile(nn.Linear(3, 3), backend="eager", options=options)(torch.ones(3))


def test_a_slow_extension_is_seen_in_the_times():
    with extended(transform_graph=lambda: time.sleep(0.02)):
        jitney.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
        assert "extension toy" in jitney.compile_times()


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
