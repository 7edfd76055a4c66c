"""Numbers at which kernels err: NaN, infinities, zeros with a sign, integers, roundings, promotion."""

from __future__ import annotations

from jitney.testing.suite.check import told

CHECKS = (
    told(
        "numbers.nan",
        "NaN goes through extremes, comparisons, sorting, clamping and reductions as in eager.",
        """
        def program(x, y):
            return (
                x.amax(), x.amin(-1), x.max(-1)[0], x.argmax(), x.argmin(-1), torch.maximum(x, y), torch.minimum(y, x),
                torch.fmax(x, y), x.clamp(-1, 1), torch.relu(x), x == x, x != x, x > y, x.isnan(), x.sort(-1)[0],
                torch.where(x > 0, x, y), x.sum(), x.nan_to_num(), torch.sign(x).isnan(), x.cummax(-1)[0],
            )

        def inputs():
            return [example((3, 4), special=True), example((3, 4), seed=1)]
        """,
        """
        def program(x, y):
            return torch.maximum(x, y), x.amax(0), torch.relu(y), y.clamp(min=0), x.amin()

        def inputs():
            return [example((8, 8), seed=1), example((8, 8), special=True, layout="transposed")]
        """,
    ),
    told(
        "numbers.signed_zero",
        "-0.0 keeps its sign where eager keeps it, and gets one where eager gives one.",
        """
        def program(x):
            zero = torch.zeros_like(x)
            made = [x, -x, x * 0, x + 0.0, x.abs(), x.round(), x.ceil(), torch.sqrt(x.abs()), x.sin(), zero - x]
            made += [x * -1.0, x / 3, x.trunc(), x - zero, zero * -1]
            return [torch.signbit(m) for m in made if m is not None], 1 / (x * 2), torch.copysign(zero + 1, x)

        def inputs():
            return [torch.tensor([0.0, -0.0, 0.25, -0.25, 1.0, -1.0, 0.5, -0.5], device=example(()).device)]
        """,
    ),
    told(
        "numbers.infinities",
        "Overflow, infinities and what they make of softmax, norms and differences.",
        """
        def program(x):
            return x.exp(), x - x, x * 0, 1 / x, x.softmax(-1), x.logsumexp(-1), x.tanh(), x.sigmoid(), x.sum()

        def inputs():
            return [torch.tensor([[1e30, -1e30, 100.0], [float("inf"), 1.0, 0.0], [-float("inf"), 2.0, 3.0]],
                                 device=example(()).device)]
        """,
        """
        def program(x):
            return x.log_softmax(-1), F.softplus(x), F.gelu(x), x.log1p(), x.std(-1), F.logsigmoid(x)

        def inputs():
            return [example((4, 5), seed=3) * 40]
        """,
    ),
    told(
        "numbers.integer_division",
        "Integer division rounds as asked (down, to zero), remainders have eager's sign, true division gives floats.",
        """
        def program(a, b):
            return (
                a // b, a % b, torch.fmod(a, b), a / b, torch.div(a, b, rounding_mode="floor"), a // 3, a % -3, -a // 2,
                torch.div(a, b, rounding_mode="trunc"), torch.remainder(a, 4), torch.floor_divide(a, -2), a >> 1,
            )

        def inputs():
            a = torch.tensor([7, -7, 7, -7, 6, -6, 0, 1], device=example(()).device)
            return [a, torch.tensor([2, 2, -2, -2, 3, -3, 5, -1], device=a.device)]
        """,
        """
        def program(a, b):
            return a // b, a % b, torch.fmod(a, b), a // 0.75, torch.div(a, b, rounding_mode="trunc")

        def inputs():
            return [example((12,)), example((12,), seed=2).abs() + 0.5]
        """,
    ),
    told(
        "numbers.integer_overflow",
        "Integers wrap around at their width.",
        """
        def program(a, b, c):
            return a + a, a * a, a - 100, -a, b * b, b + b, ~a, c - 1, c * 2, c.sum(), a.sum(), a.sum(dtype=torch.int8)

        def inputs():
            on = example(()).device
            a = torch.tensor([100, -100, 127, -128, 3], dtype=torch.int8, device=on)
            b = torch.tensor([2**30, -(2**31), 2**31 - 1], dtype=torch.int32, device=on)
            return [a, b, torch.tensor([0, 1, 200, 255], dtype=torch.uint8, device=on)]
        """,
    ),
    told(
        "numbers.rounding",
        "Halves round to even, casts to integers cut, halves of both signs.",
        """
        def program(x):
            return x.round(), x.floor(), x.ceil(), x.trunc(), x.to(torch.int64), x.to(torch.int8), x.frac(), x.bool()

        def inputs():
            return [torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.7, -2.7, 0.0], device=example(()).device)]
        """,
    ),
    told(
        "numbers.promotion",
        "Mixed dtypes give eager's: tensors of no dimension, Python numbers and booleans count less.",
        """
        def program(f, h, i, u, b, z):
            return (
                f + i, h + i, h + f, i + u, u + b, b + b, b * 2, i * 2.5, f + z, h * z, i + z, b + 1.5, u - 1, i / i,
                b.sum(), u.sum(), b.float().mean(), i.cumsum(0), torch.where(b, f, 1), torch.stack([i, i]).prod(0),
            )

        def inputs():
            return [example((4,)), example((4,), "bfloat16"), example((4,), "int32"), example((4,), "uint8"),
                    example((4,), "bool"), example((), "float64")]
        """,
    ),
    told(
        "numbers.sums",
        "Sums and means of many numbers are as precise as eager's; those of half types are accumulated in float32.",
        """
        def program(x, h):
            return x.sum(), x.mean(), x.var(), h.sum(), h.mean(0), h.float().sum(), x.norm(), h.softmax(0)

        def inputs():
            return [example((100, 331)) + 100, torch.ones(4096, dtype=torch.bfloat16, device=example(()).device)]
        """,
    ),
    *(
        told(
            f"numbers.{dtype}",
            f"Arithmetic, functions, reductions and gradients in {dtype}.",
            f"""
            def program(x, y):
                return x * 2 + y, torch.sin(x), x.exp(), (x / 4).tanh() * y, x.sum(-1), x.softmax(-1), x.amax(0)

            def inputs():
                return [example((4, 6), "{dtype}", grad=True), example((4, 6), "{dtype}", seed=1, grad=True)]
            """,
        )
        for dtype in ("float32", "float64", "bfloat16", "float16")
    ),
    *(
        told(
            f"numbers.{dtype}",
            f"Arithmetic and reductions in {dtype}.",
            f"""
            def program(x, y):
                return x + y, x * y, x == y, x.sum(), x.cumsum(0), x.float() / 2, torch.where(x > y, x, y), x.amax(-1)

            def inputs():
                return [example((4, 6), "{dtype}"), example((4, 6), "{dtype}", seed=1)]
            """,
        )
        for dtype in ("int64", "int32", "uint8")
    ),
    told(
        "numbers.bool",
        "Logic and counting of booleans.",
        """
        def program(x, y):
            return x & y, x | y, x ^ y, ~x, x.any(0), x.all(-1), x.sum(), x.float() * 2, torch.where(x, y, ~y), x == y

        def inputs():
            return [example((4, 6), "bool"), example((4, 6), "bool", seed=1)]
        """,
    ),
    told(
        "numbers.complex64",
        "Complex numbers: arithmetic, absolute values, parts, gradients.",
        """
        def program(x):
            z = torch.complex(x, x * 2)
            return z * z, z.abs(), z.real, z.imag * 2, z.conj() + 1, torch.view_as_real(z * 1j), z.sum()

        def inputs():
            return [example((4,), grad=True)]
        """,
    ),
)
