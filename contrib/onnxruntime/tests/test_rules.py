from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from odd_numbers import INF, NAN, odd, run, same

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i8, u8, i16, i32, i64, b8 = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool
FLOATS, WORDS = (f32, f64, bf16, f16), (i32, i64)
aten = torch.ops.aten

# A function of one tensor of odd numbers, the dtypes, and by how many units in the last place it may differ.
ONE = [
    (torch.exp, FLOATS, 2), (torch.log, FLOATS, 2), (torch.sqrt, FLOATS, 1), (torch.reciprocal, FLOATS, 0),
    (torch.sin, (f32, bf16), 2), (torch.cos, (f32, bf16), 2), (torch.tan, (f32,), 2), (torch.sinh, (f32,), 2),
    (torch.cosh, (f32,), 2), (torch.asinh, (f32,), 2), (torch.acosh, (f32,), 2), (torch.atanh, (f32,), 2),
    (torch.tanh, FLOATS, 4), (torch.erf, (f32,), 2), (torch.rsqrt, FLOATS, 1), (torch.sigmoid, FLOATS, 2),
    (F.silu, (f32, f64), 3), (torch.floor, FLOATS, 0), (torch.ceil, FLOATS, 0), (torch.round, FLOATS, 0),
    (torch.neg, (*FLOATS, i8, i64), 0), (torch.abs, (*FLOATS, u8, i32), 0), (torch.relu, (*FLOATS, i32), 0),
    (torch.sign, (f32, f64, i64), 0), (torch.isnan, FLOATS, 0), (torch.isinf, FLOATS, 0),
    (torch.logical_not, (f32, i64, b8), 0), (torch.bitwise_not, (i64, u8, b8), 0), (torch.sin, (i64, b8), 2),
    (lambda x: F.leaky_relu(x, 0.1), (f32, f64), 0), (lambda x: x.clamp(-1, 0.5), FLOATS, 0),
    (lambda x: x.clamp(min=-3), (f32, i64), 0), (lambda x: x.clamp(max=3), (i64, i32), 0), (F.hardtanh, (f32,), 0),
    (lambda x: x + 0.0, FLOATS, 0), (lambda x: x * 1.0, FLOATS, 0), (lambda x: x * 0.1, FLOATS, 0),
    (lambda x: 2 - x, (f32, i64, u8), 0), (lambda x: x - 1, (*FLOATS, u8, i8), 0), (lambda x: x / 3, (*FLOATS, i64), 0),
    (lambda x: x * x, (*FLOATS, i8, i32, i64), 0), (lambda x: torch.add(x, x, alpha=2), (f32, i64), 0),
    (lambda x: x // 3, WORDS, 0), (lambda x: x // -3, WORDS, 0), (lambda x: x % 7, WORDS, 0),
    (lambda x: x % -7, WORDS, 0), (lambda x: torch.div(x, -5, rounding_mode="trunc"), WORDS, 0),
    (lambda x: x**2, (*FLOATS, i64), 0), (lambda x: x**3, (f32, i32), 0), (lambda x: x**0.5, (f32, f64), 1),
    (lambda x: x**-0.5, (f32,), 1), (lambda x: x**-1, (f32,), 0), (lambda x: x**-2, (f32,), 0),
    (lambda x: x**1.7, (f32, f64), 2), (lambda x: x.to(f32), (f64, bf16, f16, i64, b8), 0),
    (lambda x: x.to(i64), (f32, f64, b8, u8), 0), (lambda x: x.to(b8), (f32, i64), 0),
    (lambda x: x.to(bf16), (f32, f64), 0), (lambda x: x.half(), (f32, bf16), 0), (lambda x: x.to(i8), (i64,), 0),
    (lambda x: (x < 0.5, x == 1, x != 2, x >= 0), (*FLOATS, i64, u8), 0),
    (lambda x: torch.where(x > 0, x, 1), (f32, i64, u8), 0), (lambda x: x.masked_fill(x != x, 0.5), FLOATS, 0),
    (lambda x: torch.where(x, x, ~x), (b8,), 0), (lambda x: x.amax(), (*FLOATS, i64, u8, b8), 0),
    (lambda x: x.sqrt().amin(), (f32,), 0), (lambda x: x.argmax(), (f32, i64), 0), (lambda x: x.argmin(), (f64,), 0),
    (lambda x: x.max(0), (f32, i32), 0), (lambda x: x.min(0), (f32, i64), 0),
    (lambda x: (x.any(), x.all()), (f32, b8, i64), 0), (lambda x: x.sum(), (b8, u8, i32), 0),
    (lambda x: x.cumsum(0), (i64, i32, b8, u8), 0), (lambda x: torch.tril(x.view(8, 12), 1), (f32, i64, b8), 0),
    (lambda x: x.view(8, 12).flip(0, 1), FLOATS, 0), (lambda x: F.pad(x, (1, 2), value=3), (f32, i64), 0),
    (lambda x: x.view(2, 48).repeat(3, 1, 2), (f32, i64, b8), 0), (lambda x: x.new_ones(3), (f32,), 0),
    (lambda x: (torch.where(x <= 0, x, 1.0), torch.where(~(x <= 0), -0.0, x)), (f32, f64), 0),
    (lambda x: (torch.where(x != x, x, -x), torch.where(x == x, x, -x)), (f32, f64), 0),
    (lambda x: (torch.full_like(x, -0.0).view(8, -1).sum(1), torch.full_like(x, -0.0).mean()), (f32, f64), 0),
    (torch.trunc, (*FLOATS, i32), 0), (lambda x: x.nan_to_num(0.5, 2.0, -2.0), (f32, f64), 0),
    (torch.nan_to_num, (f32,), 0), (F.hardswish, (f32,), 0), (F.hardsigmoid, (f32,), 0),
    (lambda x: x[9:].view(-1, 3).logsumexp(1), (f32, f64), 4),
    (lambda x: x.view(8, 12)[torch.tensor([[0], [-1]]), torch.tensor([3, -2, 0])], (f32, i64, b8), 0),
    (lambda x: torch.zeros_like(x), FLOATS, 0), (lambda x: torch.full_like(x, 0.1), FLOATS, 0),
    (lambda x: x.view(8, 12)[::3, -2:].clone(), (f32, i8), 0),
    (lambda x: x.view(8, 12).unbind(1)[3].clone(), (f32,), 0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ONE)))
