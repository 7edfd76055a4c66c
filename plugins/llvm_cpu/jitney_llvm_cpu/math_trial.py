"""Is a vector function that a library exports what its name says? Tried on some hundred values against torch.

The verdict is kept in the engine's cache, under the identity of torch's library, so a machine tries each function once.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch

from jitney.backends import reentrant_lock
from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.engine import Engine

_DTYPES = {"float": torch.float32, "double": torch.float64}
# From torch's own result: its functions and Sleef's are each at most some 1.5 ULP from the exact one.
_ULPS = 4.0
_VALUES = 448  # a multiple of every vector width

_lock = reentrant_lock()
# Each function tried in this process: what was wrong with it, or an empty string.
_verdicts: dict[Candidate, str] = {}


@dataclass(frozen=True)
class Candidate:
    """A function of a library.

    Args:
        name: torch's name of what it should compute.
        element: ``float`` or ``double``.
        width: elements of its vectors.
        arguments: how many vectors it takes.
        symbol: its name in the text.
        text: LLVM's declaration of it, or a definition that calls it.
    """

    name: str
    element: str
    width: int
    arguments: int
    symbol: str
    text: str


def passes(candidate: Candidate, engine: Engine) -> bool:
    """May it be used? The first question runs the trial, or reads its verdict from the engine's cache."""
    with _lock:
        if candidate not in _verdicts:
            _verdicts[candidate] = _verdict(candidate, engine)
        return not _verdicts[candidate]


def problems() -> dict[str, str]:
    """The functions that failed their trial in this process, each with what was wrong."""
    return {candidate.symbol: problem for candidate, problem in _verdicts.items() if problem}


def _verdict(candidate: Candidate, engine: Engine) -> str:
    if engine.cache is None:
        return trial(candidate, engine)
    key = engine.key(_text(candidate), f"verdict {symbols.torch_identity()}")
    known = engine.cache.load(key)
    if known is not None:
        return known.decode()
    verdict = trial(candidate, engine)
    engine.cache.store(key, verdict.encode())
    return verdict


def trial(candidate: Candidate, engine: Engine) -> str:
    """Run the function on its values; what is wrong with it, or an empty string."""
    arguments = trial_values(candidate.name, candidate.element, candidate.arguments)
    result = torch.full_like(arguments[0], 12345.0)
    pointers = [ctypes.c_void_p] * (1 + candidate.arguments)
    function = engine.compile(_text(candidate)).function("trial", *pointers, ctypes.c_int64)
    function(result.data_ptr(), *(a.data_ptr() for a in arguments), _VALUES)
    expected = _expected(candidate.name, arguments)
    wrong = ~torch.isclose(result, expected, rtol=0.0, atol=0.0, equal_nan=True)
    wrong &= ~((result - expected).abs() <= _tolerance(candidate.name, expected))
    if not wrong.any():
        return ""
    at = int(wrong.nonzero()[0])
    given = ", ".join(repr(float(a[at])) for a in arguments)
    return f"{candidate.name}({given}) is {float(result[at])!r}, torch says {float(expected[at])!r}"


def _expected(name: str, arguments: list[torch.Tensor]) -> torch.Tensor:
    if name != "fmod":
        result: torch.Tensor = getattr(torch, name)(*arguments)
        return result
    # torch's own is nan for large quotients, where it is vectorised.
    dividends, divisors = (a.tolist() for a in arguments)
    pairs = zip(dividends, divisors, strict=True)
    exact = [math.fmod(a, b) if math.isfinite(a) and b != 0 else math.nan for a, b in pairs]
    return torch.tensor(exact, dtype=arguments[0].dtype)


def _tolerance(name: str, expected: torch.Tensor) -> torch.Tensor:
    limits = torch.finfo(expected.dtype)
    # Below the normal numbers either may flush to zero; lgamma crosses zero, where errors are absolute.
    smallest = _ULPS * limits.eps if name == "lgamma" else limits.tiny
    return (_ULPS * limits.eps * expected.abs()).clamp(min=smallest)


def trial_values(name: str, element: str, arguments: int) -> list[torch.Tensor]:
    """Tensors of the values on which a function of so many arguments is tried, the same in each process."""
    dtype = _DTYPES[element]
    limits = torch.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, limits.tiny, -limits.tiny, limits.max, 20.5]
    count = (_VALUES - len(special)) // 4
    small = torch.linspace(-1.0, 1.0, count, dtype=torch.float64)
    middle = torch.linspace(-20.0, 20.0, count, dtype=torch.float64)
    positive = torch.logspace(-30.0, 30.0, count, dtype=torch.float64)
    values = torch.cat([torch.tensor(special, dtype=torch.float64), small, middle, positive, -positive]).to(dtype)
    assert len(values) == _VALUES
    # The second argument meets each of the first's ranges with another one.
    return [values, values.roll(131)][:arguments]


def _text(candidate: Candidate) -> str:
    type_ = f"<{candidate.width} x {candidate.element}>"
    numbers = range(candidate.arguments)
    loads = "\n".join(
        f"  %p{k} = getelementptr {candidate.element}, ptr %from{k}, i64 %i\n  %a{k} = load {type_}, ptr %p{k}, align 4"
        for k in numbers
    )
    return f"""{candidate.text}
define void @trial(ptr %to, {", ".join(f"ptr %from{k}" for k in numbers)}, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
  %r = call {type_} @{candidate.symbol}({", ".join(f"{type_} %a{k}" for k in numbers)})
  %q = getelementptr {candidate.element}, ptr %to, i64 %i
  store {type_} %r, ptr %q, align 4
  %next = add i64 %i, {candidate.width}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
