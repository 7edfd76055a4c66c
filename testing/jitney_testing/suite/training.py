"""Forward, backward, and what happens between steps."""

from __future__ import annotations

from jitney_testing.suite.check import told

_NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

net = Net().to(example(()).device)
"""


def _steps(optimizer: str) -> str:
    return f"""
{_NET}
optimizer = {optimizer}

def program(x, y):
    losses, forward = [], compiled(net)
    for _ in range(3):
        optimizer.zero_grad()
        loss = (forward(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(net.parameters())

TRAIN = False

def inputs():
    return [example((5, 6)), example((5, 3), seed=1)]
"""


CHECKS = (
    told(
        "training.wrong_gradients",
        "Gradients are eager's where the forward is right.",
        """
        def program(x, w):
            return torch.tanh(x @ w).exp(), (x * w.sum(-1)).softmax(-1)

        def inputs():
            return [example((4, 6), grad=True), example((6, 5), seed=1, grad=True)]
        """,
        """
        def program(x):
            return torch.sigmoid(x) * x.sin(), x.amax(0), x.cumsum(-1), F.layer_norm(x, (6,)), x.t()[1:]

        def inputs():
            return [example((4, 6), grad=True)]
        """,
    ),
    told(
        "training.modules",
        "Modules in training mode: parameters get eager's gradients, buffers eager's values.",
        _NET + "\ndef program(x):\n    return net(x)\n\ndef inputs():\n    return [example((5, 6), grad=True)]\n",
        """
        net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.LayerNorm(4)).to(example(()).device)

        def program(x):
            return net(x)

        SIZES = (5, 5, 3)

        def inputs(n):
            return [example((n, 6), seed=n)]
        """,
    ),
    told(
        "training.wrong_only_in_training",
        "Training gives the numbers of inference, and inference those of training.",
        """
        @compiled
        def f(x, w):
            return torch.tanh(x @ w).sum(-1) * 2

        def program():
            x, w = example((4, 6)), example((6, 5), seed=1)
            plain = f(x, w)
            wanted = f(x, w.requires_grad_())
            wanted.sum().backward()
            with torch.no_grad():
                again = f(x, w)
            with torch.inference_mode():
                last = f(x, w)
            return plain, wanted, again, last.clone(), w.grad

        def inputs():
            return []
        """,
    ),
    told(
        "training.gradients_accumulate",
        "A second backward adds to the gradients of the first; none is None for another's sake.",
        """
        @compiled
        def f(x, w, unused):
            return (x * w).sin()

        def program():
            x, w, unused = (example((4,), seed=i, grad=True) for i in range(3))
            for number in range(3):
                (f(x, w, unused) * number).sum().backward()
            return x.grad, w.grad, unused.grad

        def inputs():
            return []
        """,
        """
        @compiled
        def f(x, w):
            return x * 2, w.exp(), x * w

        def program():
            x, w = (example((4,), seed=i, grad=True) for i in range(2))
            first, second, third = f(x, w)
            second.sum().backward(retain_graph=True)
            one = w.grad.clone(), x.grad
            (first + third).sum().backward()
            return one, x.grad, w.grad

        def inputs():
            return []
        """,
    ),
    told(
        "training.some_require_grad",
        "Arguments that do not require grad get none; results that do not depend on those that do require none.",
        """
        def program(x, y):
            return x * y, y * 2, (x.detach() * y), x.argmax(), (y > 0)

        def inputs():
            return [example((4,), grad=True), example((4,), seed=1)]
        """,
        """
        def program(x):
            with torch.no_grad():
                y = x * 2
            return y, x * y, y.sum()

        def inputs():
            return [example((4,), grad=True)]
        """,
    ),
    told(
        "training.backward_twice",
        "A graph that is kept (retain_graph) can be gone through again.",
        """
        @compiled
        def f(x, w):
            return torch.tanh(x * w).sum()

        def program():
            x, w = example((4,), grad=True), example((4,), seed=1, grad=True)
            loss = f(x, w)
            first = torch.autograd.grad(loss, [x, w], retain_graph=True)
            second = torch.autograd.grad(loss, [x, w])
            return first, second

        def inputs():
            return []
        """,
    ),
    told(
        "training.optimizers",
        "Three steps of SGD with momentum and of Adam end where eager's do.",
        _steps("torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)"),
        _steps("torch.optim.Adam(net.parameters(), lr=0.01)"),
    ),
    told(
        "training.checkpointing",
        "Regions that are computed again in the backward.",
        """
        def program(x, w):
            y = checkpoint(lambda a, b: torch.tanh(a @ b).exp(), x, w, use_reentrant=False)
            return y * 2

        def inputs():
            return [example((4, 6), grad=True) / 1, example((6, 5), seed=1, grad=True)]
        """,
    ),
    told(
        "training.own_functions",
        "The program's own autograd.Function, hooks on tensors.",
        """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return gradient * x

        def program(x):
            return Twice.apply(x.sin()) + x

        def inputs():
            return [example((4,), grad=True)]
        """,
    ),
    told(
        "training.bfloat16",
        "Training with parameters and results in bfloat16, and under autocast.",
        """
        def program(x, w):
            return torch.tanh(x @ w).sum(-1)

        def inputs():
            return [example((4, 6), "bfloat16", grad=True), example((6, 5), "bfloat16", seed=1, grad=True)]
        """,
        """
        def program(x, w):
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                y = x @ w
            return y.float().tanh(), y

        def inputs():
            return [example((4, 6), grad=True), example((6, 5), seed=1, grad=True)]
        """,
    ),
    told(
        "training.kinks",
        "Gradients where functions have none: at zero, at bounds, among equal extremes.",
        """
        def program(x, y):
            return (
                torch.relu(x), x.abs(), x.clamp(-1, 1), F.leaky_relu(x, 0.1), torch.maximum(x, y), x.amax(-1),
                x.max(-1)[0], F.hardtanh(x), x.norm(dim=0), torch.sign(x) * y, F.relu6(x * 6), F.softplus(x), x.max(),
            )

        def inputs():
            on = example(()).device
            x = torch.tensor([[0.0, 1.0, -1.0, 0.0], [1.0, 1.0, 0.5, 0.0], [-1.0, -1.0, -1.0, 0.0]], device=on)
            return [x.requires_grad_(), x.detach().clone().requires_grad_()]
        """,
    ),
    told(
        "training.writes_to_tangents",
        "A backward writes to nothing, however the gradients that it is given lie in memory.",
        """
        @compiled
        def f(x, w):
            return torch.tanh(x) * w, x + w

        def program(x, w):
            found = []
            for layout in ("contiguous", "transposed", "expanded", "gaps"):
                tangents = [example((4, 6), seed=seed, layout=layout) for seed in (2, 3)]
                found += [g.contiguous() for g in torch.autograd.grad(f(x, w), [x, w], tangents)], tangents
            return found, x.detach() * 1, w.detach() * 1

        def inputs():
            return [example((4, 6), grad=True), example((4, 6), seed=1, grad=True)]
        """,
    ),
    told(
        "training.other_threads",
        "A thread other than that of the first call may compile, call, and go backward.",
        """
        @compiled
        def f(x, w):  # without roundings: in threads there is no run in float64
            return torch.relu(x @ w) * 2

        def program():
            x, w = example((4, 4)), example((4, 4), seed=1, grad=True)
            first, results = f(x, w), []

            def work():
                g = compiled(lambda x: torch.relu(x) * 3)
                for seed in (2, 3):
                    results.append((f(example((4, 4), seed=seed), w).detach(), g(example((4, 4), seed=seed))))
                first.sum().backward()

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return results, w.grad

        def inputs():
            return []
        """,
    ),
    told(
        "training.old_weights",
        "Weights that are written to, replaced or loaded between calls are the new ones, in inference too.",
        _NET
        + """
def program(x):
    forward, results = compiled(net), []
    with torch.no_grad():
        results.append(forward(x))
        net.first.weight.mul_(2)
        results.append(forward(x))
        net.first.bias.data.add_(1)
        results.append(forward(x))
        net.load_state_dict({name: value / 2 for name, value in net.state_dict().items()})
        results.append(forward(x))
        net.second.weight = nn.Parameter(net.second.weight + 1)
        results.append(forward(x))
    return results

def inputs():
    return [example((5, 6))]
""",
    ),
)
