"""Tensors: metadata as constants, in-place operations, views, out=, lists of tensors, sizes, dtypes, devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from helpers import Compiled, check, check_scenario, t

import jitney

Fn = Callable[..., Any]

METADATA: dict[str, Fn] = {
    "shape": lambda x: (
        x.shape,
        x.size(),
        x.size(0),
        x.size(-1),
        x.shape[1:],
        x.ndim,
        x.dim(),
        len(x),
        x.numel(),
        x.nelement(),
    ),
    "dtype and device": lambda x: (
        x.dtype,
        x.device,
        x.device.type,
        x.layout,
        x.dtype.is_floating_point,
        x.dtype.itemsize,
    ),
    "predicates": lambda x: (
        x.is_floating_point(),
        x.is_complex(),
        x.is_cuda,
        x.is_contiguous(),
        x.is_sparse,
        x.requires_grad,
    ),
    "strides": lambda x: (
        x.stride(),
        x.stride(0),
        x.storage_offset(),
        x.element_size(),
        x.T.stride(),
        x.is_leaf,
        x.itemsize,
    ),
    "other": lambda x: (x.grad is None, x.grad_fn is None, x.is_meta, x.is_quantized, x.nbytes, type(x).__name__),
    "functions": lambda x: (
        torch.is_tensor(x),
        torch.is_floating_point(x),
        torch.numel(x),
        torch.finfo(x.dtype).max,
        torch.iinfo(torch.int8).min,
    ),
    "derived": lambda x: (
        (x + 1).shape,
        x.sum().dim(),
        x[0].size(),
        (x > 0).dtype,
        x.long().is_floating_point(),
        x.T.is_contiguous(),
    ),
}
SIZES: dict[str, Fn] = {
    "arithmetic": lambda x: (
        x.shape + (1,),
        (1, *x.shape),
        x.shape[:-1] + (2,),
        x.shape * 2,
        x.shape.numel(),
        x.reshape(x.shape[1] * x.shape[0]),
    ),
    "compare": lambda x: (
        x.shape == (2, 3),
        x.shape == torch.Size([2, 3]),
        (2, 3) == x.shape,
        x.shape != x.T.shape,
        3 in x.shape,
    ),
    "unpack": lambda x: (lambda n, m: x.view(m, n) * n)(*x.shape),
    "construct": lambda x: (
        torch.Size([1, 2]),
        torch.zeros(torch.Size((2,))),
        x.new_zeros(x.shape),
        x.expand(4, *x.shape).size(),
    ),
    "index and hash": lambda x: (
        x.shape[-1],
        x.shape.index(3),
        x.shape.count(2),
        {x.shape: 1}[torch.Size([2, 3])],
        max(x.shape),
        sorted(x.shape),
    ),
    "list and map": lambda x: (
        list(x.shape),
        tuple(x.size()),
        [d * 2 for d in x.shape],
        sum(x.shape),
        list(map(str, x.shape)),
        x + 1,
    ),
}
INPLACE: dict[str, Fn] = {
    "add_": lambda x: x.add_(1),
    "chain": lambda x: x.mul_(2).sub_(1).clamp_(min=0),
    "copy_ zero_ fill_": lambda x: (x.copy_(torch.ones(3)), x[0].zero_(), x[1:].fill_(5), x.clone()),
    "view mutated": lambda x: (x.view(3, 1).mul_(3), x),
    "functional": lambda x: (functional.relu(x, inplace=True), x),
    "torch functions": lambda x: (torch.neg_(x), torch.relu_(x), x + 1),
    "masked": lambda x: (x.masked_fill_(x < 0, 9.0), x.clone().masked_scatter_(x > 1, torch.zeros(3))),
    "index": lambda x: (
        x.index_add_(0, torch.tensor([0, 2]), torch.ones(2)),
        x.scatter_(0, torch.tensor([1]), 7.0),
        x.index_fill_(0, torch.tensor([2]), 3.0),
    ),
    "swap through": lambda x: (lambda y: (y.add_(1), x.mul_(2), y is x, y))(x),
    "resize and transpose": lambda x: (x.unsqueeze_(0), x.t_(), x.squeeze_(), x.shape),
    "set data": lambda x: (setattr(x, "data", x.data * 2), x + 1),
    "detach view": lambda x: (x.detach().add_(1), x),
    "new tensor mutated": lambda x: (lambda y: (y.add_(x), y.mul_(2), y))(torch.zeros(3)),
    "uniform": lambda x: (x.uniform_(), x.normal_(), x.clone().bernoulli_(0.5)),
}
VIEWS: dict[str, Fn] = {
    "reshape": lambda x: (
        x.view(-1),
        x.reshape(3, 2),
        x.flatten(),
        x.view(2, -1, 1),
        x.view_as(x),
        x.unflatten(1, (3, 1)),
    ),
    "dims": lambda x: (
        x.T,
        x.t(),
        x.transpose(0, 1),
        x.permute(1, 0),
        x.unsqueeze(0),
        x.unsqueeze(-1).squeeze(-1),
        x.mT,
        x.movedim(0, 1),
    ),
    "expand": lambda x: (
        x.expand(2, 2, 3),
        x[0].expand_as(x),
        x.repeat(2, 1),
        x.broadcast_to(1, 2, 3),
        torch.broadcast_tensors(x, x[0]),
    ),
    "split": lambda x: (
        x.split(1),
        x.chunk(2, dim=1),
        x.unbind(0),
        torch.tensor_split(x, 2),
        x.split([1, 2], dim=1),
        torch.hsplit(x, 3),
    ),
    "select": lambda x: (
        x.select(0, 1),
        x.narrow(1, 0, 2),
        x.diagonal(),
        x.unfold(1, 2, 1),
        x[1],
        x[:, ::2],
        x.swapaxes(0, 1),
    ),
    "alias": lambda x: (
        x.detach(),
        x.view(2, 3),
        x.contiguous() is x,
        x.T.contiguous(),
        x.to(torch.float32) is x,
        x.float() is x,
        x.clone(),
    ),
    "as_strided": lambda x: (x.as_strided((2, 2), (1, 1)), torch.as_strided(x, (3,), (2,)), x.real, x.data),
    "complex and dtype views": lambda x: (
        torch.view_as_complex(x[:, :2].contiguous()),
        x.view(torch.int32),
        torch.complex(x, x).real,
    ),
}
LISTS: dict[str, Fn] = {
    "cat and stack": lambda x: (
        torch.cat([x, x + 1]),
        torch.stack((x, x), dim=1),
        torch.cat([x] * 3, -1),
        torch.hstack([x, x]),
        torch.vstack((x, x)),
    ),
    "loop and append": lambda x: torch.stack([row * i for i, row in enumerate(x)]),
    "sum and max": lambda x: (
        sum(x),
        max(x.unbind(), key=lambda r: r.shape[0]),
        torch.cat([*x.split(1), x]),
        list(x),
        tuple(x),
    ),
    "where and einsum": lambda x: (
        torch.where(x > 0, x, -x),
        torch.einsum("ij,kj->ik", x, x),
        torch.meshgrid(x[0], x[1], indexing="ij"),
    ),
    "foreach": lambda x: torch._foreach_add([x, x], 1),
    "block": lambda x: (
        torch.block_diag(x, x),
        torch.cartesian_prod(x[0], x[1]),
        torch.atleast_3d(x),
        torch.chain_matmul(x, x.T) if False else 0,
    ),
}
DTYPES: dict[str, Fn] = {
    "to": lambda x: (
        x.to(torch.float64),
        x.to("cpu"),
        x.to(device="cpu", dtype=torch.int32),
        x.to(x.double()),
        x.type(torch.float16),
        x.type_as(x.long()),
    ),
    "casts": lambda x: (x.double(), x.half(), x.bfloat16(), x.int(), x.long(), x.bool(), x.char(), x.byte(), x.cpu()),
    "device objects": lambda x: (
        torch.device("cpu") == x.device,
        torch.device("cuda:1").index,
        str(x.device),
        torch.zeros(2, device=x.device),
    ),
    "promotion": lambda x: (
        torch.result_type(x, 1.5),
        torch.promote_types(torch.int32, torch.float16),
        torch.can_cast(torch.float32, torch.int32),
        x + 1,
    ),
    "dtype table": lambda x: {torch.float32: x + 1, torch.int64: x}[x.dtype],
    "type strings": lambda x: (
        x.type(),
        str(x.dtype),
        repr(x.dtype),
        getattr(torch, "float16"),
        x.to(getattr(torch, "bfloat16")),
    ),
}
OUT: dict[str, Fn] = {
    "argument": lambda x, o: (torch.add(x, 1, out=o) is o, o),
    "made inside": lambda x, o: (lambda e: (torch.mul(x, 2, out=e), e, e + 1))(torch.empty(3)),
    "tuple": lambda x, o: (lambda v, i: (torch.max(x, 0, out=(v, i)), v, i))(
        torch.empty(()), torch.empty((), dtype=torch.int64)
    ),
    "slice": lambda x, o: (torch.neg(x[:2], out=o[:2]), o),
    "factory": lambda x, o: (torch.zeros(3, out=o), torch.ones(3, out=o) is o, o + x),
    "matmul": lambda x, o: (torch.outer(x, x, out=torch.empty(3, 3)), o),
}
CREATE: dict[str, Fn] = {
    "tensor from data": lambda x, n: (
        torch.tensor([1, 2]),
        torch.tensor([[1.5], [n]]),
        torch.tensor(n),
        torch.tensor([True]),
        torch.tensor((1, 2), dtype=torch.float64),
    ),
    "tensor from sizes": lambda x, n: (
        torch.tensor(x.shape),
        torch.tensor([x.shape[0], n * 2]),
        torch.tensor([]),
        torch.tensor(2.5, requires_grad=True),
    ),
    "as_tensor": lambda x, n: (
        torch.as_tensor([1, 2]),
        torch.as_tensor(x) is x,
        torch.asarray([n]),
        torch.scalar_tensor(3),
        torch.LongTensor([1, 2]),
    ),
    "factories": lambda x, n: (
        torch.zeros(2, n),
        torch.ones((2,)),
        torch.full((2,), n),
        torch.empty(0),
        torch.eye(n),
        torch.arange(n),
        torch.linspace(0, 1, n),
    ),
    "likes": lambda x, n: (
        torch.zeros_like(x),
        torch.ones_like(x, dtype=torch.int64),
        torch.full_like(x, n),
        x.new_tensor([n]),
        x.new_full((2,), 1),
        x.new_ones(2),
    ),
    "ranges": lambda x, n: (
        torch.arange(1, n, 2),
        torch.arange(0.0, 1.0, 0.25),
        torch.logspace(0, 1, 2),
        torch.arange(x.shape[0], device=x.device),
    ),
    "triangles": lambda x, n: (
        torch.tril(torch.ones(n, n)),
        torch.triu_indices(2, 2),
        torch.ones(n, n).triu(1),
        torch.diag(x),
    ),
    "nested data": lambda x, n: torch.tensor([[i * j for j in range(n)] for i in range(2)], dtype=torch.float32) + x[0],
    "requires_grad": lambda x, n: (
        torch.ones(2, requires_grad=True),
        torch.zeros(2).requires_grad_().is_leaf,
        torch.nn.Parameter(torch.ones(2)),
    ),
    "one hot": lambda x, n: (
        functional.one_hot(torch.tensor([0, 2]), 4),
        torch.nn.functional.pad(x, (1, 2), value=n),
        torch.tensor(3) + n,
    ),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_is_constant(name: str) -> None:
    check(METADATA[name], t(2, 3))


@pytest.mark.parametrize("name", SIZES)
def test_size_arithmetic(name: str) -> None:
    check(SIZES[name], t(2, 3))


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name: str) -> None:
    check(INPLACE[name], t(), calls=2)


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    check(VIEWS[name], t(2, 3), graphs=1)


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_tensors(name: str) -> None:
    check(LISTS[name], t(2, 3), graphs=1)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_and_devices(name: str) -> None:
    check(DTYPES[name], t())


@pytest.mark.parametrize("name", OUT)
def test_out_argument(name: str) -> None:
    check(OUT[name], t(), torch.zeros(3))


@pytest.mark.parametrize("name", CREATE)
def test_creation(name: str) -> None:
    check(CREATE[name], t(), 4)


def test_view_mutated_after_it_was_stored() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        views = [x[i] for i in range(2)]
        y = x.clone()
        for v in views:
            v += 1
        y[0] = views[1]
        z = y.view(-1)
        z[0] = 100
        return views, x, y, z

    check(fn, t(2, 3), graphs=1)


def test_tensor_attributes_set_by_user() -> None:
    def fn(x: torch.Tensor, p: torch.Tensor) -> tuple[Any, ...]:
        y = x + 1
        y.kind = "made"  # type: ignore[attr-defined]
        return y.kind, getattr(p, "tag", None), hasattr(x, "tag"), y  # type: ignore[attr-defined]

    p = torch.nn.Parameter(t())
    p.tag = "weight"  # type: ignore[attr-defined]
    check(fn, t(), p)


def test_grad_read_and_cleared() -> None:
    def fn(w: torch.Tensor) -> tuple[Any, ...]:
        before = w.grad
        (w * 2).sum().backward()
        after = w.grad.clone()  # type: ignore[union-attr]
        w.grad = None
        return before, after

    check(fn, t(3, requires_grad=True), skips=None)


def test_autograd_grad_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = (x**2).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return y, g, g.requires_grad

    check(fn, t(3, requires_grad=True), skips=None)


def test_tensor_methods_by_class_and_by_name() -> None:
    def fn(x: torch.Tensor, name: str) -> tuple[Any, ...]:
        return (
            torch.Tensor.add(x, 1),
            getattr(x, name)(),
            getattr(torch, name)(x),
            x.__add__(1),
            x.__radd__(1),
            x.sub(1, alpha=2),
        )

    check(fn, t(), "exp", graphs=1)


def test_reductions_with_names_and_tuples() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        values, indices = x.topk(2, dim=-1)
        return (
            x.sum((0, 1)),
            x.mean(-1, keepdim=True),
            x.std(),
            x.argmax(),
            values,
            indices,
            x.cumsum(0),
            x.min(1).values,
        )

    check(fn, t(2, 3), graphs=1)


def test_data_dependent_shapes() -> None:
    check(lambda x: ((x > 0).nonzero(), x[x > 0], torch.unique(x), x + 1), t(2, 3), skips=None)


def test_sparse_and_complex() -> None:
    check(lambda x: (x.to_sparse().to_dense(), torch.fft.fft(x[0]).abs(), torch.polar(x, x)), t(2, 3), skips=None)


def test_tensor_hash_id_and_dict_key() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x + 1
        names = {x: "x", y: "y"}
        return names[x], names[y], hash(x) == hash(x), x in names, y

    check(fn, t())


def test_torch_functions_as_arguments() -> None:
    check(lambda x, f, g: g(f(x), dim=0), t(2, 3), torch.sigmoid, torch.softmax, graphs=1)


def test_custom_autograd_function() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, n: int) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.n = n
            return x * x * n

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return g * 100 * x * ctx.n, None

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = Square.apply(x + 1, 3)
        return y * 2, torch.autograd.grad(y.sum(), x)

    check(fn, t(3, requires_grad=True), skips=None)


@torch.library.custom_op("jitneytest::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * by).to(x.dtype)


@scale.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_operator() -> None:
    check(lambda x: (scale(x + 1, 2.0) - 1, torch.ops.jitneytest.scale(x, 3.0)), t(), graphs=1)


def test_tensor_subclass_with_torch_function() -> None:
    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out

    check(lambda x: (x.as_subclass(Logged) + 1) * 2, t(), skips=None)


def test_torch_function_mode_inside() -> None:
    from torch.overrides import TorchFunctionMode

    class Twice(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.add else out

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        with Twice():
            y = torch.add(x, 1)
        return y, torch.add(x, 1)

    check(fn, t(), skips=None)


def test_new_of_a_size_makes_a_tensor_of_that_size() -> None:
    """``new`` takes a ``torch.Size`` for sizes, and any other tuple for numbers."""

    def reparametrise(mu: torch.Tensor, log: torch.Tensor) -> Any:
        std = log.mul(0.5).exp()
        eps = std.data.new(std.size()).normal_()
        return eps * std + mu, mu.new((2.0, 3.0)), mu.new(torch.Size([])).fill_(1), mu.new(*mu.size()).shape

    compiled = Compiled(reparametrise)
    for n, m in ((4, 6), (5, 3), (2, 2), (7, 3)):
        compiled(torch.ones(n, m), torch.zeros(n, m))


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
@pytest.mark.parametrize("dynamic", [None, True])
def test_packed_sequences_of_several_lengths_are_a_graph_break(
    kind: type[torch.nn.RNNBase], dynamic: bool | None
) -> None:
    layer = kind(2, 3, bidirectional=True)
    pack = torch.nn.utils.rnn.pack_padded_sequence

    def fn(packed: torch.nn.utils.rnn.PackedSequence) -> torch.Tensor:
        return layer(packed)[0].data * 2

    compiled = jitney.compile(fn, backend="eager", dynamic=dynamic)
    for longest in (3, 4, 6):
        packed = pack(torch.randn(longest, 2, 2), torch.tensor([longest, 2]))
        assert torch.equal(compiled(packed), fn(packed))


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_python_classes_as_dtypes(kind: type) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.to(kind), torch.zeros(2, dtype=kind), (x > 0).to(dtype=kind), torch.sum(x, dtype=kind)

    check(fn, t(), graphs=1, breaks=0)


def test_a_list_of_tensors_of_one_element_is_one_of_numbers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([x[:1], x[1], x[None, 2:3]])

    try:
        fn(t())
    except TypeError:
        pytest.skip("a test in this process has set Tensor.__getitem__: C code takes tensors for sequences since then")
    check(fn, t())


def test_a_gradient_from_before_the_data_was_replaced() -> None:
    def story(compile: Any) -> Any:
        x = t()
        x.grad = torch.ones_like(x)
        x.data = torch.zeros(2)
        return compile(lambda v: v + 1)(x)

    check_scenario(story)