def test_functions_of_odd_numbers_are_eagers(number):
    function, dtypes, units = ONE[number]

    def all_of_them(*xs):
        return [function(x) for x in xs]

    given = [odd(dtype) for dtype in dtypes]
    made, shares = run(all_of_them, *given)
    same(made, all_of_them(*given), units)
    assert set(shares) == {"onnxruntime"}


def pairs(dtype):
    x = odd(dtype, 40)
    return x.repeat_interleave(40), x.repeat(40)


TWO = [
    (torch.add, (f32, f64, bf16, i8, i64), 0), (torch.sub, (f32, f16, u8, i32), 0),
    (torch.mul, (f32, f64, i16, i64), 0), (torch.div, (f32, f64, bf16, i64), 0),
    (torch.maximum, (f32, f64, i64, u8), 0), (torch.minimum, (f32, bf16, i32), 0),
    (torch.pow, (f32, f64), 2), (torch.eq, (f32, b8, i64), 0), (torch.ne, (f32, b8), 0), (torch.lt, (f32, i64, b8), 0),
    (torch.ge, (f64, bf16, i8), 0), (torch.bitwise_and, (i64, b8), 0), (torch.bitwise_or, (u8, b8), 0),
    (torch.bitwise_xor, (i32, b8), 0), (torch.logical_and, (f32, i64), 0), (torch.logical_xor, (b8, f32), 0),
    (lambda a, b: torch.where(a > b, a, b), (f32, i64), 0), (lambda a, b: torch.lerp(a, b, 0.25), (f32,), 2),
    (lambda a, b: torch.cat([a, b]), (f32, b8, bf16), 0),
    (lambda a, b: torch.stack([a, b], -1), (f32, i64), 0),
    (lambda g, y: aten.tanh_backward(g, y), (f32,), 1), (lambda g, y: aten.sigmoid_backward(g, y), (f32,), 1),
    (lambda g, x: aten.threshold_backward(g, x, 0), (f32, bf16), 0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(TWO)))
def test_functions_of_two_odd_numbers_are_eagers(number):
    function, dtypes, units = TWO[number]

    def all_of_them(*xs):
        return [function(a, b) for a, b in zip(xs[::2], xs[1::2])]

    given = [x for dtype in dtypes for x in pairs(dtype)]
    made, shares = run(all_of_them, *given)
    same(made, all_of_them(*given), units)
    assert set(shares) == {"onnxruntime"}


