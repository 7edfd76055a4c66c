"""torch's private names: what is ours in their place is the same."""

import contextlib
import os
import textwrap
from typing import Any

import pytest
import torch
from fork_server import run_python

from jitney.torch_compat import operator_effects, torch_private


def run(program: str, **environment: str) -> str:
    """The output of a program in a process of its own, where nobody has imported torch._dynamo."""
    done = run_python("-W", "error", "-c", textwrap.dedent(program), env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


SAME_ATTRIBUTES = """
    import sys
    from jitney.torch_compat import torch_private

    def described(found):
        return {k: type(v).__mro__[-2:] if hasattr(v, "__dict__") else v for k, v in vars(found).items()}

    shapes = dict(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    lean = [torch_private.LeanFakeTensorMode(allow_non_fake_inputs=False), torch_private.ShapeEnv(**shapes)]
    assert "torch._dynamo" not in sys.modules or EARLY
    theirs = [torch_private.FakeTensorMode(allow_non_fake_inputs=False), torch_private.TorchShapeEnv(**shapes)]
    assert "torch._dynamo" in sys.modules
    for ours, torchs in zip(lean, theirs, strict=True):
        ours, torchs = described(ours), described(torchs)
        for stack in ("_stack_trace", "fake_tensor_converter"):
            assert (ours.pop(stack, None) is None) == (torchs.pop(stack, None) is None)
        assert ours == torchs, (ours, torchs)
    print(lean[0].cache_enabled, lean[0].cache_crosscheck_enabled)
"""


@pytest.mark.parametrize("early", ["", "import torch._dynamo"])
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "True False"),
        ({"TORCH_FAKE_TENSOR_DISPATCH_CACHE": "0"}, "False False"),
        ({"TORCH_FAKE_TENSOR_DISPATCH_CACHE_CROSSCHECK": "1"}, "True True"),
    ],
)
def test_our_modes_have_the_attributes_of_torchs(environment: dict[str, str], expected: str, early: str) -> None:
    program = f"EARLY = {bool(early or environment)}\n{early}\n" + textwrap.dedent(SAME_ATTRIBUTES)
    assert run(program, **environment).strip() == expected


def test_a_first_call_and_its_backward_do_not_import_torch_dynamo() -> None:
    run("""
        import sys
        import torch
        import jitney

        torch.manual_seed(0)
        module = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        x = torch.randn(2, 3, 8)
        wanted = module(x[:1])
        for backend in ("eager", "aot_eager"):
            out = jitney.compile(module, backend=backend)(x[:1])
            torch.testing.assert_close(out, wanted)
            out.sum().backward()
        assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
        """)


def test_torch_compile_works_after_a_first_call_and_the_other_way_round() -> None:
    run("""
        import sys
        import torch
        import jitney

        def f(x):
            return torch.var_mean(torch.nn.functional.gelu(x.softmax(-1)), -1)[0] + torch.ones(3).true_divide(2)

        def g(x):
            return f(x).cos()

        x = torch.randn(3, 4)
        torch.testing.assert_close(jitney.compile(f, backend="aot_eager")(x), f(x))
        assert "torch._dynamo" not in sys.modules
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        torch.testing.assert_close(torch.compile(g, backend=backend, fullgraph=True)(x), g(x))
        assert len(graphs) == 1
        torch.testing.assert_close(jitney.compile(g, backend="aot_eager")(x), g(x))
        """)


def test_wrappers_are_as_torch_left_them_after_a_capture() -> None:
    run("""
        import sys
        import torch
        from jitney.torch_compat import torch_private

        kept = torch_private._kept_away(0)
        assert len(kept) > 100
        calls = []

        @torch._disable_dynamo
        def noted(x):
            calls.append(x)
            return x + 1

        with torch_private.outside_torch_compile():
            with torch_private.outside_torch_compile():
                assert noted(1) == 2
            assert noted(2) == 3
            assert torch._refs.true_divide(torch.ones(2), 2).tolist() == [0.5, 0.5]
            assert "torch._dynamo" not in sys.modules
            import torch._dynamo
            assert noted(3) == 4
            theirs = vars(noted.__wrapped__)["__dynamo_disable"]
        assert calls == [1, 2, 3]
        assert vars(noted.__wrapped__)["__dynamo_disable"] is theirs  # torch's own has taken its place
        others = [f for w, f in torch_private._kept_away(0) if f is not noted.__wrapped__]
        assert not [f for f in others if "passed_on" in repr(vars(f).get("__dynamo_disable"))]
        """)


def test_a_symbolic_size_comes_from_our_shape_env_as_from_torchs() -> None:
    found = []
    for shapes, mode in (
        (torch_private.ShapeEnv, torch_private.LeanFakeTensorMode),
        (torch_private.TorchShapeEnv, torch_private.FakeTensorMode),
    ):
        fake_mode = mode(shape_env=shapes(duck_shape=False))
        dims = [torch_private.DimDynamic.DYNAMIC, torch_private.DimDynamic.STATIC]
        context = torch_private.StatelessSymbolicContext(dynamic_sizes=dims)
        fake = fake_mode.from_tensor(torch.zeros(5, 3), symbolic_context=context, source=torch_private.NamedSource("x"))
        with fake_mode:
            out = torch.cat([fake, fake]).view(-1)
        assert out.shape[0] > 12
        found.append((str(fake.shape[0].node.expr), str(out.shape), [str(g.expr) for g in fake_mode.shape_env.guards]))
    assert found[0] == found[1]


@pytest.mark.parametrize("target", operator_effects.HIDDEN_WRITES, ids=str)
def test_running_statistics_are_written_to_by_name(target: Any) -> None:
    """The table's positions are those of the schema's arguments."""
    graph = torch.fx.Graph()
    names = [a.name for a in target._schema.arguments]
    nodes = [graph.placeholder(name) for name in names]
    given = [True if name == "training" else node for name, node in zip(names, nodes, strict=True)]
    call = graph.call_function(target, tuple(given))
    assert [n.name for n in operator_effects.hidden_writes(call)] == ["running_mean", "running_var"]
    if "training" in names:
        call.args = tuple(False if name == "training" else node for name, node in zip(names, nodes, strict=True))
        assert operator_effects.hidden_writes(call) == []


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")  # torch's own forward-mode formulas
def test_an_operator_that_fails_leaves_the_dispatcher_as_it_was() -> None:
    def mapped(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.vmap(torch.func.jacfwd(lambda a: a * 2))(x)
        return found

    with torch_private.FakeTensorMode(), contextlib.suppress(Exception):  # of torch 2.13, raises and disturbs
        with torch_private.dispatch_kept():
            mapped(torch.ones(2, 3))
    assert mapped(torch.ones(2, 3)).shape == (2, 3, 3)
