"""Locals, aliases, closures and files across a graph break."""

from __future__ import annotations

from typing import Any

import torch
from helpers import check, check_made, graph_break, t


def test_file_access(tmp_path: Any) -> None:
    def make() -> Any:
        path = tmp_path / "file.txt"
        path.write_text("")

        def fn(x: torch.Tensor) -> tuple[Any, ...]:
            y = x + 1
            with open(path, "a") as f:
                f.write(f"{y.shape}\n")
                y = y * 2
            return y, open(path).read()

        return fn, path.read_text

    check_made(make, t())


def test_aliasing_of_locals_survives_a_break() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> tuple[Any, ...]:
        a = [1]
        b = a
        y = x + 1
        pair = (y, y)
        view = y[0]
        holder = {"a": a, "items": items, "self": None}
        holder["self"] = holder
        graph_break()
        b.append(2)
        items.append(a)
        view.add_(5)
        return (
            a is b,
            holder["a"] is a,
            holder["items"] is items,
            pair[0] is pair[1],
            holder["self"] is holder,
            y,
            a,
            x * 2,
        )

    check(fn, t(), [0], graphs=2, breaks=1)


def test_aliasing_between_argument_and_global_object_survives_a_break() -> None:
    class Node:
        def __init__(self) -> None:
            self.children: list[Any] = []
            self.parent: Any = None

    def fn(x: torch.Tensor, node: Node) -> tuple[Any, ...]:
        child = Node()
        child.parent = node
        node.children.append(child)
        graph_break()
        child.children.append(x + 1)
        return node.children[-1] is child, child.parent is node, x * 2

    check(fn, t(), Node())


def test_closures_and_cells_survive_a_break() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n = 1

        def get() -> int:
            return n

        def put(v: int) -> None:
            nonlocal n
            n = v

        graph_break()
        put(5)
        y = x + get()
        graph_break()
        n += 1
        return y * get(), n

    check(fn, t())


def test_many_locals_of_every_kind_survive_a_break() -> None:
    def fn(
        x: torch.Tensor, n: int, s: str, d: dict[str, Any], *rest: Any, k: float = 2.0, **kw: Any
    ) -> tuple[Any, ...]:
        f = lambda v: v + n  # noqa: E731
        r = range(3)
        sl = slice(0, 2)
        st = {1, 2}
        by = b"x"
        none = None
        cls = torch.nn.ReLU
        size = x.shape
        dtype = x.dtype
        print("cut")
        return f(x), r, sl, st, by, none, cls is torch.nn.ReLU, size, dtype, s, d, rest, k, kw, x[sl] * k

    check(fn, t(), 1, "s", {"a": t()}, 5, "six", k=3.0, z=[1], graphs=1, breaks=1)


def test_unbound_local_after_a_break() -> None:
    def fn(x: torch.Tensor, flag: bool) -> torch.Tensor:
        if flag:
            y = x + 1
        graph_break()
        try:
            return y * 2
        except UnboundLocalError as e:
            return x - len(str(e))

    check(fn, t(), True)
    check(fn, t(), False)


def test_training_step_with_breaks() -> None:
    def fn(model: torch.nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor) -> float:
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        print("loss")
        opt.step()
        return loss.item()

    def make() -> Any:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return (lambda x: fn(model, opt, x)), lambda: [p.detach().clone() for p in model.parameters()]

    check_made(make, t(2, 3), calls=3, skips=None)


def test_twenty_locals_cut_twice() -> None:
    """From Python 3.13 on, one instruction may load or store two of the first 16 locals, not of later ones."""

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a, b, c, d, e, f, g, h = range(8)
        i, j, k, m, n, o, p, q = range(8, 16)
        r, s = x + a, x * b
        total = r + s
        graph_break()
        u, v = s - c, r * d
        w = u + v
        graph_break()
        v.add_(w)
        u, v = v, u
        return u, v, w, total, [a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q]

    check(fn, t(), graphs=3, breaks=2)