def test_tensors_without_dimensions_and_without_elements():
    def program(x, none):
        return x.flip(0) + 1, x.sum() * 2, torch.cat([none, x[None], none]), torch.cat([none, none]) + 1, x.softmax(0)

    x, none = torch.tensor(0.5), torch.empty(0)
    made, _ = run(program, x, none)
    same(made, program(x, none))


def test_mixed_dtypes_are_promoted_as_in_eager():
    def mixed(f, h, i, u, z):
        return (
            f + i,
            h + i,
            h * f,
            i + u,
            h * z,
            i + z,
            f < i,
            i * 2.5,
            u - 1,
            torch.cat([i, u]),
            f.masked_fill(i > 1, z),
        )

    given = [odd(f32), odd(bf16), odd(i32), odd(u8), torch.tensor(0.1, dtype=f64)]
    made, shares = run(mixed, *given)
    same(made, mixed(*given))


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_rows_with_odd_numbers_are_eagers(special):
    def rows(x):
        return x.softmax(-1), x.softmax(0), x.log_softmax(-1), x.amax(1), x.amin(0), x.argmax(1), x.sum(1), x.mean(0), (
            F.layer_norm(x, (7,)), F.group_norm(x.view(2, 3, 7), 3), x.logsumexp(1), x.norm(dim=1)
        )  # fmt: skip

    x = torch.arange(42.0).view(6, 7).sin()
    x[1, 3], x[4] = special, special
    made, shares = run(rows, x)
    for found, expected in zip(made, rows(x)):
        torch.testing.assert_close(found, expected, equal_nan=True)
    assert set(shares) == {"onnxruntime"}


@pytest.mark.parametrize("shape, dims", [((1, 20_011), 1), ((20_000, 3), 0), ((61, 8, 70), (0, 2)), ((4096,), None)])
def test_long_sums_are_as_precise_as_eagers(shape, dims):
    def sums(x):
        return x.sum(dims), x.mean(dims), x.var(dims)

    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 100
    made, shares = run(sums, x)
    for found, eager, exact in zip(made, sums(x), sums(x.double())):
        error, own = ((side.double() - exact).abs().max() / exact.abs().max() for side in (found, eager))
        assert error <= 4 * own + 2e-7
    assert set(shares) == {"onnxruntime"}


def test_a_long_product_of_vectors_is_as_precise_as_eagers():
    x = torch.rand(200_000, generator=torch.Generator().manual_seed(0)) + 1
    exact = x.double().dot(x.double())
    error, own = ((side.double() - exact).abs() / exact for side in (run(torch.dot, x, x)[0], x.dot(x)))
    assert error <= 4 * own + 2e-7


def test_any_over_no_dimensions_asks_each_number():
    x = torch.tensor([[1.0, 0.0], [NAN, -0.0]])
    made, shares = run(lambda x: (x.any(dim=()), x.all(dim=())), x)
    same(made, (x.any(dim=()), x.all(dim=())))
    assert set(shares) == {"onnxruntime"}


@pytest.mark.parametrize(
    "function", [torch.floor, torch.trunc, lambda x: 5 - x, lambda x: torch.ones_like(x).int() - x]
)
def test_what_eager_does_not_do_with_booleans_raises(function):
    x = torch.tensor([True, False])
    with pytest.raises((RuntimeError, NotImplementedError)):
        function(x)
    with pytest.raises((RuntimeError, NotImplementedError)):
        run(function, x)


def test_a_number_that_changes_is_not_wrapped_where_eager_refuses_it():
    import jitney

    fn = jitney.compile(lambda x, n: (x.clamp(max=n), x * n), backend="onnxruntime", dynamic=True)
    x = torch.tensor([1, 5, -7], dtype=torch.int8)
    for n in (3, 100):
        same(fn(x, n), (x.clamp(max=n), x * n))
    with pytest.raises(RuntimeError, match="without overflow"):
        fn(x, 300)


def test_sums_that_would_saturate_run_eagerly():
    x = torch.full((4,), 2**62)
    made, shares = run(lambda x: (x.sum(), x.prod()), x)
    same(made, (x.sum(), x.prod()))
    assert set(shares) == {"eagerly"}


