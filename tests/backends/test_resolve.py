import importlib
from traceback import FrameSummary

import pytest
import torch

from jitney import events
from jitney.backends import Backend, Registry, resolve
from jitney.config import config
from jitney.errors import BackendFailed, BackendNotFound, InvalidOption, PluginError

STACK = (FrameSummary("model.py", 1, "main"), FrameSummary("model.py", 7, "forward", line="return x + 1"))


@pytest.fixture
def graph():
    return torch.fx.symbolic_trace(lambda x: (x + 1,))


@pytest.fixture
def installed(monkeypatch):
    """An empty registry in place of the process's."""
    empty = Registry()
    monkeypatch.setattr(empty, "_entry_points", lambda group: {})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", empty)
    return empty


def plain(name, priority=None, **fields):
    return Backend(name, lambda graph, inputs, request: graph.forward, auto_priority=priority, **fields)


def build(spec, graph, options=None, kind="inference", cache_key=None):
    bound = resolve(spec, options)
    return bound.compile(graph, [torch.ones(2)], bound.request(kind, "forward", STACK, cache_key))


def test_a_name_a_backend_and_a_callable_run_the_graph(graph):
    def compiler(gm, example_inputs):
        assert isinstance(example_inputs, list)
        return gm.forward

    for spec in ("eager", plain("mine"), compiler):
        assert torch.equal(build(spec, graph)(torch.ones(2))[0], torch.full((2,), 2.0))


def test_the_request_tells_what_is_compiled(graph):
    seen = []

    def compile_graph(gm, inputs, request):
        seen.append(request)
        return gm.forward

    build(Backend("spy", compile_graph), graph, kind="backward", cache_key="k")
    (request,) = seen
    assert (request.backend, request.kind, request.frame) == ("spy", "backward", "forward")
    assert (request.user_stack, request.cache_key, request.options) == (STACK, "k", None)


def test_options_reach_a_callable_that_takes_them(graph):
    def compiler(gm, example_inputs, *, options):
        assert options == {"a": 1}
        return gm.forward

    build(compiler, graph, {"a": 1})
    with pytest.raises(InvalidOption, match="takes no options, got 'a'"):
        resolve(lambda gm, inputs: gm, {"a": 1})


@pytest.mark.parametrize("spec", [3, None, ["eager", 3], {"eager": 1}])
def test_a_spec_of_another_type_is_refused(spec):
    with pytest.raises(BackendNotFound, match="backend="):
        resolve(spec)


def test_what_a_backend_raises_is_chained_and_names_phase_and_user_line(graph):
    def compiler(gm, inputs):
        raise KeyError("no such op")

    with pytest.raises(BackendFailed) as e:
        build(compiler, graph)
    assert str(e.value).splitlines()[:2] == [
        "model.py:7, in forward: return x + 1",
        "backend compiler: raised KeyError: 'no such op' (while compiling the inference graph of forward)",
    ]
    assert isinstance(e.value.__cause__, KeyError)


