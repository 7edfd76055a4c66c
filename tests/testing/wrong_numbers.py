"""Backends whose kernels are wrong on purpose for some numbers, dtypes or shapes, registered in ``WRONG``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from testing.wrong_backends import Run, _each, _is, _is_float, _operators, _percent, _symbolic, wrong
from torch import fx

aten = torch.ops.aten


def _given(graph: fx.GraphModule, name: str, *others: str) -> Callable[[Callable[..., Any]], Run]:
    """The graph, one operator computed by ``function(*args)`` instead."""

    def instead(function: Callable[..., Any]) -> Run:
        return _operators(graph, lambda node, args, r: function(r, *args) if _is(node, name, *others) else r)

    return instead


# ---------------------------------------------------------------------- extremes and ties


@wrong("numbers.extremes")
def maximum_begins_at_zero(run, graph, request):
    return _given(graph, "amax")(lambda r, *args: r if _is_float(r) or r.dtype is torch.bool else r.clamp(min=0))


@wrong("numbers.extremes")
def maximum_begins_at_the_lowest_number(run, graph, request):
    least = torch.finfo(torch.float32).min
    return _given(graph, "amax")(lambda r, *args: r.clamp(min=least) if r.dtype is torch.float32 else r)


@wrong("numbers.extremes")
def takes_the_last_of_equal_ones(run, graph, request):
    def last(r, x, dim=None, keepdim=False):
        return r if dim is None else x.shape[dim] - 1 - x.flip(dim).argmax(dim, keepdim)

    return _given(graph, "argmax")(last)


@wrong("numbers.extremes")
def sorts_equal_ones_the_other_way(run, graph, request):
    def change(node, args, result):
        if not _is(node, "sort"):
            return result
        dim = node.kwargs.get("dim", -1)
        values, places = args[0].flip(dim).sort(dim=dim, stable=True)
        return values, args[0].shape[dim] - 1 - places

    return _operators(graph, change)


@wrong("numbers.nan")
def pooling_skips_nan(run, graph, request):
    pool = aten.max_pool2d_with_indices
    return _given(graph, "max_pool2d_with_indices")(lambda r, x, *rest: pool(x.nan_to_num(-1e30), *rest))


# ---------------------------------------------------------------------- integers


@wrong("numbers.wide_integers")
def counts_in_bytes(run, graph, request):
    return _given(graph, "sum")(lambda r, x, *rest: r % 256 if x.dtype is torch.bool else r)


@wrong("numbers.wide_integers")
def sums_int32_in_int32(run, graph, request):
    return _given(graph, "sum")(lambda r, x, *rest: r.to(torch.int32).long() if x.dtype is torch.int32 else r)


@wrong("numbers.wide_integers")
def computes_int64_in_doubles(run, graph, request):
    def subtract(r, a, b):
        return (a.double() - b).long() if r.dtype is torch.int64 else r

    return _given(graph, "sub")(subtract)


@wrong("numbers.wide_integers")
def has_numbers_of_32_bits(run, graph, request):
    def change(r, a, b):
        return a + (b + 2**31) % 2**32 - 2**31 if isinstance(b, int) and r.dtype is torch.int64 else r

    return _given(graph, "add")(change)


@wrong("numbers.int16")
def wrong_in_int16(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r + 1 if r.dtype is torch.int16 else r)


# ---------------------------------------------------------------------- precision


@wrong("numbers.complex128")
def wrong_in_complex128(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r * 1.1 if r.dtype is torch.complex128 else r)


@wrong("numbers.doubles")
def computes_doubles_in_single(run, graph, request):
    return _given(graph, "sin")(lambda r, x: x.float().sin().double() if x.dtype is torch.float64 else r)


@wrong("numbers.doubles")
def sums_doubles_in_single(run, graph, request):
    return _given(graph, "sum")(lambda r, x, *rest: x.float().sum(*rest).double() if r.dtype is torch.float64 else r)


@wrong("numbers.small")
def flushes_denormal_numbers(run, graph, request):
    least = torch.finfo(torch.float32).tiny
    return lambda *inputs: _each(
        run(*inputs), lambda r: torch.where(r.abs() < least, r * 0, r) if r.dtype is torch.float32 else r
    )


@wrong("numbers.small")
def rounds_small_numbers_to_zero(run, graph, request):
    return lambda *inputs: _each(
        run(*inputs), lambda r: torch.where(r.abs() < 1e-10, r * 0, r) if r.dtype is torch.float32 else r
    )


@wrong("numbers.small")
def has_no_log1p(run, graph, request):
    return _given(graph, "log1p")(lambda r, x: (1 + x).log())


@wrong("numbers.cancellation")
def has_variances_of_squares(run, graph, request):
    def norm(r, x, shape, weight, bias, eps):
        mean = x.mean(-1, keepdim=True)
        scale = (((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0) + eps).rsqrt()
        return (x - mean) * scale, mean, scale

    return _given(graph, "native_layer_norm")(norm)


@wrong("numbers.matrices")
def wrong_products_of_halves(run, graph, request):
    return _given(graph, "mm", "addmm")(lambda r, *args: r * 1.5 if r.dtype is torch.float16 else r)


@wrong("numbers.matrices")
def multiplies_in_halves(run, graph, request):
    def product(r, x, y):
        if r.dtype is not torch.bfloat16:
            return r
        total = torch.zeros_like(r)
        for k in range(x.shape[-1]):
            total = total + x[:, k : k + 1] * y[k : k + 1]
        return total

    return _given(graph, "mm")(product)


# ---------------------------------------------------------------------- functions and indices


@wrong("numbers.functions")
def forgets_quadrants(run, graph, request):
    return _given(graph, "atan2")(lambda r, x, y: (x / y).atan())


@wrong("numbers.functions")
def forgets_alpha(run, graph, request):
    return _operators(graph, lambda node, args, r: args[0] - args[1] if _is(node, "sub") and node.kwargs else r)


@wrong("numbers.indices")
def has_no_negative_indices(run, graph, request):
    def change(r, x, places):
        return aten.index(x, [p.clamp(min=0) if p is not None and p.dtype is torch.int64 else p for p in places])

    return _given(graph, "index")(change)


@wrong("numbers.indices")
def repeated_indices_overwrite(run, graph, request):
    return _given(graph, "index_put")(lambda r, x, places, values, add=False: aten.index_put(x, places, values))


# ---------------------------------------------------------------------- shapes


@wrong("shapes.large")
def counts_in_16_bits(run, graph, request):
    def change(result):
        if result.numel() > 2**16 and _is_float(result):
            result = result.clone()
            result.view(-1)[2**16 :] = 0
        return result

    return lambda *inputs: _each(run(*inputs), change)


@wrong("shapes.many_dimensions")
def has_six_dimensions(run, graph, request):
    return lambda *inputs: _each(run(*inputs), lambda r: r * 2 if r.dim() > 6 else r)


@wrong("shapes.many_arguments")
def has_64_arguments(run, graph, request):
    many = sum(node.op == "placeholder" for node in graph.graph.nodes) > 64
    return lambda *inputs: _each(run(*inputs), lambda r: _percent(r) if many else r)


@wrong("shapes.other_places")
def keeps_the_first_offsets(run, graph, request):
    first: list[int] = []

    def compiled(*inputs):
        first[:] = first or [i.storage_offset() for i in inputs]
        return run(*(i.as_strided(i.shape, i.stride(), at) for i, at in zip(inputs, first, strict=True)))

    return compiled


@wrong("dynamic.symbolic_strides")
def takes_symbolic_strides_for_contiguous(run, graph, request):
    def lying(value):
        if not isinstance(value, torch.Tensor) or value.is_contiguous():
            return value
        return value.as_strided(value.shape, torch.empty(value.shape).stride())

    return (lambda *inputs: run(*map(lying, inputs))) if _symbolic(graph) else run


@wrong("dynamic.symbolic_sizes")
def has_one_block_for_symbolic_sizes(run, graph, request):
    def change(result):
        if _symbolic(graph) and _is_float(result) and result.numel() > 256:
            result = result.clone(memory_format=torch.contiguous_format)
            result.view(-1)[256:] = 0
        return result

    return lambda *inputs: _each(run(*inputs), change)


@wrong("models.convolutions")
def convolves_one_group(run, graph, request):
    def change(r, *args):
        return _percent(r) if args[-1] > 1 else r

    return _given(graph, "convolution")(change)


@wrong("training.kinks")
def has_a_gradient_at_zero(run, graph, request):
    return _given(graph, "threshold_backward")(lambda r, g, x, bound: torch.where(x >= bound, g, 0.0))
