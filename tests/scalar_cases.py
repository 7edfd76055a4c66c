"""Operands for every scalar operation in every dtype, where operations go wrong, and how exact results are."""

from __future__ import annotations

import math

import torch
from kernel_reference import applied

from jitney_lowering.ir import ALL, OPERATIONS

DTYPES = sorted(ALL, key=str)
CONVERSIONS = ("cast", "bitcast")

# One result of the vector functions is at most a few units in the last place from torch's, whose sqrt of long
# tensors is not rounded right either.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-15, torch.float16: 1e-3, torch.bfloat16: 8e-3}
FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma "
    "pow atan2 hypot sqrt rsqrt".split()
)


def samples(dtype: torch.dtype) -> torch.Tensor:
    """Numbers where operations go wrong."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.is_floating_point:
        f = torch.finfo(dtype)
        inf = float("inf")
        special = [0.0, -0.0, inf, -inf, float("nan"), f.max, -f.max, f.tiny, -f.tiny, f.tiny / 4, f.eps, 1 + f.eps]
        plain = [1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -7.3, 100.0, 1e-3, 0.3333]
        return torch.tensor(special + plain, dtype=torch.float64).to(dtype)
    i = torch.iinfo(dtype)
    some = [0, 1, 2, 3, 5, 7, 8, 31, 100, i.max, i.max - 1]
    some += [] if dtype is torch.uint8 else [-1, -2, -3, -7, -8, -100, i.min, i.min + 1]
    return torch.tensor(some, dtype=dtype)


def result_dtypes(op: str, dtypes: tuple[torch.dtype, ...]) -> list[torch.dtype]:
    """What the operation can give, nothing if it does not take such operands."""
    found = []
    for asked in DTYPES if op in CONVERSIONS else [None]:
        try:
            found.append(OPERATIONS[op].result(dtypes, asked))
        except TypeError:
            pass
    return found


def operand_dtypes(op: str) -> list[tuple[torch.dtype, ...]]:
    arity = OPERATIONS[op].arity
    first = [(torch.bool,)] if op == "where" else [(d,) for d in DTYPES]
    rows = [head + (d,) * (arity - 1) for head in first for d in (DTYPES if op == "where" else head)]
    return [row for row in rows if result_dtypes(op, row)]


def operands(op: str, dtypes: tuple[torch.dtype, ...]) -> list[torch.Tensor]:
    """Every combination of the samples that the operation is defined for."""
    lists = [samples(d) for d in dtypes]
    if len(lists) == 3:  # a triple of each sample with some others is enough
        lists = [lists[0], lists[1], lists[2][:7]]
    rows = torch.cartesian_prod(*[torch.arange(len(x)) for x in lists]).reshape(-1, len(lists))
    columns = [x[rows[:, k]] for k, x in enumerate(lists)]
    if op in ("floordiv", "truncdiv", "remainder", "fmod") and not dtypes[1].is_floating_point:
        overflows = torch.zeros(len(rows), dtype=torch.bool)
        if dtypes[0] is not torch.uint8:  # undefined in C, and a trap in eager
            overflows = (columns[0] == torch.iinfo(dtypes[0]).min) & (columns[1] == -1)
        keep = (columns[1] != 0) & ~overflows
        columns = [c[keep] for c in columns]
    return columns


def defined(op: str, source: torch.Tensor, result: torch.dtype, *, as_x86: bool = True) -> torch.Tensor:
    """Where a conversion says something: out of the integer's range it does not, but for large integers of an x86."""
    if op != "cast" or not source.is_floating_point() or result.is_floating_point or result is torch.bool:
        return torch.ones(len(source), dtype=torch.bool)
    if as_x86 and result in (torch.int32, torch.int64):  # the conversion instruction's answer, as eager's
        return torch.ones(len(source), dtype=torch.bool)
    limits = torch.iinfo(result)
    wide = source.double()
    if result is torch.int64:  # whose limits are no doubles
        return (wide >= limits.min) & (wide < 2.0**63)
    return (wide > limits.min - 1) & (wide < limits.max + 1)


def compare(op: str, columns: list[torch.Tensor], found: torch.Tensor, *, as_x86: bool = True) -> None:
    """Raise ``AssertionError`` unless ``found`` is what the operation means, wherever it means something."""
    keep = defined(op, columns[0], found.dtype, as_x86=as_x86)
    expected = applied(op, columns, found.dtype)
    if op == "fma":
        compare_fma(columns, found, expected)
        return
    if op in ("fmod", "remainder") and found.dtype.is_floating_point:
        expected = exact_remainder(op, columns)
    tolerance = TOLERANCE.get(found.dtype, 0.0) if op in FUNCTIONS else 0.0
    absolute = 0.0
    if op == "lgamma":  # eager's own is up to some 1e-6 off near its zeros
        tolerance = absolute = max(tolerance, 2e-6)
    torch.testing.assert_close(
        found[keep],
        expected[keep],
        rtol=tolerance,
        atol=absolute,
        equal_nan=True,
        msg=lambda text: f"{op} of {[c.dtype for c in columns]} -> {found.dtype}: {text}",
    )


def exact_remainder(op: str, columns: list[torch.Tensor]) -> torch.Tensor:
    """The C library's; eager's vector function gives nan where the quotient is very large."""
    a, b = columns
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    rest = torch.tensor([math.fmod(x, y) if math.isfinite(x) and y else math.nan for x, y in pairs], dtype=a.dtype)
    if op == "fmod":
        return rest
    wrong = (rest != 0) & ((rest < 0) != (b < 0))
    return torch.where(wrong, (rest.double() + b.double()).to(a.dtype), rest)


def compare_fma(columns: list[torch.Tensor], found: torch.Tensor, expected: torch.Tensor) -> None:
    """Rounded once or twice: between the two there are some units in the last place of the largest number involved."""
    a, b, c = (x.double() for x in columns)
    slack = torch.finfo(found.dtype).eps * ((a * b).abs() + c.abs())
    fine = ((found.double() - expected.double()).abs() <= slack) | (found == expected)
    fine |= (found.isnan() & expected.isnan()) | (slack.isinf() | slack.isnan())
    assert fine.all(), [x[~fine] for x in (*columns, found, expected)]
