"""Numbers at which kernels err: NaN, infinities, zeros with a sign, integers, roundings, promotion."""

from __future__ import annotations

from jitney_testing.suite.check import told

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
        """
        def program(x):
            return F.max_pool2d(x, 2), F.max_pool2d(x, 3, 1, 1), F.adaptive_max_pool2d(x, 2), F.avg_pool2d(x, 2)

        def inputs():
            return [example((2, 1, 4, 6), special=True)]
        """,
    ),
    told(
        "numbers.extremes",
        "Extremes of numbers all negative, all infinite, or the least of their dtype; of equal ones, the first.",
        """
        def program(x):
            return (
                x.amax(-1), x.amin(), x.max(), x.argmax(-1), x.softmax(-1), x.logsumexp(-1), x.log_softmax(-1),
                x.cummax(-1)[0], x.clamp(min=-1e30), F.max_pool1d(x, 3, 1, 1),
            )

        def inputs():
            worst = -torch.inf
            return [torch.tensor([[worst] * 4, [-3.0, worst, -1.0, -2.0], [-3e38] * 4], device=example(()).device)]
        """,
        """
        def program(*xs):
            return [(x.amax(), x.amin(-1), x.max(-1)[0], x.argmax(), x.argmin(-1), x.cummax(-1)[0]) for x in xs]

        def inputs():
            kinds = [torch.iinfo(getattr(torch, name)) for name in ("int64", "int32", "int16", "int8")]
            return [torch.tensor([[i.min, i.min + 1], [i.min + 2, -3]], dtype=getattr(torch, i.dtype),
                                 device=example(()).device) for i in kinds]
        """,
        """
        def program(x, i):
            return x.argmax(-1), x.argmin(0), x.sort(dim=-1, stable=True), i.sort(dim=0, stable=True)[1], i.argmax(0)

        def inputs():
            return [example((4, 9)) // 3, example((9, 4), "int64") % 3]
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
        "numbers.wide_integers",
        "Integers of 64 bits have all their bits, as numbers in the program do, and sums of narrower ones are as wide.",
        """
        def program(x, n, b):
            y = x - 1
            many = [x + 2**40, x * 3, y, y // 7, y % 1000, x.sum(), x.cumsum(0), x > y, x.amax(), torch.maximum(x, y)]
            return many, n.sum(), n.cumsum(0), n.prod(), b.sum(), b.sum(0), b.to(torch.uint8).sum(), b.float().mean()

        def inputs():
            on = example(()).device
            x = torch.tensor([2**60 + 1, 2**53 + 1, -(2**61) + 3, 2**33], device=on)
            n = torch.tensor([2**31 - 1, 2**31 - 5, 2**30 + 1], dtype=torch.int32, device=on)
            return [x, n, torch.ones(600, 2, dtype=torch.bool, device=on)]
        """,
    ),
    told(
        "numbers.doubles",
        "float64 is computed in float64: functions, constants, sums, products of matrices.",
        """
        def f(x):
            return (
                x.sin(), (x * 0.25).exp(), x * 0.1, x / 3, (x * x + 1).log(), x.sum(), x.mean(0), x.softmax(-1),
                x @ x.t(), x.tanh(), (x + 9).sqrt(), x.cumsum(-1), x.var(-1), torch.full_like(x, 0.1),
            )

        compiled_f = compiled(f)

        def program(x):
            near = [((found - own).abs() <= 1e-12 * (1 + own.abs())).all() for found, own in zip(compiled_f(x), f(x))]
            return [bool(each) for each in near]

        def inputs():
            return [example((6, 5), "float64") * 1.1]
        """,
    ),
    told(
        "numbers.small",
        "Small numbers are as precise as others, and those below the least normal one are not zero.",
        """
        @compiled
        def f(x, tiny):
            many = [x * 3, x + x, x / 7, x.sin(), x.tanh(), x.log1p(), x.expm1(), x.atan(), x.sum(-1), x.relu()]
            return many, [tiny * 2, tiny + tiny, -tiny, tiny.abs(), tiny > 0, torch.where(tiny > 0, tiny, -tiny)]

        def program(x):
            scale = 2.0**50
            many, few = f(x / scale, x / 2.0**100 / 2.0**34)
            return [m * scale for m in many], [m * 2.0**67 * 2.0**67 if m.is_floating_point() else m for m in few]

        def inputs():
            return [example((3, 4))]
        """,
    ),
    told(
        "numbers.cancellation",
        "Variances of numbers far from zero, and norms made of them, are as precise as eager's.",
        """
        def program(x):
            normed = F.layer_norm(x, (32,)), F.group_norm(x.unsqueeze(0), 2), F.batch_norm(x, None, None, training=True)
            return x.var(), x.std(-1), torch.var_mean(x, 0), normed, F.instance_norm(x.unsqueeze(0))

        def inputs():
            return [example((6, 32)) + 2000]
        """,
    ),
    told(
        "numbers.functions",
        "Functions of two numbers in all quadrants, powers, remainders; what is added is multiplied by alpha.",
        """
        def program(x, y, n):
            return (
                torch.atan2(x, y), torch.hypot(x, y), x**2, x**3, x**0, x.abs() ** 0.5, x.abs() ** y, 2.0**y, x**-1,
                torch.sub(x, y, alpha=3), torch.fmod(x, y), torch.remainder(x, y), torch.copysign(x, y), n**2, n**3,
                n**0, torch.add(n, n, alpha=-2), torch.addcmul(x, y, y, value=2), torch.lerp(x, y, 0.3), x.erf(),
            )

        def inputs():
            return [example((5, 4)), example((5, 4), seed=3) + 1 / 16, example((5, 4), "int32")]
        """,
    ),
    told(
        "numbers.indices",
        "Indices that repeat add up where they must, negative ones count from the end; so do the gradients.",
        """
        def program(x, i):
            y = torch.zeros_like(x)
            rows = x[: len(i)]
            return (
                x[i], x[[-1, 0]], x[-2], x.index_select(0, i % 4), y.index_put((i,), rows, accumulate=True),
                y.index_add(0, i % 4, rows), y.scatter_add(0, (i % 4)[:, None].expand(-1, 3), rows),
                x.gather(0, (i % 4)[:, None].expand(-1, 3)), F.embedding(i % 4, x), x.take_along_dim(i[:, None] % 4, 0),
            )

        def inputs():
            return [example((4, 3), grad=True), torch.tensor([1, -1, 1, 3], device=example(()).device)]
        """,
    ),
    told(
        "numbers.matrices",
        "Products of matrices of each dtype, as precise as eager's however long the sums are.",
        *(
            f"""
            def program(x, y, b):
                return x @ y, torch.addmm(b, x, y, beta=2, alpha=3), x.unsqueeze(0) @ y, x @ y[:, 0]

            def inputs():
                made = [example(shape, "{dtype}", seed=seed) / {scale}
                        for shape, seed in (((3, 700), 0), ((700, 4), 1), ((3, 4), 2))]
                return [x.to(torch.{dtype}) for x in made]
            """
            for dtype, scale in (("float32", 8), ("float64", 8), ("bfloat16", 8), ("float16", 8), ("int64", 1))
        ),
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
        for dtype in ("int64", "int32", "int16", "int8", "uint8")
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
    *(
        told(
            f"numbers.{dtype}",
            "Complex numbers: arithmetic, absolute values, parts, gradients.",
            f"""
            def program(x):
                z = torch.complex(x, x * 2)
                return z * z, z.abs(), z.real, z.imag * 2, z.conj() + 1, torch.view_as_real(z * 1j), z.sum()

            def inputs():
                return [example((4,), "{real}", grad=True)]
            """,
        )
        for dtype, real in (("complex64", "float32"), ("complex128", "float64"))
    ),
)
