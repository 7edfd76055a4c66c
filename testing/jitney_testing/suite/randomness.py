"""Random numbers: the same ones for the same seed, and the generator left where eager leaves it."""

from __future__ import annotations

from jitney_testing.suite.check import told

CHECKS = (
    told(
        "randomness.other_numbers",
        "For one seed eager's random numbers come out.",
        """
        def program(x):
            y = torch.randn(3, device=x.device) + x[0, 0]
            return y, torch.rand_like(x), F.dropout(x, 0.5), torch.bernoulli(x.sigmoid())

        def inputs():
            return [example((3, 4))]
        """,
        """
        def program(x):
            y = torch.empty_like(x).uniform_(-1, 1)
            return y, torch.randint(0, 9, (4,), device=x.device), torch.randperm(5, device=x.device), x.normal_()

        def inputs():
            return [example((3, 4))]
        """,
    ),
    told(
        "randomness.same_numbers_again",
        "Each call draws anew.",
        """
        @compiled
        def f(x):
            return torch.rand_like(x) + x

        def program():
            x = example((3, 4))
            return f(x), f(x), f(x)

        def inputs():
            return []
        """,
        """
        @compiled
        def f():
            return torch.rand(5), torch.randn(2, 3) * 2

        def program():
            return f(), f()

        def inputs():
            return []
        """,
        """
        @compiled
        def f(x):
            return F.dropout(x, 0.5), torch.bernoulli(x.sigmoid())

        def program(x):
            return [f(x) for _ in range(4)]

        def inputs():
            return [example((4, 6), grad=True)]
        """,
    ),
    told(
        "randomness.generator_moved",
        "A program without random numbers leaves the generator alone; one with them leaves it where eager does.",
        """
        def program(x):
            return torch.sin(x) * 2

        def inputs():
            return [example((3, 4), grad=True)]
        """,
        """
        def program(x):
            y = torch.rand(5, device=x.device)
            return x * 2, y

        def inputs():
            return [example((3, 4))]
        """,
    ),
    told(
        "randomness.other_mask_in_backward",
        "The backward of dropout has the forward's mask.",
        """
        def program(x, w):
            return F.dropout(torch.tanh(x * w), 0.5) * 2

        def inputs():
            return [example((4, 6), grad=True), example((4, 6), seed=1, grad=True)]
        """,
        """
        def program(x):
            return F.dropout(x.sin(), 0.3, training=True).exp(), torch.rand_like(x) * x

        SIZES = (4, 5)

        def inputs(n):
            return [example((n, 6), grad=True)]
        """,
    ),
    told(
        "randomness.generators_given",
        "A generator that the program brings is drawn from, and the process's is not.",
        """
        def program(x):
            generator = torch.Generator(device=x.device).manual_seed(5)
            return x + torch.rand(4, generator=generator, device=x.device)

        def inputs():
            return [example((4,))]
        """,
    ),
)
