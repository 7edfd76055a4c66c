"""Stories about tensors: views, aliases, in-place writes, dtypes, ``out=``, hooks and autograd state between calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from helpers import graph_break, outcome, storybook, t

Compile = Callable[[Any], Any]
story, test_story = storybook()


@story
def in_place_writes_to_views_across_breaks(compile: Compile) -> Any:
    def fn(x: torch.Tensor, k: int) -> Any:
        row, column, flat = x[0], x[:, -1], x.view(-1)
        row.add_(k)
        graph_break()
        column *= 2
        flat[::2] = -1
        x[x > 3] = 0
        graph_break()
        x[1:, :1].copy_(row[:1])
        row += column.sum()
        return x.sum(0), row, column, flat.data_ptr() == x.data_ptr(), row._base is x

    called = compile(fn)
    base = t(4, 4)
    return [called(t(3, 4), 1), called(t(3, 4), 2), called(base[1:], 2)], base


@story
def overlapping_arguments_of_many_kinds(compile: Compile) -> Any:
    def fn(a: torch.Tensor, b: torch.Tensor, out: list[torch.Tensor]) -> Any:
        a.mul_(2)
        c = b + 1
        b[0] = 9
        out.append(a.clone())
        out[0].add_(1)
        return c, a + b

    called = compile(fn)
    base = t(6)
    results = [called(base[:3], base[3:], [t()]), called(base[:3], base[1:4], [t()]), called(base, base, [base])]
    other = t(6)
    results.append(called(other[:3], other[:3], [other]))
    results.append(called(other.view(2, 3)[0], other[:3], [other[3:]]))
    return results, base, other


@story
def dtype_promotion_with_numbers_and_zero_dims(compile: Compile) -> Any:
    def fn(x: torch.Tensor, k: Any) -> Any:
        y = x + k
        z = x * torch.tensor(k)
        w = torch.where(x > 0, x, k)
        return (
            y,
            z.dtype,
            w.dtype,
            torch.result_type(x, k),
            (x / 2).dtype,
            (x // 2 if x.dtype != torch.bool else x),
            y.sum(),
        )

    called = compile(fn)
    xs = [torch.tensor([1, 0, 2]), t(), torch.tensor([True, False]), t().half(), torch.tensor(3), torch.tensor(2.5)]
    return [outcome(called, x, k) for x in xs for k in (2, 3, 1.5, True)]


@story
def out_arguments_that_resize_or_alias(compile: Compile) -> Any:
    def fn(x: torch.Tensor, out: torch.Tensor) -> Any:
        y = torch.mul(x, 2, out=out)
        torch.add(out, 1, out=out)
        values, indices = torch.max(x.view(1, -1), 1)
        torch.cumsum(x, 0, out=x)
        return y is out, out * 2, values, indices

    called = compile(fn)
    a, b = torch.zeros(3), t(6)
    results = [called(t(), a), called(t() * 2, a), called(b[:3], b[3:])]
    same = t()
    results.append(called(same, same))
    return results, a, b, same


@story
def sizes_in_arithmetic_and_as_values(compile: Compile) -> Any:
    def fn(x: torch.Tensor) -> Any:
        shape = x.shape
        size = shape[:-1] + (2, shape[-1])
        b, *rest = shape
        y = x.unsqueeze(-2).expand(size)
        return (
            y,
            shape == x.size(),
            size,
            len(shape),
            shape.numel(),
            rest,
            torch.Size([*rest, b]),
            shape * 2,
            hash(shape) == hash(tuple(shape)),
            isinstance(shape, tuple),
            x.new_zeros(shape[::-1]),
        )

    called = compile(fn)
    return [called(t(2, 3)), called(t(4, 3)), called(t(4, 5)), called(t(1, 5)), called(t(3)), called(t(5))]


@story
def shapes_drive_python_containers(compile: Compile) -> Any:
    def fn(x: torch.Tensor, table: dict[Any, Any]) -> Any:
        n = x.shape[0]
        table[n] = table.get(n, 0) + n
        key = (x.dtype, n, f"n{n}")
        table.setdefault(key, []).append(n // 2)
        pieces = [x[i : i + 2] for i in range(0, n, 2)]
        return (
            torch.cat(pieces[::-1]),
            len(pieces),
            [0] * (n % 3),
            "ab"[n % 2],
            max(n, 3),
            divmod(n, 4),
            -n // 2,
            n in table,
        )

    called = compile(fn)
    table: dict[Any, Any] = {}
    return [called(t(n), table) for n in (2, 3, 5, 3, 7, 1, 8)], table


@story
def gradients_accumulate_and_are_cleared(compile: Compile) -> Any:
    w = t(requires_grad=True)

    def fn(x: torch.Tensor, clear: bool) -> Any:
        if clear:
            w.grad = None
        loss = (w * x).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.25)
        return loss.detach(), w.grad is None, w.grad * 1

    called = compile(fn)
    out = [called(t(), clear) for clear in (True, False, False, True)]
    w.requires_grad_(False)
    return out, w, outcome(lambda: type(outcome(called, t(), True)))


@story
def requires_grad_and_modes_change_between_calls(compile: Compile) -> Any:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        with torch.enable_grad():
            z = (x.detach().requires_grad_() * 3).sum()
        return y, y.requires_grad, z.requires_grad, torch.is_grad_enabled(), y.is_leaf, x.requires_grad

    called = compile(fn)
    out = [called(t()), called(t(requires_grad=True))]
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with mode:
            out += [called(t()), called(t(requires_grad=True))]
    return out


@story
def detached_and_cloned_results_share_or_do_not(compile: Compile) -> Any:
    def fn(x: torch.Tensor) -> Any:
        d, c, r, n = x.detach(), x.clone(), x.reshape(-1), x.narrow(0, 0, 1)
        d.add_(1)
        graph_break()
        c.zero_()
        n.fill_(5)
        e = x.contiguous()
        return d, c, r, n, e is x, x.to(torch.float32) is x, x.float() is x, x.expand_as(x)[0], x.data

    called = compile(fn)
    xs = [t(2, 2), t(2, 2).t(), t(3), t(2, 3)[:, ::2]]
    return [called(x) for x in xs], xs


@story
def tensor_attributes_and_hooks_between_calls(compile: Compile) -> Any:
    log: list[Any] = []

    def fn(x: torch.Tensor) -> Any:
        tag = getattr(x, "tag", 0)
        y = x * 2 + tag
        y.origin = tag
        return y, y.origin, hasattr(x, "tag")

    called = compile(fn)
    x = t(requires_grad=True)
    out = [called(x)]
    x.tag = 3  # type: ignore[attr-defined]
    out.append(called(x))
    x.tag = 4  # type: ignore[attr-defined]
    handle = x.register_hook(lambda g: log.append(g.sum()) or g * 2)
    y, *_ = called(x)
    y.sum().backward()
    handle.remove()
    del x.tag  # type: ignore[attr-defined]
    return out + [called(x)], log, x.grad


@story
def lists_of_tensors_grow_stack_and_shrink(compile: Compile) -> Any:
    def fn(history: list[torch.Tensor], x: torch.Tensor) -> Any:
        history.append(x * len(history))
        if len(history) > 3:
            oldest = history.pop(0)
            oldest.add_(100)
        stacked = torch.stack(history)
        history[-1] += 1
        history[:] = [h for h in history if h.sum() is not None]
        return stacked, stacked[-1] is history[-1], [h.shape for h in history], sum(history), history.index(history[0])

    called = compile(fn)
    history: list[torch.Tensor] = []
    out = [called(history, t()) for _ in range(5)]
    history.reverse()
    return out + [called(history, t())], history


@story
def indexing_with_everything(compile: Compile) -> Any:
    def fn(x: torch.Tensor, i: Any) -> Any:
        return x[i], x[..., None, i if isinstance(i, int) else 0]

    called = compile(fn)
    indices: list[Any] = [
        0,
        -1,
        slice(1, None),
        None,
        ...,
        (0, 1),
        [0, 1],
        torch.tensor([1, 0]),
        torch.tensor(1),
        (slice(None), 0),
    ]
    indices += [True, torch.tensor([True, False]), ([0, 1], [1, 0]), (..., slice(None, None, 2)), 1, 0]
    x = t(2, 3)
    return [outcome(called, x, i) for i in indices], outcome(called, x, 1)


@story
def integer_and_boolean_in_place_operators(compile: Compile) -> Any:
    def fn(x: torch.Tensor, y: Any) -> Any:
        before = x
        x += y
        z = x
        x = x - 1
        x |= 1
        z <<= 1
        z %= 7
        return x, z, before is z, x is before, ~x & z, x ^ z

    called = compile(fn)
    xs = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6], dtype=torch.uint8)]
    return [called(x, y) for x in xs for y in (1, 2, torch.tensor([1, 1, 2]))], xs


@story
def comparisons_that_give_tensors_or_bools(compile: Compile) -> Any:
    def fn(x: torch.Tensor, other: Any) -> Any:
        return (
            x == other,
            x is other,
            (other == x) is True,
            x.equal(other) if isinstance(other, torch.Tensor) else None,
            x != other,
        )

    called = compile(fn)
    x = t()
    return [outcome(called, x, o) for o in (x, t(), 2, 3, None, "s", [1], t() + 1)]


@story
def device_dtype_and_layout_arguments(compile: Compile) -> Any:
    def fn(x: torch.Tensor, where: Any, kind: Any) -> Any:
        y = x.to(where, kind)
        z = torch.zeros(2, device=where, dtype=kind)
        return (
            y,
            z,
            y.device == torch.device(where),
            kind.is_floating_point,
            str(kind),
            torch.empty_like(x, dtype=kind).dtype,
            where,
        )

    called = compile(fn)
    kinds = (torch.float32, torch.float64, torch.int64)
    return [called(t(), where, kind) for where in ("cpu", torch.device("cpu")) for kind in kinds]


@story
def default_dtype_and_threads_change(compile: Compile) -> Any:
    called = compile(
        lambda x, k: (torch.tensor(k), torch.ones(2) * k, x + torch.arange(3, dtype=torch.get_default_dtype()))
    )
    out = [called(t(), 1.5)]
    torch.set_default_dtype(torch.float64)
    out += [called(t(), 1.5), called(t(), 2.5)]
    torch.set_default_dtype(torch.float32)
    return out + [called(t(), 3.5)]


@story
def module_state_is_loaded_frozen_and_cast(compile: Compile) -> Any:
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    called = compile(m)
    out = [called(t(4, 3))]
    state = {k: v + 1 for k, v in m.state_dict().items()}
    m.load_state_dict(state)
    m.eval()
    out.append(called(t(4, 3)))
    m[0].requires_grad_(False)
    m[1].momentum = 0.5
    m.train()
    out += [called(t(4, 3)), called(t(4, 3)).requires_grad]
    m[0].weight = torch.nn.Parameter(torch.ones(4, 3))
    m[2].p = 0.0
    out.append(called(t(2, 3)))
    m.double()
    out += [called(t(4, 3).double()), m[1].num_batches_tracked]
    m[0].bias = None
    return out + [called(t(4, 3).double())]


@story
def custom_functions_saved_and_counted(compile: Compile) -> Any:
    class Clamp(torch.autograd.Function):
        limit = 1.0

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
            ctx.k = k
            ctx.save_for_backward(x)
            return x.clamp(max=k)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return grad * (x < ctx.k) * 3, None

    called = compile(lambda x, k: Clamp.apply(x * 2, k) + Clamp.limit)
    out = []
    for k in (0.5, 0.25, 0.75):
        x = t(requires_grad=True)
        y = called(x, k)
        y.sum().backward()
        out += [y.detach(), x.grad]
    Clamp.limit = 4.0
    return out + [called(t(), 1.0)]


@story
def chunks_unbound_and_written(compile: Compile) -> Any:
    def fn(x: torch.Tensor, n: int) -> Any:
        chunks = x.chunk(n)
        for i, chunk in enumerate(chunks):
            chunk.mul_(i)
        first, *rest = x.unbind()
        first.add_(10)
        graph_break()
        a, b = x.split([1, x.shape[0] - 1])
        b[-1].neg_()
        return [c.shape for c in chunks], first, len(rest), a, b, x

    called = compile(fn)
    x = t(4, 2)
    return [called(x, n) for n in (2, 3, 4, 2)], called(t(6, 2), 2)


@story
def inference_tensors_and_autocast_between_calls(compile: Compile) -> Any:
    m = torch.nn.Linear(3, 3)
    called = compile(lambda x: (m(x), m(x).dtype, x.is_inference(), (x * 1).is_inference()))
    with torch.inference_mode():
        frozen = t(2, 3) * 1
        out = [called(frozen), called(t(2, 3))]
    out.append(called(t(2, 3)))
    for kind in (torch.bfloat16, torch.float16):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=kind))
            out.append(called(t(2, 3)))
    return out + [called(t(2, 3)), outcome(lambda: type(outcome(called, frozen)))]
