"""Programs that read numbers out of tensors, and sizes that depend on data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from captured.table import Made, Table, t

program = Table()
NUMBERS: dict[str, Any] = {"capture_scalar_outputs": True}
SIZES: dict[str, Any] = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


@program(**NUMBERS)
def item_of_float() -> Made:
    return lambda x: x * x.sum().item(), t()


@program(**NUMBERS)
def item_of_int() -> Made:
    return lambda x, n: x * n.item() + 1, t(), torch.tensor(3)


@program(**NUMBERS)
def int_of_tensor() -> Made:
    return lambda x, n: x + int(n) * 2, t(), torch.tensor(3)


@program(**NUMBERS)
def float_of_tensor() -> Made:
    return lambda x: x / (float(x.abs().max()) + 1.0), t()


@program(**NUMBERS)
def float_of_integer_tensor() -> Made:
    return lambda x, n: x * float(n), t(), torch.tensor(3)


@program(**NUMBERS)
def item_is_returned() -> Made:
    def f(x: torch.Tensor) -> Any:
        return x * 2, x.sum().item()

    return f, t()


@program(**NUMBERS)
def item_as_a_size() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch._check(k >= 2)
        torch._check(k <= 4)
        return torch.zeros(k, 3) + x[:1, :3]

    return f, t(), torch.tensor(3)


@program(**NUMBERS)
def slice_by_item() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch._check_is_size(k)
        torch._check(k <= x.shape[0])
        return x[:k] * 2

    return f, t(), torch.tensor(3)


@program(**NUMBERS)
def narrow_by_item() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k < x.shape[0])
        return x.narrow(0, k, 1).sum()

    return f, t(), torch.tensor(1)


@program(**NUMBERS)
def select_by_item() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k < x.shape[0])
        return x[k] + 1

    return f, t(), torch.tensor(1)


@program(**NUMBERS)
def tolist_of_lengths() -> Made:
    def f(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        a, b = lengths.tolist()
        return x * a + b

    return f, t(), torch.tensor([3, 1])


@program(**NUMBERS)
def split_by_tolist() -> Made:
    def f(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        sizes = lengths.tolist()
        for size in sizes:
            torch._check_is_size(size)
        return [part.sum() for part in x.split(sizes)]

    return f, t(), torch.tensor([1, 3])


@program(**NUMBERS)
def tolist_of_a_matrix() -> Made:
    def f(x: torch.Tensor, shapes: torch.Tensor) -> Any:
        out = x
        for h, w in shapes.tolist():
            out = out + h * w
        return out

    return f, t(), torch.tensor([[1, 2], [3, 4]])


@program(**NUMBERS)
def tolist_of_floats() -> Made:
    def f(x: torch.Tensor) -> Any:
        a, b = x[0, :2].tolist()
        return x * a - b

    return f, t()


@program(**NUMBERS)
def arithmetic_of_items() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        a, b = n[0].item(), n[1].item()
        return x * (a + 2 * b - 1) + (a // 2) * (b % 3)

    return f, t(), torch.tensor([7, 5])


@program(**NUMBERS)
def max_of_item() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        return x * max(n.item(), 1)

    return f, t(), torch.tensor(5)


@program(**NUMBERS)
def mask_by_item_arange() -> Made:
    def f(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        longest = lengths.max().item()
        torch._check_is_size(longest)
        mask = torch.arange(longest)[None, :] < lengths[:, None]
        return mask.float().sum(1)

    return f, t(), torch.tensor([2, 5, 3])


@program(**SIZES)
def nonzero_then_gather() -> Made:
    def f(x: torch.Tensor) -> Any:
        at = (x > 0).nonzero()
        return x[at[:, 0], at[:, 1]] * 2

    return f, t()


@program(**SIZES)
def nonzero_as_tuple() -> Made:
    def f(x: torch.Tensor) -> Any:
        rows, columns = torch.nonzero(x > 0.3, as_tuple=True)
        return x[rows, columns].sum() + rows.sum()

    return f, t()


@program(**SIZES)
def where_of_one() -> Made:
    def f(x: torch.Tensor) -> Any:
        (at,) = torch.where(x[:, 0] > 0)
        return x[at] + 1

    return f, t()


@program(**SIZES)
def boolean_mask() -> Made:
    return lambda x: x[x > 0].mean(), t()


@program(**SIZES)
def boolean_mask_of_rows() -> Made:
    def f(x: torch.Tensor, keep: torch.Tensor) -> Any:
        kept = x[keep]
        return kept @ kept.t()

    return f, t(), torch.tensor([True, False, True, True])


@program(**SIZES)
def masked_select() -> Made:
    return lambda x: torch.masked_select(x, x > 0) * 3, t()


@program(**SIZES)
def masked_select_method() -> Made:
    return lambda x: x.masked_select(x.ge(0.1)).exp().sum(), t()


@program(**SIZES)
def unique() -> Made:
    return lambda x: torch.unique(x) * 2, torch.tensor([3, 1, 3, 2])


@program(**SIZES)
def unique_with_inverse() -> Made:
    def f(x: torch.Tensor, ids: torch.Tensor) -> Any:
        values, inverse, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        sums = torch.zeros(values.shape[0], x.shape[1]).index_add(0, inverse, x)
        return sums / counts[:, None]

    return f, t(), torch.tensor([3, 1, 3, 2])


@program(**SIZES)
def unique_consecutive() -> Made:
    return lambda x: torch.unique_consecutive(x), torch.tensor([3, 3, 1, 2, 2])


@program(**SIZES)
def repeat_interleave() -> Made:
    return lambda x, n: x.repeat_interleave(n, dim=0) + 1, t(), torch.tensor([1, 0, 2, 1])


@program(**SIZES)
def repeat_interleave_with_size() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        return torch.repeat_interleave(x, n, dim=0, output_size=4) + 1

    return f, t(), torch.tensor([1, 0, 2, 1])


@program(**SIZES)
def bincount() -> Made:
    return lambda x: torch.bincount(x).sum() * 2, torch.tensor([3, 1, 3, 2])


@program(**SIZES)
def argwhere() -> Made:
    return lambda x: torch.argwhere(x > 0).float().mean(0), t()


@program(**SIZES)
def length_of_nonzero() -> Made:
    def f(x: torch.Tensor) -> Any:
        at = torch.nonzero(x > 0).squeeze(1)
        return x * at.shape[0]

    return f, t()


@program(**SIZES)
def numel_of_a_mask() -> Made:
    def f(x: torch.Tensor) -> Any:
        kept = x[x > 0]
        return kept.sum() / (kept.numel() + 1)

    return f, t()


@program(**SIZES, train=True)
def loss_of_kept_elements() -> Made:
    def f(x: torch.Tensor, target: torch.Tensor) -> Any:
        keep = target != -1
        return F.cross_entropy(x[keep], target[keep])

    return f, t().requires_grad_(), torch.tensor([1, -1, 3, 5])


@program(**SIZES)
def moe_routing() -> Made:
    def f(x: torch.Tensor, weights: torch.Tensor) -> Any:
        chosen = (x @ weights).argmax(-1)
        out = torch.zeros_like(x)
        for expert in range(weights.shape[1]):
            (at,) = torch.where(chosen == expert)
            out.index_add_(0, at, x[at] * (expert + 1))
        return out

    return f, t(), t(6, 3)


@program()
def assignment_by_mask() -> Made:
    def f(x: torch.Tensor) -> Any:
        y = x.clone()
        y[y < 0] = 0.5
        return y

    return f, t()


@program(**SIZES)
def update_by_mask() -> Made:
    def f(x: torch.Tensor, mask: torch.Tensor) -> Any:
        x[~mask] *= 2.0
        return x + 1

    return f, t(), t() > 0


@program(**SIZES)
def assignment_of_kept() -> Made:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        keep = y > 0
        out = torch.zeros_like(x)
        out[keep] = x[keep] * 2
        return out

    return f, t(), t(seed=1)


@program()
def sum_of_a_list_of_tensors() -> Made:
    return lambda x: sum([x, x * 2, x.mean()]) / 3, t()


@program()
def min_and_max_of_sizes() -> Made:
    def f(x: torch.Tensor) -> Any:
        n = min(x.shape[0], x.shape[1], 3)
        return x[:n] * max(x.shape) + any(s > 4 for s in x.shape) + sum(x.shape)

    return f, t()


@program()
def integers_of_numpy() -> Made:
    def f(x: torch.Tensor, n: Any) -> Any:
        size = int(np.prod(x.shape))
        return x.reshape(size)[: int(n)] * int(np.ceil(size / 5)) / math.sqrt(size)

    return f, t(), np.int64(3)


@program()
def scalar_of_numpy_in_arithmetic() -> Made:
    return lambda x, n: x * n + np.float64(0.5), t(), np.float64(3)


@program()
def assertion_on_sizes() -> Made:
    def f(x: torch.Tensor) -> Any:
        assert x.dim() == 2 and x.shape[1] % 2 == 0, f"odd {x.shape}"
        return x.chunk(2, 1)

    return f, t()


@program(**NUMBERS)
def assertion_on_values() -> Made:
    def f(x: torch.Tensor) -> Any:
        assert (x.abs() < 100).all(), "too large"
        return x * 2

    return f, t()


@program(**NUMBERS)
def assertion_on_an_item() -> Made:
    def f(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        assert k > 0
        return x * k

    return f, t(), torch.tensor(2)


@program()
def check_of_a_tensor() -> Made:
    def f(x: torch.Tensor) -> Any:
        torch._assert(x.shape[0] == 4, "rows")
        torch._assert_async((x.abs() < 100).all())
        return x + 1

    return f, t()


@program()
def where_not_if() -> Made:
    return lambda x: torch.where(x.sum() > 0, x, -x), t()


@program(**NUMBERS)
def step_of_a_schedule() -> Made:
    def f(x: torch.Tensor, step: torch.Tensor) -> Any:
        step += 1
        rate = 0.1 / (1 + step.item()) ** 0.5
        return x - rate * x

    return f, t(), torch.tensor(3.0)


@program(**NUMBERS)
def float_of_loss_in_a_dictionary() -> Made:
    def f(x: torch.Tensor) -> Any:
        loss = (x**2).mean()
        return {"loss": loss, "logs": {"mse": loss.item(), "max": x.max().item()}}

    return f, t()


@program(**SIZES)
def detections_above_a_threshold() -> Made:
    def f(boxes: torch.Tensor, scores: torch.Tensor) -> Any:
        best, labels = scores.max(-1)
        keep = best > 0.2
        boxes, best, labels = boxes[keep], best[keep], labels[keep]
        order = best.argsort(descending=True, stable=True)
        return boxes[order], best[order], labels[order]

    return f, t(8, 4), t(8, 3, seed=2)


@program(**SIZES)
def half_of_the_valid_losses() -> Made:
    def f(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=-1)
        kept = loss[labels != -1]
        hardest, _ = kept.topk(max(1, int(kept.numel() * 0.5)))
        return hardest.mean()

    return f, t(6, 3), torch.tensor([0, 1, 2, -1, 0, 1])


@program(**SIZES)
def graph_network_by_edges() -> Made:
    def f(x: torch.Tensor, adjacency: torch.Tensor) -> Any:
        source, target = adjacency.nonzero().t()
        messages = x[source] * 0.5
        return torch.zeros_like(x).index_add(0, target, messages)

    return f, t(), torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
