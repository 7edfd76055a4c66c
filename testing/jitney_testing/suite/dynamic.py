"""Sizes and numbers that change from call to call."""

from __future__ import annotations

from jitney_testing.suite.check import Check, told

_BODIES = {
    "pointwise and reductions": """
        def program(x):
            return torch.sin(x) + 1, x.sum(-1), x.mean(), x.softmax(0), x.t() @ x
        """,
    "size arithmetic": """
        def program(x):
            n = x.shape[0]
            return x.view(2, n // 2, -1).sum(1) / n, torch.arange(n, device=x.device) * n, x[: n - 1], n, x.repeat(2, 1)
        """,
    "joining": """
        def program(x):
            return torch.cat([x, x[1:]]), torch.stack([x, x * 2]), F.pad(x, (0, 1, 1, 0)), x.flip(0).cumsum(0)
        """,
}


def _dynamic(name: str, says: str, sizes: str, options: str) -> Check:
    ends = f"SIZES = {sizes}\n{options}\ndef inputs(n):\n    return [example((n, 4), seed=n)]\n"
    return told(name, says, *(f"{_dedented(body)}\n{ends}" for body in _BODIES.values()))


def _dedented(text: str) -> str:
    return "\n".join(line[8:] for line in text.splitlines())


CHECKS = (
    _dynamic(
        "dynamic.first_size_kept",
        "Called with other sizes, a function gives results of those sizes; with the first again, the first's.",
        "(4, 6, 4, 10)",
        "",
    ),
    _dynamic(
        "dynamic.symbolic_sizes",
        "With dynamic=True one graph serves all sizes.",
        "(4, 6, 32, 300, 4)",
        'OPTIONS = {"dynamic": True}',
    ),
    told(
        "dynamic.symbolic_strides",
        "Arguments of changing sizes that are not contiguous.",
        """
        def program(x, y):
            return torch.sin(x) + y, x.sum(0), y.sum(-1), x.t() * 2, x.contiguous(), x.shape[0] % 3, x[: len(x) // 3]

        OPTIONS = {"dynamic": True}
        SIZES = (4, 7, 33)

        def inputs(n):
            return [example((n, n + 1), seed=n, layout="transposed"), example((n, n + 1), seed=1, layout="gaps")]
        """,
    ),
    _dynamic(
        "dynamic.static_sizes",
        "With dynamic=False each size has a graph of its own.",
        "(4, 6, 4)",
        'OPTIONS = {"dynamic": False}',
    ),
    told(
        "dynamic.edge_sizes",
        "Sizes 0 and 1 after others: broadcasting and loops that do not run.",
        """
        def program(x, y):
            return x * y, x.sum(0), (x + 1).sum(), torch.cat([x, x]), x.amax(-1)

        SIZES = (4, 1, 5, 0, 7, 1)

        def inputs(n):
            return [example((n, 3), seed=n), example((n, 1), seed=1)]
        """,
    ),
    told(
        "dynamic.two_sizes",
        "Several sizes that change, equal or not, in all dimensions.",
        """
        def program(x, y):
            return x @ y, x.sum(0), y.softmax(-1), x.shape[1] + y.shape[1]

        SIZES = (2, 3, 5, 8)

        def inputs(n):
            return [example((n, n + 1), seed=n), example((n + 1, 10 - n), seed=1)]
        """,
    ),
    told(
        "dynamic.numbers",
        "Integers and floats that change between calls.",
        """
        def program(x, n, factor):
            return x * n, x + factor, x.roll(n), n * factor, x[n:]

        SIZES = (1, 2, 3, 5)

        def inputs(n):
            return [example((6,)), n, n / 4]
        """,
    ),
    told(
        "dynamic.training",
        "Gradients with sizes that change.",
        """
        def program(x, w):
            return torch.tanh(x @ w).sum(0), (x * 2).softmax(-1)

        SIZES = (4, 6, 3)

        def inputs(n):
            return [example((n, 4), grad=True, seed=n), example((4, 5), seed=1, grad=True)]
        """,
    ),
)