def test_interrupting_a_backend_is_not_its_failure(graph):
    def compiler(gm, inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(compiler, graph)


@pytest.mark.parametrize("rubbish", [None, 3, "code"])
def test_a_result_that_cannot_be_called_is_refused(graph, rubbish):
    with pytest.raises(BackendFailed, match="not callable"):
        build(lambda gm, inputs: rubbish, graph)


def reject_outputs(outputs):
    eager = resolve("eager")
    eager.reject_outputs(outputs, 2, eager.request("inference", "forward", STACK))


@pytest.mark.parametrize(("outputs", "got"), [(None, "a NoneType"), ((1,), "1 items"), (torch.ones(2), "a Tensor")])
def test_outputs_of_the_wrong_shape_are_refused(outputs, got):
    with pytest.raises(BackendFailed, match=f"returned {got}; its 2 outputs"):
        reject_outputs(outputs)


def test_good_outputs_are_not_refused():
    reject_outputs((1, 2))
    reject_outputs([1, 2])


def test_compiling_is_a_phase_even_if_it_fails(graph):
    seen = []
    with events.listen(seen.append), pytest.raises(BackendFailed):
        build(Backend("bad", lambda *a: 1 / 0), graph)
    assert [(event.name, event.frame) for event in seen if isinstance(event, events.Phase)] == [
        ("backend bad", "forward")
    ]
    begin, end = (event for event in seen if isinstance(event, events.Step))
    assert (begin.number, begin.name, begin.seconds) == (3, "backend bad", None)
    assert (end.number, end.failed) == (3, "BackendFailed") and end.seconds is not None


def test_the_halves_of_an_aten_graph_are_phases_of_their_own(graph):
    seen = []
    backend = Backend("a", lambda graph, inputs, request: graph.forward, level="aten")
    with events.listen(seen.append):
        for kind in ("forward", "backward"):
            build(backend, graph, kind=kind)
    phases = [event.name for event in seen if isinstance(event, events.Phase)]
    assert phases == ["backend a, forward", "backend a, backward"]


def test_decompositions_are_a_table_or_follow_from_the_options():
    assert resolve(Backend("a", print, level="aten")).decompositions() == {}
    table = {torch.ops.aten.silu.default: print}
    assert resolve(Backend("a", print, level="aten", decompositions=table)).decompositions() == table
    assert resolve(Backend("a", print, level="aten", decompositions=lambda options: table)).decompositions() == table


def test_auto_takes_the_one_of_the_highest_priority(installed):
    for name, priority in (("low", -1), ("high", 5), ("middle", 0), ("unasked", None)):
        installed.register_backend(plain(name, priority))
    assert resolve("auto").name == "high"


def test_auto_takes_the_only_one(installed):
    installed.register_backend(plain("mine"))
    assert resolve("auto").name == "mine"


def test_auto_takes_no_backend_without_priority(installed):
    installed.register_backend(plain("one"))
    installed.register_backend(plain("two"))
    with pytest.raises(BackendNotFound, match="'auto' may choose none of one, two: they have no auto_priority") as e:
        resolve("auto")
    assert e.value.hint == "backend='one'"


def test_auto_takes_all_that_share_graphs_if_the_first_does(installed):
    for name, priority, devices in (("whole", 1, ()), ("far", 2, ("cuda",)), ("near", 3, ("cpu",))):
        installed.register_backend(plain(name, priority, level="aten", device_types=devices))
    assert resolve("auto").name == "near+far"
    installed.register_backend(plain("best", 4, level="aten"))
    assert resolve("auto").name == "best"


STRANGER = """
from jitney.backends import Backend
jitney_hook_api = 1
backend = Backend("stranger", lambda graph, inputs, request: graph.forward, auto_priority=1000)
kernels = Backend(
    "kernels", lambda graph, inputs, request: graph.forward, level="aten", device_types=("cpu",), auto_priority=1000
)
"""


def test_an_installed_backend_of_a_stranger_may_be_the_default(install, monkeypatch):
    install("strangerpkg", STRANGER, backends={"stranger": "strangerpkg:backend"})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", Registry())
    assert resolve("auto").name == "stranger"
    with config.patch(plugins_disabled="stranger"):
        assert resolve("auto").name != "stranger"


def test_kernels_of_a_stranger_come_before_those_of_this_project(install, monkeypatch):
    install("kernelpkg", STRANGER, backends={"kernels": "kernelpkg:kernels"})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", Registry())
    first, *others = resolve("auto").parts
    assert first.name == "kernels" and {"llvm_cpu", "triton_gpu"} == {part.name for part in others}


@pytest.mark.parametrize("priority", [1.5, "high", True])
def test_a_priority_is_a_whole_number(priority):
    with pytest.raises(TypeError, match="auto_priority of 'mine' is a whole number or None"):
        plain("mine", priority)


def test_auto_without_backends_says_how_to_install(installed):
    with pytest.raises(BackendNotFound, match=r"pip install 'jitney\[cpu\]'"):
        resolve("auto")


def test_auto_passes_over_a_preferred_one_that_is_broken(install, monkeypatch):
    install("brokenpkg", "import nothing_of_this_name", backends={"llvm_cpu": "brokenpkg:backend"})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", Registry())
    with config.patch(plugins_disabled="triton_gpu"):
        assert resolve("auto").name == "eager"


def test_a_list_of_one_name_is_that_one(installed):
    installed.register_backend(plain("mine"))
    assert resolve(["mine"]).name == "mine"


@pytest.mark.parametrize("names", [["mine", "mien"], ["mien", "mine"], ["mien"]])
def test_a_name_in_a_list_that_nobody_offers_is_not_found(installed, names):
    installed.register_backend(plain("mine"))
    with pytest.raises(BackendNotFound, match=r"(?s)offers a backend 'mien' .*did you mean 'mine'\?"):
        resolve(names)


def test_a_list_goes_on_without_those_that_are_disabled():
    with config.patch(plugins_disabled="aot_eager"):
        assert resolve(["aot_eager", "eager"]).name == "eager"


def test_a_name_in_a_list_that_two_packages_offer_is_an_error(install, monkeypatch):
    for package in ("onepkg", "twopkg"):
        install(package, "", backends={"mine": f"{package}:backend"})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", Registry())
    with pytest.raises(PluginError, match="onepkg, twopkg"):
        resolve(["mine", "eager"])


def test_a_list_that_begins_with_a_backend_of_torch_level_is_that_one(installed):
    installed.register_backend(plain("one"))
    installed.register_backend(plain("two"))
    assert resolve(["one", "two"]).name == "one"


def test_a_list_of_disabled_ones_is_not_found():
    with (
        config.patch(plugins_disabled="eager"),
        pytest.raises(BackendNotFound, match=r"all of \['eager'\] are disabled"),
    ):
        resolve(["eager"])


def test_what_a_backend_saves_is_told_as_an_event(graph):
    def compile_graph(gm, inputs, request):
        request.save("schedule", "first this")
        return gm.forward

    seen = []
    with events.listen(seen.append):
        build(Backend("b", compile_graph), graph)
    assert events.Artefact("schedule", "forward", "b", "first this", "inference") in seen
