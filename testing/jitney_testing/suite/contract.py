"""What a backend owes to everybody, whatever it computes."""

from __future__ import annotations

from jitney_testing.suite.check import told

CHECKS = (
    told(
        "contract.wrong_results",
        "Small programs give eager's numbers, structure and dtypes, one call after the other.",
        """
        def program(x, y):
            return (x * 2 + y).sin(), {"sum": x.sum(-1), "pair": (x @ y.t(), y > x)}

        SIZES = (3, 3, 4)

        def inputs(n):
            return [example((n, 4), seed=n), example((n, 4), seed=1)]
        """,
        """
        def program(x):
            return torch.softmax(x, -1).exp(), x.amax(0), torch.tanh(x) * 3

        def inputs():
            return [example((5, 7))]
        """,
        """
        def program(x, i, b):
            return x.masked_fill(b, 0.5), x[i], torch.cat([x, x * 2]), x.double().sum(0), (i * 3).sum()

        def inputs():
            return [example((4, 3)), example((2,), "int64") % 4, example((4, 3), "bool", seed=1)]
        """,
    ),
    told(
        "contract.odd_signatures",
        "Graphs without inputs, with numbers among inputs, the same result twice, results that are arguments.",
        """
        def program():
            return torch.arange(4.0) * 2, torch.ones(2)

        def inputs():
            return []
        """,
        """
        def program(x, n, factor):
            return x, x * n, n + 1, factor, (x + factor, None, "text")

        def inputs():
            return [example((3,)), 4, 0.5]
        """,
        """
        def program(x):
            y = x + 1
            return y, y, [y, x]

        def inputs():
            return [example((3,))]
        """,
        """
        def program(*xs):
            return sum(x * i for i, x in enumerate(xs))

        def inputs():
            return [example((2,), seed=i) for i in range(40)]
        """,
    ),
    told(
        "contract.writes_to_inputs",
        "A call writes to no argument that the program does not write to.",
        """
        def program(x, y):
            return torch.relu(x) + 1, (x - y).exp(), y.neg().abs()

        def inputs():
            return [example((4, 3)), example((4, 3), seed=2)]
        """,
        """
        def program(x):
            return torch.relu(x), torch.tanh(x)

        def inputs():
            return [example((2, 3), layout="transposed")]
        """,
        """
        def program(x, y):
            return torch.sin(x) * 2, torch.relu(x), torch.exp(y) + 1, torch.tanh(y)

        def inputs():
            return [example((4, 3), layout="offset"), example((5, 6), seed=1)[1:, 2:]]
        """,
    ),
    told(
        "contract.reuses_results",
        "What a call has returned stays as it is when the function is called again.",
        """
        @compiled
        def f(x):
            return torch.sin(x) * 2, x.sum(0)

        def program():
            first = f(example((3, 4)))
            second = f(example((3, 4), seed=5))
            third = f(example((3, 4), seed=9))
            return first, second, third

        def inputs():
            return []
        """,
        """
        @compiled
        def f(x):
            return torch.sin(x) * 2

        @compiled
        def g(x):
            return torch.cos(x) + 1

        def program():
            return [(f(example((3, 4), seed=seed)), g(example((3, 4), seed=seed))) for seed in range(20)]

        def inputs():
            return []
        """,
    ),
    told(
        "contract.remembers_results",
        "A second call with other numbers gives other results; writing to a result changes no later one.",
        """
        @compiled
        def f(x):
            return torch.sin(x) * 2

        def program():
            x = example((3, 4))
            first = f(x).clone()
            x.add_(1)
            second = f(x)
            second.zero_()
            return first, f(x)

        def inputs():
            return []
        """,
        """
        @compiled
        def f():
            return torch.arange(4.0) * 2, torch.ones(2, 3), torch.tensor([1.0, 2.0])

        def program():
            for result in f():
                result.zero_()
            return f()

        def inputs():
            return []
        """,
    ),
    told(
        "contract.retains_inputs",
        "When a call has returned, nobody holds its arguments.",
        """
        @compiled
        def f(x, y):
            return (x * y).sum()

        def program():
            x, y = example((8, 8)), example((8, 8), seed=1)
            watched = weakref.ref(x), weakref.ref(y)
            results = [f(x, y) for _ in range(2)]
            del x, y
            gc.collect()
            return results, [seen() is None for seen in watched]

        def inputs():
            return []
        """,
    ),
    told(
        "contract.retains_results",
        "A result dies when the program lets go of it.",
        """
        @compiled
        def f(x):
            return torch.tanh(x) + 1

        def program():
            x = example((8, 8))
            watched = [weakref.ref(f(x)) for _ in range(3)]
            gc.collect()
            return [seen() is None for seen in watched]

        def inputs():
            return []
        """,
    ),
    told(
        "contract.not_reentrant",
        "Calls may overlap: two forwards before their backwards, one function called while another one's result waits.",
        """
        @compiled
        def f(x, w):
            return torch.tanh(x @ w).exp()

        def program():
            a, b = example((4, 4), grad=True), example((4, 4), seed=3, grad=True)
            w = example((4, 4), seed=1) / 4
            one, two = f(a, w), f(b, w * 2)
            two.sum().backward()
            one.sum().backward()
            return one, two, a.grad, b.grad

        def inputs():
            return []
        """,
        """
        @compiled
        def f(x):
            return torch.sin(x) + 1

        @compiled
        def g(x):
            return torch.cos(x) * f(x)

        def program():
            x = example((4,))
            return [g(x), f(x), g(f(g(x)))]

        def inputs():
            return []
        """,
    ),
    told(
        "contract.not_thread_safe",
        "Threads may call one compiled function at the same time.",
        """
        @compiled
        def f(x):
            return (torch.relu(x) * 2 + 1).sum(-1)

        def program():
            results = [None] * 6
            f(example((16, 8)))

            def work(number):
                results[number] = [f(example((16, 8), seed=number + step)) for step in range(4)]

            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        def inputs():
            return []
        """,
    ),
    told(
        "contract.dies_after_fork",
        "A compiled function works in a forked process.",
        """
        import select

        @compiled
        def f(x):
            return (x * 2 + 1).sum(-1)

        def program():
            x = example((4, 4))
            f(x)
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(write, repr(f(x).tolist()).encode())
                finally:
                    os._exit(0)
            os.close(write)
            ready, _, _ = select.select([read], [], [], 20)
            text = os.read(read, 10_000).decode() if ready else "the child hangs"
            if not ready:
                os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(read)
            return text

        def inputs():
            return []
        """,
        cpu=True,
    ),
    told(
        "contract.wrong_exceptions",
        "What the program's own mistakes raise in eager, they raise compiled; what it raises itself comes out.",
        """
        def program(x, i):
            return x.index_select(0, i) * 2

        SIZES = (1, 9)

        def inputs(n):
            return [example((4, 3)), torch.tensor([0, n], device=example(()).device)]
        """,
        """
        def program(x, y):
            if x.shape[0] > 3:
                raise KeyError("the program's own")
            return x @ y

        SIZES = (2, 3, 4)

        def inputs(n):
            return [example((n, 4)), example((4, n))]
        """,
        """
        def program(x, y):
            try:
                return x + y
            except RuntimeError as error:
                return type(error).__name__, x * 2

        SIZES = (4, 3, 4)

        def inputs(n):
            return [example((n,)), example((4,))]
        """,
        cpu=True,
    ),
    told(
        "contract.changes_global_state",
        "Compiling and calling leave torch's switches alone: default dtype, grad mode, determinism, threads, modes.",
        """
        def program(x):
            return torch.sin(x) + torch.ones(3, device=x.device)

        def inputs():
            return [example((3,))]
        """,
        """
        def program(x):
            with torch.no_grad():
                y = x * 2
            return y, x * 3

        def inputs():
            return [example((3,), grad=True)]
        """,
    ),
    told(
        "contract.wrong_dtype_or_device",
        "Results have eager's dtypes, whatever is computed in between.",
        """
        def program(x, y, i):
            return x + 1, y.tanh(), x + y.double(), i.sum(), i / 2, x > 0, (y * y).sum()

        def inputs():
            return [example((3,)), example((3,), "bfloat16"), example((3,), "int32")]
        """,
    ),
)
