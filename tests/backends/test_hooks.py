import importlib
import logging
from types import SimpleNamespace

import pytest
import torch
from pluggy import HookspecMarker, PluginManager

from jitney import events
from jitney.backends import Registry, hookimpl, resolve
from jitney.backends.hookspecs import Hooks
from jitney.errors import BackendFailed, PluginError


@pytest.fixture
def own(monkeypatch):
    """A registry of this test's, which ``resolve`` uses; its observers are forgotten afterwards."""
    fresh = Registry()
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", fresh)
    monkeypatch.setattr(events._bus, "listeners", list(events._bus.listeners))
    return fresh


def build(name="eager"):
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    backend, inputs = resolve(name), [torch.ones(2)]
    request = backend.request("inference", "f")
    return backend.compile(backend.transform(graph, inputs, request), inputs, request)


def adding(value):
    """An extension that adds ``value`` to the graph's output, or multiplies it by three for None."""

    @hookimpl
    def jitney_transform_graph(graph):
        output = next(node for node in graph.graph.nodes if node.op == "output")
        with graph.graph.inserting_before(output):
            operation, operand = (torch.add, value) if value else (torch.mul, 3)
            total = graph.graph.call_function(operation, (output.args[0][0], operand))
        output.args = ((total,),)
        graph.recompile()
        return graph

    return SimpleNamespace(jitney_transform_graph=jitney_transform_graph)


def test_an_implementation_names_the_arguments_that_it_wants(own):
    """So that new ones harm nobody; and one for a later jitney may be marked optional."""
    spec = HookspecMarker("jitney")

    class Later:
        @spec
        def jitney_transform_graph(self, graph, inputs, request, novelty):
            """With an argument more than today."""

    seen = []
    extension = SimpleNamespace(
        jitney_transform_graph=hookimpl(lambda graph: seen.append(graph)),
        jitney_in_a_later_release=hookimpl(optionalhook=True)(lambda graph: seen.append("never")),
    )
    later = PluginManager("jitney")
    later.add_hookspecs(Later)
    later.register(extension)
    later.hook.jitney_transform_graph(graph=1, inputs=2, request=3, novelty=4)
    own.register_extension(extension, "old")
    build()
    assert seen[0] == 1 and len(seen) == 2


def test_deprecated_hooks_and_arguments_warn_at_the_extensions_line(own, monkeypatch):
    spec = dict(Hooks.jitney_transform_graph.jitney_spec)
    gone = {"inputs": DeprecationWarning("use the placeholders' meta")}
    monkeypatch.setattr(Hooks.jitney_transform_graph, "jitney_spec", {**spec, "warn_on_impl_args": gone})
    old = {**Hooks.jitney_acts.jitney_spec, "warn_on_impl": DeprecationWarning("act always")}
    monkeypatch.setattr(Hooks.jitney_acts, "jitney_spec", old)
    with pytest.warns(DeprecationWarning) as warned:
        own.register_extension(SimpleNamespace(jitney_transform_graph=hookimpl(lambda inputs: None)), "old")
        own.register_extension(SimpleNamespace(jitney_acts=hookimpl(lambda: False)), "older")
    here = [str(w.message) for w in warned if w.filename == __file__]
    assert here == ["use the placeholders' meta", "act always"]
    own.register_extension(SimpleNamespace(jitney_transform_graph=hookimpl(lambda graph: None)), "new")


def test_extensions_transform_the_graph_one_after_the_other(own):
    own.register_extension(adding(1.0), "add")  # registered first: called last
    own.register_extension(adding(None), "multiply")
    assert build()(torch.ones(2))[0].tolist() == [7.0, 7.0]  # (1 + 1) * 3 + 1


def test_an_extension_may_leave_the_graph_alone(own):
    own.register_extension(SimpleNamespace(jitney_transform_graph=hookimpl(lambda inputs: None)), "idle")
    assert build()(torch.ones(2))[0].tolist() == [2.0, 2.0]


def test_an_extension_that_raises_or_returns_rubbish_fails_by_name(own):
    bad = SimpleNamespace(jitney_transform_graph=hookimpl(lambda graph: 1 / 0))
    own.register_extension(bad, "divider")
    with pytest.raises(BackendFailed, match="extension divider: raised ZeroDivisionError") as e:
        build()
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    own.unregister_extension(bad)
    own.register_extension(SimpleNamespace(jitney_transform_graph=hookimpl(lambda graph: 3)), "three")
    with pytest.raises(BackendFailed, match="extension three: returned a int"):
        build()


def test_an_unknown_argument_of_a_hook_is_refused(own):
    wrong = SimpleNamespace(jitney_transform_graph=hookimpl(lambda grpah: None))
    with pytest.raises(PluginError, match="'typo' does not fit the hooks"):
        own.register_extension(wrong, "typo")
    assert not own.hooks().has_plugin("typo")


def test_an_observer_sees_events_until_it_is_unregistered(own):
    seen = []
    observer = SimpleNamespace(jitney_observe=hookimpl(lambda event: seen.append(event)))
    own.register_extension(observer, "watch")
    build()
    assert [(type(event).__name__, event.name) for event in seen] == [
        ("Step", "backend eager"), ("Phase", "backend eager"), ("Step", "backend eager")
    ]  # fmt: skip
    own.unregister_extension(observer)
    build()
    assert len(seen) == 3


def test_an_observer_that_raises_is_reported_once_and_dropped(own, caplog):
    own.register_extension(SimpleNamespace(jitney_observe=hookimpl(lambda event: 1 / 0)), "clumsy")
    with caplog.at_level(logging.WARNING, "jitney.plugins"):
        build()
        build()
    assert [record.getMessage() for record in caplog.records] == [
        "extension 'clumsy' raised in jitney_observe; it is not called again"
    ]


EXTENSION = """
from jitney.backends import hookimpl
jitney_hook_api = 1
seen = []
@hookimpl
def jitney_observe(event):
    seen.append(event)
"""


def listed(own, *names):
    """Name and status of these extensions; others may be installed here."""
    return [(row.name, row.status) for row in own.extension_listings() if row.name in names]


def test_an_installed_extension_is_loaded_at_the_first_compile(own, install):
    install("watchpkg", EXTENSION, extensions={"watch": "watchpkg"})
    assert listed(own, "watch") == [("watch", "installed")]
    build()
    assert listed(own, "watch") == [("watch", "loaded")]
    assert {event.name for event in importlib.import_module("watchpkg").seen} == {"backend eager"}


def test_an_installed_extension_that_fails_is_named_with_its_package_and_how_to_do_without_it(own, install):
    code = "jitney_hook_api = 1\nfrom jitney.backends import hookimpl\n"
    install("oddpkg", code + "jitney_transform_graph = hookimpl(lambda graph: 1 / 0)\n", extensions={"odd": "oddpkg"})
    with pytest.raises(BackendFailed, match="extension odd of package oddpkg: raised ZeroDivisionError") as e:
        build()
    assert e.value.hint == "JITNEY_PLUGINS_DISABLED=odd, to do without it"


def test_a_broken_extension_is_left_out_and_compiling_goes_on(own, install, caplog):
    install("badpkg", "raise ImportError('half a package')", extensions={"bad": "badpkg"})
    install("oldpkg", EXTENSION.replace("= 1", "= 0"), extensions={"old": "oldpkg"})
    build()
    assert listed(own, "bad", "old") == [("bad", "broken"), ("old", "broken")]
    assert "half a package" in caplog.text and "oldpkg" in caplog.text
