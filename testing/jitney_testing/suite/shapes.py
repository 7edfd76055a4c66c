"""Shapes and layouts: what kernels with loops over sizes and strides get wrong."""

from __future__ import annotations

from jitney_testing.suite.check import told

_LAYOUTS = """
def program(x, y):
    return torch.sin(x) + 1, x.sum(0), x.sum(-1), x * y, x.softmax(-1), x.t() @ y, x.contiguous(), x.amax()

def inputs():
    return [example((4, 6), layout="{first}"), example((4, 6), seed=1, layout="{second}")]
"""

CHECKS = (
    told(
        "shapes.empty",
        "Tensors without elements: results have eager's shapes, sums are 0, and so on.",
        """
        def program(x, y):
            return x + 1, x.sum(), x.sum(0), x.sum(1), torch.cat([x, y]), x.t() * 2, y[:0].tanh(), x.any(), x @ y.t()

        def inputs():
            return [example((0, 3)), example((2, 3))]
        """,
        """
        def program(x):
            return torch.relu(x), x.mean(0)

        def inputs():
            return [example((3, 0), grad=True)]
        """,
    ),
    told(
        "shapes.zero_dimensions",
        "Tensors of no dimension: numbers that are tensors.",
        """
        def program(x, y, z):
            return x * 2, x + y, z * x, x.sum(), torch.tanh(x), x.unsqueeze(0), torch.stack([x, y]), z + y.double()

        def inputs():
            return [example(()), example((), seed=4), example((3,), seed=1)]
        """,
        """
        def program(x, z):
            return x.exp(), (z * x).sum()

        def inputs():
            return [example((), grad=True), example((3,), seed=1, grad=True)]
        """,
    ),
    told(
        "shapes.broadcasting",
        "Operands of other shapes: rows, columns, numbers, and their gradients.",
        """
        def program(x, row, column, number):
            return x + row, x * column, row * column, x - number, torch.where(column > 0, x, row), column == row

        def inputs():
            return [example((4, 3)), example((3,), seed=1), example((4, 1), seed=2), example((), seed=3)]
        """,
        """
        def program(x, row, column):
            return torch.tanh(x + row) * column

        def inputs():
            return [example((2, 4, 3), grad=True), example((3,), seed=1, grad=True), example((4, 1), seed=2, grad=True)]
        """,
        """
        def program(x, w):
            return x.unsqueeze(1) - w.expand(2, 4, 3), w.expand(5, 3).sum(0)

        def inputs():
            return [example((2, 3)), example((1, 3), seed=1)]
        """,
    ),
    told(
        "shapes.not_contiguous",
        "Arguments whose memory is not in the order of their elements: transposed, with gaps, behind an offset.",
        *(
            _LAYOUTS.format(first=first, second=second)
            for first, second in (("transposed", "contiguous"), ("gaps", "offset"), ("expanded", "gaps"))
        ),
        """
        def program(x):
            return torch.sin(x), x.mean((2, 3)), x.flatten(1)

        def inputs():
            return [example((2, 3, 4, 5), layout="channels_last")]
        """,
    ),
    told(
        "shapes.wrong_strides",
        "Results lie in memory as eager's do: a program may ask for strides, or view them.",
        """
        def program(x, y):
            return torch.sin(x), x + y, x.t() * 2, torch.empty_like(x).fill_(1), x.permute(1, 0).contiguous()

        def inputs():
            return [example((4, 6), layout="transposed"), example((4, 6), layout="transposed", seed=1)]
        """,
        """
        def program(x):
            return x * 2, torch.relu(x), x.clone(), x.sum(1)

        def inputs():
            return [example((2, 3, 4, 5), layout="channels_last")]
        """,
        """
        def program(x):
            return (x + 1).t(), (x * 2)[:, 1:], (x - 1).expand(2, 4, 6)

        def inputs():
            return [example((4, 6))]
        """,
    ),
    told(
        "shapes.many_sizes",
        "Sizes around those of vectors and blocks, sizes of one, many dimensions.",
        *(
            f"""
            def program(x):
                return torch.sin(x) * 2, x.sum(0), x.sum(1), x.softmax(1), x.cumsum(1), x.argmax(1)

            def inputs():
                return [example({shape})]
            """
            for shape in ("(1, 17)", "(17, 1)", "(7, 31)", "(33, 64)", "(2, 1025)")
        ),
        """
        def program(x):
            return x.sum((0, 2, 4)), x.permute(5, 3, 1, 0, 2, 4) * 2, x.amax(3, keepdim=True), x.flatten(1, 4)

        def inputs():
            return [example((2, 3, 1, 2, 3, 2))]
        """,
    ),
    told(
        "shapes.large",
        "Tensors of more elements than one block, thread or 16 bits can count.",
        """
        def program(x):
            last = x.view(7, -1)[:, ::2]
            return x.sin(), x.sum(), x.argmax(), x.cumsum(0)[-3:], last + 1, last.sum(0), last.t().contiguous().amax(0)

        def inputs():
            x = example((7 * 10_002,)) / 8
            x[-1] = 99
            return [x]
        """,
    ),
    told(
        "shapes.many_dimensions",
        "More dimensions than most have.",
        """
        def program(x, y):
            return x * 2 + y, x.sum((1, 3, 8)), x.permute(8, 0, 7, 1, 6, 2, 5, 3, 4).exp(), x.mean(), x.flatten(2, 6)

        def inputs():
            return [example((2, 1, 2, 3, 1, 2, 1, 2, 2)), example((3, 1, 2, 1, 1, 2), layout="transposed")]
        """,
    ),
    told(
        "shapes.many_arguments",
        "More arguments and results than a machine has registers.",
        """
        def program(*xs):
            return [x + 1 for x in xs], sum(xs)

        def inputs():
            return [example((2,), seed=i) for i in range(80)]
        """,
    ),
    told(
        "shapes.other_places",
        "Arguments elsewhere in their memory than those of the first call, not at a multiple of 16 bytes.",
        """
        def program(x, y):
            return x * 2 + y, (x @ y).sum(), x.sum(0)

        SIZES = (0, 1, 5)

        def inputs(n):
            return [example((40,))[n : n + 16].view(4, 4), example((40,), seed=1)[2 * n : 2 * n + 4]]
        """,
    ),
)
