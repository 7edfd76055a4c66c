"""What calls leave behind."""

from __future__ import annotations

from jitney_testing.suite.check import told

CHECKS = (
    told(
        "memory.leaks",
        "Calls leave no tensors behind: after each, as many bytes are held as before.",
        """
        @compiled
        def f(x):
            return torch.tanh(x * 2).exp(), x.sum(0)

        def program():
            x = example((32, 32))
            return leaking(lambda: f(x))

        def inputs():
            return []
        """,
    ),
    told(
        "memory.leaks_in_training",
        "Neither do forward and backward.",
        """
        @compiled
        def f(x, w):
            return torch.tanh(x @ w).exp()

        def program():
            x, w = example((32, 32)), example((32, 32), grad=True)

            def step():
                f(x, w).sum().backward()
                w.grad = None

            return leaking(step)

        def inputs():
            return []
        """,
    ),
    told(
        "memory.leaks_forwards_alone",
        "A forward whose backward never runs leaves nothing behind either.",
        """
        @compiled
        def f(x, w):
            return torch.tanh(x @ w).exp()

        def program():
            x, w = example((32, 32)), example((32, 32), grad=True)
            return leaking(lambda: f(x, w))

        def inputs():
            return []
        """,
    ),
    told(
        "memory.process_grows",
        "Over a thousand calls the process does not grow: memory that is not Python's counts too.",
        """
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        @compiled
        def f(x):
            return torch.tanh(x * 2).exp(), x.sum(0)

        def program():
            if not os.path.exists("/proc/self/statm"):
                return True
            x = example((64, 64))
            for _ in range(300):
                f(x)
            gc.collect()
            before = resident()
            for _ in range(1500):
                f(x)
            gc.collect()
            return resident() - before < 1500 * 64 * 64 * 4 / 4

        def inputs():
            return []
        """,
        level="full",
    ),
    told(
        "memory.results_hold_more",
        "A result holds memory for its own elements, and that can grow (resize_), as eager's does.",
        """
        @compiled
        def f(x):
            return torch.tanh(x) + 1, x.sum(0), x * 2

        def program(x):
            results = f(x)
            room = [result.untyped_storage().nbytes() <= 2 * result.nbytes + 512 for result in results]
            return room, [result.clone() for result in results], results[0].resize_(7, 8).shape

        def inputs():
            return [example((5, 6))]
        """,
    ),
)