def test_products_transposed_batched_and_of_integers():
    def products(x, w, b, i):
        return (
            x @ w,
            F.linear(x, w.t(), b),
            x.t() @ x,
            torch.bmm(x[None], w[None]),
            x @ b[:, None][:, 0],
            x[0] @ w[:, 0],
            x.t() @ x[:, 0],
            x.t() @ x[:, 0].exp(),
            i @ i,
        )

    x, w = torch.arange(24.0).view(4, 6).sin(), torch.arange(36.0).view(6, 6).cos()
    given = (x, w, torch.arange(6.0), torch.full((2, 2), 2**61 + 3))
    made, shares = run(products, *given)
    torch.testing.assert_close(made, products(*given))
    assert set(shares) == {"onnxruntime"}


@pytest.mark.parametrize("causal", [False, True, None])
def test_attention_with_rows_that_are_masked_whole(causal):
    def attention(q, mask):
        masked = {"is_causal": True} if causal else {"attn_mask": mask} if causal is False else {}
        return F.scaled_dot_product_attention(q, q.cos(), q.sin(), **masked)

    q = torch.randn(2, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[2] = False
    made, shares = run(attention, q, mask)
    torch.testing.assert_close(made, attention(q, mask))
    q.requires_grad_()
    (found,) = torch.autograd.grad(run(attention, q, mask)[0].square().sum(), q)
    (expected,) = torch.autograd.grad(attention(q, mask).square().sum(), q)
    torch.testing.assert_close(found, expected)
    assert "eagerly" not in shares


def test_convolutions_and_pooling():
    def images(x, w, b, pooled):
        y = F.conv2d(x, w, b, stride=2, padding=1)
        y = F.batch_norm(y, b, b.square() + 1, b, None)
        return y, F.max_pool2d(pooled, 3, 1, 1), F.avg_pool2d(pooled, 3, 1, 1), F.conv1d(x[..., 0], w[..., 0])

    x, w = torch.arange(2 * 3 * 9 * 9.0).view(2, 3, 9, 9).sin(), torch.arange(4 * 3 * 3 * 3.0).view(4, 3, 3, 3).cos()
    x[0, 0, 4, 4] = NAN
    pooled = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    pooled[:, 0, 1, 1], pooled[:, 1, 3:, 3:] = NAN, -INF
    given = (x, w, torch.arange(4.0), pooled)
    made, shares = run(images, *given)
    torch.testing.assert_close(made, images(*given), equal_nan=True)
    assert set(shares) == {"onnxruntime"}


@pytest.mark.parametrize("index", [[0, 3, 1], [2, -1, 0], [4, 0, 0]])
def test_indices_are_refused_where_eager_refuses_them(index):
    x, at = torch.arange(12.0).view(4, 3), torch.tensor(index)
    calls = [
        lambda: (F.embedding, (at, x)), lambda: (torch.index_select, (x, 0, at)), lambda: (lambda x, i: x[i], (x, at)),
        lambda: (torch.gather, (x, 0, at.expand(2, 3))),
    ]  # fmt: skip
    import jitney

    for call in calls:
        function, args = call()
        try:
            expected = function(*args)
        except Exception as error:
            with pytest.raises(type(error)):
                jitney.compile(lambda *args: function(*args), backend="onnxruntime")(*args)
        else:
            made, shares = run(lambda *args: function(*args), *args)
            same(made, expected)
            assert set(shares) == {"onnxruntime"}


def test_gradients_are_eagers():
    def program(x, w):
        y = F.gelu(x @ w) + F.silu(x) * F.gelu(x, approximate="tanh")
        z = F.layer_norm(y, (6,), w[0], w[1]) + F.layer_norm(y, (6, 6))
        return y[:, 1:].softmax(-1) * y[:, 0, None], F.log_softmax(y, -1), torch.relu(y)[1], z

    leaves = [
        torch.arange(36.0).view(6, 6).sin().requires_grad_(),
        torch.arange(36.0).view(6, 6).cos().requires_grad_(),
    ]
    made, shares = run(program, *leaves)
    found = torch.autograd.grad([t.square().sum() for t in made], leaves)
    expected = torch.autograd.grad([t.square().sum() for t in program(*leaves)], leaves)
    torch.testing.assert_close(found, expected)
    assert set(shares) == {"onnxruntime"}
