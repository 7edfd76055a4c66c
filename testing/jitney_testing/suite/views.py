"""Views, writes and who shares memory with whom."""

from __future__ import annotations

from jitney_testing.suite.check import told

CHECKS = (
    told(
        "views.alias_for_a_copy",
        "What is a copy in eager shares no memory with arguments or other results.",
        """
        def program(x):
            return x.clone(), x.contiguous() + 0, x.t().contiguous(), x.reshape(-1).clone(), torch.cat([x])

        def inputs():
            return [example((3, 4))]
        """,
        """
        def program(x):
            return x.clone(), x.to(torch.float32, copy=True), x.detach().clone()

        def inputs():
            return [example((3,), grad=True)]
        """,
    ),
    told(
        "views.copy_for_a_view",
        "What is a view of an argument, or the argument itself, in eager is so compiled: writing to it writes there.",
        """
        def program(x, y):
            return x, x.t(), x[1:], x.view(-1), y.unsqueeze(0), x.detach(), y.contiguous(), x.expand(2, 3, 4)

        def inputs():
            return [example((3, 4)), example((4,), seed=1)]
        """,
        """
        def program(x):
            y = x + 1
            return y, y.t(), y[0], y.view(-1)

        def inputs():
            return [example((3, 4))]
        """,
    ),
    told(
        "views.dropped_write",
        "What the program writes to arguments is there after the call, through views too; and only that.",
        """
        def program(x, y, z):
            x.add_(1)
            y[0] = x[1] * 2
            y.t()[1:].mul_(3)
            z.view(-1)[2:].copy_(x.view(-1)[2:])
            return x.sum() + y.sum()

        SIZES = (3, 4)

        def inputs(n):
            return [example((n, 4)), example((n, 4), seed=1), example((n, 4), seed=2)]
        """,
        """
        def program(x, y):
            x.copy_(y * 2)
            x.relu_()

        def inputs():
            return [example((3, 4), layout="transposed"), example((3, 4), seed=1)]
        """,
        """
        def program(items, table, x):
            items[0].mul_(2)
            items.append(x * 2)
            table["a"] = items[0] + 1
            table["b"].zero_()

        def inputs():
            return [[example((3,))], {"b": example((3,), seed=1)}, example((3,), seed=2)]
        """,
    ),
    told(
        "views.overlapping_arguments",
        "Arguments that share memory: what is written to one is read from the other.",
        """
        def program(x, y):
            x.add_(1)
            return y * 2, x + y

        def inputs():
            x = example((6,))
            return [x[:4], x[2:]]
        """,
        """
        def program(x, y):
            x.mul_(2)
            return x is y, y + 1

        def inputs():
            x = example((6,))
            return [x, x]
        """,
    ),
    told(
        "views.state_of_modules",
        "Buffers and attributes of modules that a call updates.",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(4)
                self.register_buffer("seen", torch.zeros(4))
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                self.seen += x.sum(0)
                return self.norm(x) * self.calls

        net = Net().to(example(()).device)

        def program(x):
            return net(x)

        SIZES = (3, 4)

        def inputs(n):
            return [example((n, 4))]
        """,
    ),
    told(
        "views.writes_and_gradients",
        "Writes that autograd sees: gradients flow as in eager.",
        """
        def program(x, y):
            z = x * 2
            z.mul_(y)
            z[0] = y[0] * 3
            w = z.t()
            w.add_(1)
            return z.sin(), w

        def inputs():
            return [example((3, 4), grad=True), example((3, 4), seed=1, grad=True)]
        """,
    ),
    told(
        "views.dropped_result",
        "Every result comes back, in eager's order: also those of operators with several.",
        """
        def program(x):
            values, places = x.max(-1)
            first, second = x.chunk(2, -1)
            variance, mean = torch.var_mean(x, 0)
            return values, places, first * 1, second * 1, variance, mean, torch.sort(x, dim=-1, stable=True)[1]

        def inputs():
            return [example((3, 4))]
        """,
    ),
    told(
        "views.alias_for_what_is_kept",
        "What is written to a result after the call does not change what its backward works with.",
        """
        @compiled
        def f(x, w):
            y = x @ w
            return y.clone(), y * y

        def program():
            x, w = example((3, 4), grad=True), example((4, 4), seed=1)
            first, second = f(x, w)
            with torch.no_grad():
                first.zero_()
            second.sum().backward()
            return second, x.grad

        def inputs():
            return []
        """,
    ),
    told(
        "views.written_before_it_fails",
        "A call that raises has written to its arguments what eager writes: each write once.",
        """
        @compiled
        def f(x, y, i):
            x.add_(1)
            return y.index_select(0, i), x * 2

        def program(x, y, i):
            try:
                return f(x, y, i)
            except (IndexError, RuntimeError):
                return "it raised"

        SIZES = (1, 9, 0)

        def inputs(n):
            return [example((4,)), example((3,)), torch.tensor([n], device=example(()).device)]
        """,
        cpu=True,
    ),
    told(
        "views.unseen_write",
        "autograd hears of what is written to an argument: a backward that would read it raises, as in eager.",
        """
        @compiled
        def f(x):
            x.mul_(2)
            return x + 1

        def program(w):
            x = example((4,))
            product = x * w
            y = f(x)
            try:
                product.sum().backward()
            except RuntimeError:
                return y, "it raised"
            return y, w.grad

        def inputs():
            return [example((4,), grad=True)]
        """,
    ),
)
