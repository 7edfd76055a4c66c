"""Numbers that change from call to call, where Python wants numbers of its own: as in eager, never an error of ours."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import string
import types
from typing import Any

import numpy as np
import pytest
import torch
from helpers import compile_fn, observe, t


@dataclasses.dataclass
class Sizes:
    a: int
    b: float


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value


class Positive(Held):
    def __bool__(self) -> bool:
        answer: bool = self.value > 3
        return answer


Flags = enum.IntFlag("Flags", {"X": 1, "Y": 2})

PROGRAMS: dict[str, Any] = {
    "sums": lambda k, s: (sum([k, 0.1, 0.1, 0.1]), sum([s, 0.1, 0.1, k]), sum([0.1] * 3, start=k)),
    "sums of what comes": lambda k, s: (sum(v for v in (k, 0.1, 0.1, s)), sum(i * s for i in range(k))),
    "products": lambda k, s: (math.prod([k, 0.1, 0.1, 0.1]), math.prod([0.1] * 3, start=k), math.prod([0.1, s, 0.3])),
    "sums step by step": lambda k, s: (
        *itertools.accumulate([k, 0.1, 0.1, 0.1]),
        *itertools.accumulate([s, 0.1], None),
    ),
    "divmod": lambda k, s: (divmod(k, 2), divmod(-k, 3), divmod(7, k), divmod(s, 0.3), divmod(k, s)),
    "divmod by zero": lambda k, s: divmod(k, 0),
    "divmod given to C code": lambda k, s: (list(map(divmod, [k], [2])), functools.partial(divmod, k)(2)),
    "powers modulo": lambda k, s: (pow(k, 2, 5), pow(2, k)),
    "inverted": lambda k, s: (~k, operator.invert(k), list(map(operator.invert, [k]))),
    "methods of the class": lambda k, s: (int.__add__(k, 1), float.__mul__(s, 2.0), int.bit_length(k)),
    "sets": lambda k, s: ({k, 2}, {(k, 1)}, set([k, 2]), frozenset((k, s)), {1}.union([k]), {4} - {k}, sorted({k, 2})),
    "dictionaries": lambda k, s: (dict([(k, 1)]), dict(zip([k], [s], strict=True)), dict.fromkeys([k, s])),
    "keys": lambda k, s: ({((k, 1), 2): s}, {((4, 1), 2): 5}.get(((k, 1), 2)), collections.OrderedDict([(k, s)])),
    "copies": lambda k, s: (copy.copy(k), copy.deepcopy([k, {"s": (s,)}]), vars(copy.deepcopy(Held(k)))),
    "dataclasses": lambda k, s: (dataclasses.asdict(Sizes(k, s)), dataclasses.astuple(Sizes(k, s))),
    "flags": lambda k, s: (Flags(k % 4), Flags(k % 4).value),
    "templates": lambda k, s: string.Template("$a-$b").substitute(a=k, b=[s]),
    "defaults": lambda k, s: (lambda d: (d.setdefault(k, []).append(s), d.setdefault((k, 1), 2), d))({4: [1]}),
    "complex numbers": lambda k, s: (complex(1, 2) * k, 3j + s, k - 1j, complex(k, s)),
    "large ones": lambda k, s: (k << 100, 1 << k, k**50, 3**k, (k << 70) // 7, math.isqrt(k << 90), k * 10**30 % 7),
    "logarithms": lambda k, s: (math.log(s, 2), math.log(k, s + 1), math.log(8, k), math.log2(k)),
    "beside text": lambda k, s: ("a" * k, "a" + k),
    "truth": lambda k, s: (1 if Positive(k) else 2, not Positive(s), bool(Positive(k)), [*filter(Positive, [k, 1])]),
    "no numbers": lambda k, s: (min(s, math.nan), max(math.nan, s), s < math.nan, k != math.nan, s < math.inf),
    "out of range": lambda k, s: 10.0 ** (k * 100),
    "rounded": lambda k, s: (
        math.floor(k * 0.5),
        math.ceil(s * k),
        math.trunc(-s * 3),
        math.floor(k),
        s - math.floor(s),
    ),
    "rounded and counted": lambda k, s: ([0] * math.floor(k * 0.5), [*range(math.ceil(s * k))], f"{math.floor(k / 2)}"),
    "rounded large ones": lambda k, s: (math.floor(s * 1e18), math.ceil(k * 1e300), math.trunc(-s * 2.0**52)),
    "rounded infinity": lambda k, s: math.floor(s * math.inf),
    "among keys": lambda k, s: (k in {4: 1, "a": 2}, s in {0.75: 1, 2: 3}, k not in {5: 0}, {2: 1}.__contains__(k)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_python_gives(name: str) -> None:
    def program(x: torch.Tensor, k: int, s: float) -> Any:
        try:
            return x + 1, PROGRAMS[name](k, s)
        except Exception as error:
            return x - 1, (type(error), str(error))

    compiled = compile_fn(program)
    for k, s in ((3, 0.25), (4, 0.5), (5, 0.75), (2, 0.3), (4, 2.0)):
        x = t(2)
        got, wanted = compiled(x, k, s), program(x, k, s)
        torch.testing.assert_close(got[0], wanted[0], rtol=0, atol=0)
        assert repr(got[1]) == repr(wanted[1])


def test_divmod_of_a_size_is_captured_once_for_all() -> None:
    compiled = compile_fn(lambda x: x * divmod(x.shape[0], 4)[1] + divmod(x.shape[0], 4)[0])
    with observe() as seen:
        for n in (5, 6, 7, 11):
            x = t(n)
            torch.testing.assert_close(compiled(x), x * (n % 4) + n // 4, rtol=0, atol=0)
    assert len(seen.graphs) == 2 and not seen.breaks, seen.recompiles


def test_a_rounded_number_is_captured_once_for_all() -> None:
    def program(x: torch.Tensor, k: int) -> Any:
        n = math.floor(k / 3)
        return x[:, :n] * n, x.new_zeros(n + 1), (k / 3 - n) * x, n

    compiled = compile_fn(program, backend="aot_eager", fullgraph=True)
    with observe() as seen:
        for k in (6, 7, 13, 16, 18):
            x = t(2, 9)
            got, wanted = compiled(x, k), program(x, k)
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
            assert type(got[-1]) is int
    assert len(seen.graphs) == 2 and not seen.kept, seen.recompiles


def test_a_number_that_is_no_key_is_captured_once_for_all() -> None:
    keys: dict[Any, int] = {3: 1, 9: 2, "a": 3}
    compiled = compile_fn(lambda x, k: x * (keys[k] if k in keys else -1))
    with observe() as seen:
        for k in (2, 4, 5, 6, 7, 8):
            assert torch.equal(compiled(torch.ones(2), k), torch.full((2,), -1.0))
        assert len(seen.graphs) == 2, seen.recompiles
        assert torch.equal(compiled(torch.ones(2), 9), torch.full((2,), 2.0))
        keys[6] = 5
        assert torch.equal(compiled(torch.ones(2), 6), torch.full((2,), 5.0))


@pytest.mark.parametrize("name", ["divmod", "round"])
def test_what_tensors_lack_is_said_of_tensors(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return divmod(x, 2) if name == "divmod" else round(x)
        except TypeError as error:
            return x + 1, str(error)

    assert compile_fn(program)(t(2))[1] == program(t(2))[1]


@pytest.mark.parametrize("name", ["grad mode", "inference mode", "autocast"])
def test_a_size_decides_on_a_state_of_torch(name: str) -> None:
    blocks = {
        "grad mode": lambda on: torch.set_grad_enabled(on),
        "inference mode": lambda on: torch.inference_mode(on),
        "autocast": lambda on: torch.autocast("cpu", dtype=torch.bfloat16, enabled=on),
    }
    w = torch.ones(2, 2, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        with blocks[name](x.shape[0] > 4):
            return x @ w

    compiled = compile_fn(program)
    for n in (3, 4, 5, 6):
        x = t(n, 2)
        got, wanted = compiled(x), program(x)
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        assert (got.requires_grad, got.is_inference()) == (wanted.requires_grad, wanted.is_inference())


def test_a_state_that_torch_refuses_is_the_users_error() -> None:
    def program(x: torch.Tensor, on: Any) -> Any:
        try:
            torch.set_grad_enabled(on)
        except TypeError as error:
            return x + 1, str(error)

    assert compile_fn(program)(t(2), "on")[1] == program(t(2), "on")[1]


def test_scalars_of_numpy_decide_and_meet_tensors() -> None:
    def program(x: torch.Tensor, rate: Any) -> Any:
        keep = 1 - rate
        return (keep + x, x * np.sqrt(rate), keep > 0.5) if rate > 0.2 and keep else (x, rate)

    compiled = compile_fn(program)
    with observe() as seen:
        for value in (0.25, 0.1, 0.5, 0.75, 0.1, 1.0, 0.25):
            got, wanted = compiled(t(2), np.float64(value)), program(t(2), np.float64(value))
            torch.testing.assert_close(got[:2], wanted[:2], rtol=0, atol=0)
            assert [type(v) for v in got] == [type(v) for v in wanted] and got[2:] == wanted[2:]
    assert not seen.breaks


REPEATED: dict[str, Any] = {
    "sequences": lambda n: ([1, 2] * n, n * (1,), "ab" * n, n * b"z", [0] * np.prod([2, n])),
    "in place": lambda n: operator.imul([1], n),
    "sums": lambda n: ([1] + n, n + [1, 2]),
    "as an index": lambda n: ([5, 6, 7, 8][n], "abcd"[n], [1, 2, 3][:n], [*range(n)]),
    "kept by itemgetter": lambda n: operator.itemgetter(n)([5, 6, 7, 8]),
    "given to types": lambda n: types.prepare_class("a", [n])[0],
}


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float64, np.bool_])
@pytest.mark.parametrize("name", REPEATED)
def test_scalars_of_numpy_beside_sequences(name: str, kind: Any) -> None:
    def program(x: torch.Tensor, n: Any) -> Any:
        try:
            return x + 1, REPEATED[name](n)
        except TypeError as error:
            return x - 1, str(error)

    compiled = compile_fn(program)
    for value in (1, 2, 3, 1):
        assert repr(compiled(t(2), kind(value))) == repr(program(t(2), kind(value)))


def test_a_list_from_outside_is_repeated_by_a_scalar_of_numpy() -> None:
    def program(x: torch.Tensor, items: list[int], n: Any) -> Any:
        items *= n
        return x + len(items)

    mine, theirs = [1, 2], [1, 2]
    assert torch.equal(compile_fn(program)(t(2), mine, np.int64(2)), program(t(2), theirs, np.int64(2)))
    assert mine == theirs == [1, 2, 1, 2]


def test_a_truth_value_is_compared_with_a_number_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    def fn(x: torch.Tensor, low: bool, high: int) -> Any:
        return x * 2, low < high, low == high, high >= low, high != low

    compiled = compile_fn(fn)
    for low in (True, False):
        for high in (0, 1, 2, 3, 4):
            assert compiled(t(), low, high)[1:] == fn(t(), low, high)[1:]
    assert not [record for record in caplog.records if "failed to eval" in record.getMessage()]


def test_the_whole_part_of_a_float_is_captured_once_for_all() -> None:
    def fn(x: torch.Tensor, share: float) -> Any:
        return x * [1, 2, 3, 4][int(share * 2)], int(share)

    compiled, whole = compile_fn(fn), compile_fn(lambda x, number: (x + int(number), int(number)))
    with observe() as seen:
        for share in (0.1, 0.2, 0.3, 0.49, 0.0, -0.2, 0.7, 0.9, 0.6, 1.1, 1.4, 1.6, 1.9, -0.49, 0.45, 0.75):
            assert str(compiled(t(3), share)) == str(fn(t(3), share))
        assert len(seen.graphs) <= 5
        for number in (0.5, 1.5, 2.0, 1.9999999999999998, -1.0, -1.5, -2.0, -0.9, 1e17, 2.0**52, 2.0**52 - 0.5):
            got = whole(t(3), number)
            assert torch.equal(got[0], t(3) + int(number)) and got[1] == int(number) and type(got[1]) is int
    assert len(seen.graphs) <= 10
    assert compile_fn(lambda x, number: (x + 1, int(number)))(t(3), 1e300)[1] == int(1e300)
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises((ValueError, OverflowError)):
            whole(t(3), number)


def zero_that_decides(x: torch.Tensor, rate: float) -> Any:
    if not rate:
        return x * (rate * 2), rate * 3.0, [rate, -rate]
    return x * rate


def zero_as_text(x: torch.Tensor, rate: float) -> Any:
    return x * rate, f"{rate * 2:+}", str(rate), {rate: x}


def zero_between_bounds(x: torch.Tensor, rate: float) -> Any:
    half = rate * 0.5
    return (x * half, half, x * rate) if 0 <= half <= 0 else x


@pytest.mark.parametrize("fn", [zero_that_decides, zero_as_text, zero_between_bounds])
@pytest.mark.parametrize("rates", [(0.5, 0.25, 0.0, -0.0, 0.1), (0.5, 0.25, -0.0, 0.0), (0.0, -0.0, 0.3, 0.2, -0.0)])
def test_the_sign_of_a_zero_is_not_lost(fn: Any, rates: tuple[float, ...]) -> None:
    compiled = compile_fn(fn)
    for rate in rates:
        assert str(compiled(torch.ones(2), rate)) == str(fn(torch.ones(2), rate))


TRUTHS = {
    "and, or, xor": lambda v, k: (v & 1, v | 2, v ^ 3, v & k, k | v, 1 & v, operator.inv(+v)),
    "of truth values": lambda v, k: (v & True, False | v, v ^ (k < 7), not v),
    "with floats": lambda v, k: (v * 0.5, 0.5 + v, v / 2, v // 2.0, v**0.5),
    "with ints": lambda v, k: (v + 1, k * v, -v, v << 2, k >> v, v**2, 2**v, divmod(v, 2), sum([v, v])),
    "in containers": lambda v, k: ((v, k) == (1, k), [v] != [0], [(v,)] == [(1,)], (v,) in [(1,)]),
    "looked for": lambda v, k: ([v, v].count(1), (v, 0).index(0), [v, 1].index(1), v in [1], (v,) < (1,)),
    "as numbers": lambda v, k: (int(v), float(v), [4, 5][v], "a" * v, f"{v:d}", v == 1, max(v, 0.5)),
}


@pytest.mark.parametrize("use", TRUTHS.values(), ids=TRUTHS)
@pytest.mark.parametrize("ask", [lambda k: k > 4, lambda k: not k % 2, lambda k: (k > 4) & (k < 8), lambda k: k > 8.8])
def test_the_answer_of_a_comparison_is_an_integer(ask: Any, use: Any) -> None:
    def f(x: torch.Tensor, k: int) -> Any:
        return x * k, use(ask(k), k)

    compiled = compile_fn(f)
    for k in (4, 5, 7, 2, 8):
        assert repr(compiled(torch.ones(1), k)) == repr(f(torch.ones(1), k))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_comparison_of_a_size_is_a_flag_of_an_operator(backend: str) -> None:
    def f(x: torch.Tensor) -> Any:
        causal = x.shape[-2] > 1
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)
        return y, torch.cumsum(x, -1).amax(-1, x.shape[-2] < 5)

    compiled = compile_fn(f, backend=backend)
    with observe() as seen:
        for size in (3, 4, 6, 7, 1):
            x = t(2, size, 8)
            torch.testing.assert_close(compiled(x), f(x))
    assert not seen.breaks
