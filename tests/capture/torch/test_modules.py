"""nn.Module: containers, buffers, named_*, attributes changed in forward, replacement, training, hooks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from helpers import check, check_made, compile_fn, observe, t
from torch import nn


class Mixed(nn.Module):
    """One of each container."""

    def __init__(self) -> None:
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.table = nn.ModuleDict({"tanh": nn.Tanh(), "lin": nn.Linear(3, 3)})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in range(2)])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.zeros(3))})
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.register_buffer("temp", torch.ones(3), persistent=False)
        self.register_parameter("nothing", None)
        self.plain = [1, 2]

    def forward(self, x: torch.Tensor, key: str = "tanh") -> torch.Tensor:
        x = self.seq(x)
        for i, layer in enumerate(self.layers):
            x = layer(x) + self.plain[i]
        x = self.table[key](x)
        for w in self.weights:
            x = x + w
        for name, p in self.named.items():
            x = x * p if name == "a" else x + p
        return x * self.scale + self.temp + (0 if self.nothing is None else 1)


def test_containers() -> None:
    check(Mixed(), t(2, 3), graphs=1)
    check(Mixed(), t(2, 3), "lin", graphs=1)


def test_container_operations() -> None:
    def fn(m: Mixed, x: torch.Tensor) -> tuple[Any, ...]:
        return (
            len(m.layers),
            m.layers[-1](x),
            m.layers[0:1][0](x),
            m.seq[0](x),
            len(m.seq),
            [type(c).__name__ for c in m.seq],
            "tanh" in m.table,
            list(m.table.keys()),
            len(m.weights),
            m.named["a"],
            list(m.named),
            m.layers[0] is next(iter(m.layers)),
        )

    check(fn, Mixed(), t(2, 3), graphs=1)


def test_named_traversals() -> None:
    def fn(m: Mixed, x: torch.Tensor) -> tuple[Any, ...]:
        total = x.sum()
        for _, p in m.named_parameters():
            total = total + p.sum()
        for b in m.buffers():
            total = total + b.sum()
        names = [n for n, _ in m.named_modules()]
        children = [n for n, _ in m.named_children()]
        numel = sum(p.numel() for p in m.parameters() if p.requires_grad)
        return total, names, children, numel, sorted(m.state_dict().keys()), next(m.parameters()).dtype

    check(fn, Mixed(), t(2, 3))


def test_module_called_from_function_and_made_inside() -> None:
    def fn(x: torch.Tensor, m: nn.Module) -> tuple[Any, ...]:
        act = nn.GELU()
        return act(m(x)), nn.functional.relu(x), nn.Softmax(dim=-1)(x), nn.Identity()(x) is x

    check(fn, t(2, 3), nn.Linear(3, 3), graphs=1)


def test_module_with_parameters_made_inside() -> None:
    check(lambda x: nn.Linear(3, 2)(x), t(2, 3), calls=2)


def test_attribute_changed_in_forward() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.history: list[Any] = []
            self.mode = "first"

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.history.append(self.count)
            if self.mode == "first":
                self.mode = "later"
                return x + self.count
            return x * len(self.history)

    check(Model(), t(), calls=4)


def test_lazily_created_submodule_and_buffer() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.inner is None:
                self.inner = nn.ReLU()
                self.register_buffer("seen", torch.zeros(x.shape[-1]))
            self.seen += 1
            return self.inner(x) + self.seen

    check(Lazy(), t(2, 3), calls=3)


def test_lazy_linear() -> None:
    check(nn.Sequential(nn.LazyLinear(2), nn.ReLU()), t(2, 3), calls=3, skips=None)


def test_submodule_replaced_between_calls() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        compiled: dict[str, Any] = {"n": 0}

        class Swap(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model
                self.n = 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                out = self.model(x)
                self.n += 1
                self.model[1] = nn.Tanh() if self.n % 2 else nn.ReLU()
                return out

        del compiled
        return Swap()

    check_made(make, t(2, 3), calls=3)


@pytest.mark.parametrize("training", [True, False])
def test_training_flag_dropout_and_batch_norm(training: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train(training)
    check(model, t(4, 3), calls=3, graphs=1)


def test_training_flag_toggled_inside() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
            was = self.training
            self.eval()
            a = self.drop(x)
            self.train(was)
            return a, self.drop(x), self.training

    check(Model(), t(4, 3), calls=2)


def test_module_properties_methods_and_getattr() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        @property
        def width(self) -> int:
            return self.lin.weight.shape[0]

        def helper(self, x: torch.Tensor) -> torch.Tensor:
            return self.lin(x) * self.width

        def __getattr__(self, name: str) -> Any:
            if name == "alias":
                return self.lin
            return super().__getattr__(name)

        def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
            return self.helper(x), self.alias(x), hasattr(self, "nope"), getattr(self, "nope", 3)

    check(Model(), t(2, 3), graphs=1)


def test_inheritance_and_super_forward() -> None:
    class Loud(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 10

    check(nn.Sequential(Loud(3, 3), Loud(3, 2)), t(2, 3), graphs=1)


def test_shared_parameters_and_submodules() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.out = nn.Linear(3, 5, bias=False)
            self.out.weight = self.embed.weight
            self.again = self.out

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.again(self.embed(i)) + self.out(self.embed(i))

    check(Tied(), torch.tensor([0, 3]), graphs=1)


def test_keyword_arguments_and_structured_outputs() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, *, mask: Any = None, **kw: Any) -> dict[str, Any]:
            out = {"x": x + 1, "extra": list(kw.items())}
            if mask is not None:
                out["masked"] = (x * mask, [mask, x])
            return out

    check(Model(), t(3), graphs=1)
    check(Model(), t(3), mask=t(3) > 0, other="a", graphs=1)


def test_module_list_modified_in_forward() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.ReLU()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x) - 0.25
            if len(self.layers) < 3:
                self.layers.append(nn.Tanh())
            return x

    check(Model(), t(2, 3), calls=4)


def test_gradients_flow_to_parameters() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    other = copy.deepcopy(model)
    x, y = t(2, 3, requires_grad=True), t(2, 3, requires_grad=True)
    model(x).sum().backward()
    compile_fn(other)(y).sum().backward()
    assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None and torch.equal(p.grad, q.grad)


def test_compiled_module_looks_like_the_original() -> None:
    model = Mixed()
    compiled = compile_fn(model)
    x = t(2, 3)
    expected = model(x)
    assert torch.equal(compiled(x), expected)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    assert compiled.layers is model.layers and compiled.plain is model.plain
    compiled.eval()
    assert not model.training and not compiled.training
    model.train()
    assert compiled.training and compiled.seq.training
    assert isinstance(compiled, nn.Module)
    compiled.load_state_dict(Mixed().state_dict())
    assert torch.equal(compiled(x), model(x))


def test_methods_that_return_the_module_return_the_compiled_one() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    compiled = compile_fn(model)
    for found in (
        compiled.eval(),
        compiled.to("cpu"),
        compiled.requires_grad_(False),
        compiled.apply(lambda part: None),
    ):
        assert found is compiled
    assert compiled.double() is compiled and not model.training
    assert model[0].weight.dtype == torch.float64 and not model[0].weight.requires_grad
    with observe() as seen:
        compiled.eval()(t(2, 3).double())
    assert len(seen.graphs) == 1


def test_an_attribute_of_such_a_name_is_the_programs() -> None:
    model = nn.ReLU()
    model.type = "relu"  # type: ignore[assignment, method-assign]
    assert compile_fn(model).type == "relu"


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_module_of_torchscript_is_called_as_it_is() -> None:
    traced = torch.jit.trace(nn.Linear(3, 2), t(2, 3))
    assert torch.equal(compile_fn(traced)(t(2, 3)), traced(t(2, 3)))


def test_compiled_module_can_be_copied_and_pickled() -> None:
    compiled = compile_fn(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    x = t(2, 3)
    expected = compiled(x)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert torch.equal(other(x), expected)
        with torch.no_grad():
            next(iter(other.parameters())).zero_()
        assert not torch.equal(other(x), expected)
    assert torch.equal(compiled(x), expected)


# --- hooks ---------------------------------------------------------------------------------------------------------


def test_forward_pre_hook_and_hook_change_values() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        model[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        model[0].register_forward_hook(lambda m, args, out: out + args[0])
        model.register_forward_hook(lambda m, args, out: None)
        return model

    check_made(make, t(2, 3), graphs=1)


def test_hooks_with_kwargs_and_prepend() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return x * scale

    def make() -> Any:
        log: list[str] = []
        model = Model()

        def pre(m: Any, args: Any, kwargs: Any) -> Any:
            log.append("pre")
            return args, {**kwargs, "scale": kwargs.get("scale", 1.0) * 3}

        def post(m: Any, args: Any, kwargs: Any, out: Any) -> Any:
            log.append(f"post {kwargs['scale']}")
            return out + 1

        model.register_forward_pre_hook(pre, with_kwargs=True)
        model.register_forward_hook(post, with_kwargs=True)
        model.register_forward_hook(lambda m, a, o: log.append("first"), prepend=True)
        return model, log

    check_made(make, t(), scale=2.0, graphs=1)


def test_hook_that_records_activations() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        seen: dict[str, Any] = {}
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        for name, child in model.named_children():
            child.register_forward_hook(lambda m, a, out, name=name: seen.__setitem__(name, out))
        return model, seen

    check_made(make, t(2, 3), calls=2)


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_of_all_modules_for_one_call(kind: str) -> None:
    register = getattr(nn.modules.module, f"register_module_{kind}_hook")

    def make() -> Any:
        model = nn.Sequential(nn.Tanh(), nn.ReLU())

        def fn(x: torch.Tensor) -> Any:
            before = model(x)
            handle = register(lambda m, args, *out: out[0] + 0.5 if out else (args[0] * 2,))
            within = model(x)
            handle.remove()
            return before, within, model(x)

        return fn

    check_made(make, t(3), calls=4)


def test_hook_that_removes_itself() -> None:
    def make() -> Any:
        model = nn.ReLU()
        log: list[int] = []

        def once(m: Any, args: Any, out: Any) -> Any:
            log.append(1)
            handle.remove()
            return out + 100

        handle = model.register_forward_hook(once)
        return model, log

    check_made(make, t(), calls=3, skips=None)


def test_always_call_hook_on_exception() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("forward")

    def make() -> Any:
        log: list[str] = []
        model = Model()
        model.register_forward_hook(lambda m, a, o: log.append("always"), always_call=True)
        return model, log

    check_made(make, t(), raises=ValueError, skips=None)


def test_backward_hooks_on_module_and_tensor() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        log: list[Any] = []
        lin = nn.Linear(3, 2)
        lin.register_full_backward_hook(lambda m, gi, go: log.append(("module", go[0].sum())))

        def fn(x: torch.Tensor) -> Any:
            h = lin(x)
            h.register_hook(lambda g: g * 2)
            h.sum().backward()
            return lin.weight.grad

        return fn, log

    check_made(make, t(2, 3, requires_grad=True), calls=1, skips=None)


def test_parametrization_and_spectral_norm() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        return nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))

    check_made(make, t(2, 3), skips=None)


def test_checkpoint_inside_module() -> None:
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.lin, x, use_reentrant=False).relu()

    check(Model(), t(2, 3, requires_grad=True), skips=None)


@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(3, 4, batch_first=True),
        nn.GRU(3, 4),
        nn.MultiheadAttention(4, 2, batch_first=True),
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0),
        nn.Conv1d(2, 3, 1),
        nn.LayerNorm(4),
        nn.Embedding(5, 3),
    ],
    ids=lambda m: type(m).__name__,
)
def test_library_layers(layer: nn.Module) -> None:
    inputs: dict[str, tuple[torch.Tensor, ...]] = {
        "LSTM": (t(2, 5, 3),),
        "GRU": (t(2, 5, 3),),
        "MultiheadAttention": (t(2, 3, 4),) * 3,
        "TransformerEncoderLayer": (t(2, 3, 4),),
        "Conv1d": (t(1, 2, 4),),
        "LayerNorm": (t(2, 4),),
        "Embedding": (torch.tensor([[0, 1], [4, 2]]),),
    }
    check(layer, *inputs[type(layer).__name__])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_attention_in_inference_whose_weights_nobody_wants(backend: str) -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()

    def program(x: torch.Tensor, wanted: bool) -> Any:
        found, weights = attention(x, x, x, need_weights=wanted)
        return found + 1 if weights is None else found + weights.sum(), weights

    compiled = compile_fn(program, backend=backend)
    x = t(2, 3, 4)
    with torch.no_grad(), observe() as seen:
        for wanted in (False, True):
            torch.testing.assert_close(compiled(x, wanted), program(x, wanted), rtol=0, atol=0)
    assert not seen.breaks and not seen.kept


def test_a_state_dict_has_its_metadata() -> None:
    model = torch.nn.BatchNorm1d(2)
    made = compile_fn(lambda x: (x + 1, model.state_dict()))(t())[1]
    assert made._metadata == model.state_dict()._metadata


def test_options_that_a_function_of_torchs_gets_as_an_object() -> None:
    """``F.linear_cross_entropy`` reads a frozen dataclass: it is looked into."""
    if not hasattr(nn, "LinearCrossEntropyOptions"):
        return  # older versions of torch lack it
    for options in ({}, {"batch_chunk_size": 2}):
        options = nn.LinearCrossEntropyOptions(allow_retain_graph=True, **options)
        loss = nn.LinearCrossEntropyLoss(3, 5, options=options)
        check(loss, torch.randn(4, 3), torch.tensor([0, 1, 4, 2]), graphs=1, breaks=0)


def test_functions_of_torchs_that_check_numbers_are_looked_into() -> None:
    """``F.gaussian_nll_loss`` raises where a variance is negative."""
    loss = nn.GaussianNLLLoss(full=True)
    x, target = torch.randn(70, 2), torch.randn(70, 2)
    check(lambda x, y, v: loss(x, y, v.exp()), x, target, torch.randn(70, 2), graphs=1, breaks=0)
    check(lambda x, y, v: loss(x, y, v * 1), x, target, torch.randn(70, 2), raises=ValueError, skips=None)


class Traced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu() * self.weight


def test_modules_that_hold_graphs() -> None:
    module = torch.fx.symbolic_trace(Traced())
    check(module, t(2, 3), graphs=1, breaks=0)
    check(nn.Sequential(module, nn.Tanh(), copy.deepcopy(module)), t(2, 3), graphs=1, breaks=0)

    def fails(x: torch.Tensor) -> torch.Tensor:
        return module(x, x) + 1

    check(fails, t(2, 3), raises=TypeError, skips=None)
    compiled = compile_fn(module, fullgraph=True)
    assert torch.equal(compiled(t(2, 3)), module(t(2, 3)))
    next(node for node in module.graph.nodes if node.target == "relu").target = "tanh"
    module.recompile()
    assert torch.equal(compiled(t(2, 3)), module(t(2, 3)))
