"""Programs of views, writes and reads, for comparing eager with compiled: random straight-line ones, and one known."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

# name -> text; ``{a}`` is a tensor, ``{b}`` another one, ``{i}`` a small number. Shapes are whatever they are: a line
# that does not fit is tried and skipped where the program is made.
VIEWS = (
    "{a}[0]", "{a}[-1]", "{a}[1:]", "{a}[..., :2]", "{a}[..., {i}:]", "{a}[::2]", "{a}.t()", "{a}.transpose(0, -1)",
    "{a}.view(-1)", "{a}.reshape(-1, 2)", "{a}.unsqueeze({i})", "{a}.squeeze(0)", "{a}.detach()", "{a}.view_as({a})",
    "{a}.diagonal()", "{a}.unfold(0, 2, 1)", "{a}.split(2)[0]", "{a}.unbind()[-1]", "{a}.chunk(2, -1)[-1]",
    "{a}.expand(2, *{a}.shape)", "{a}.as_strided((2, 2), (1, 2))", "{a}.narrow(0, 1, 1)", "{a}.flatten()",
    "{a}.contiguous()", "{a}.data", "torch.movedim({a}, 0, -1)", "{a}.select(-1, 0)", "{a}[None]", "{a}.flip(0)",
    "{a}.permute(*reversed(range({a}.dim())))", "{a}.view(2, -1)", "{a}.swapaxes(0, -1)", "{a}.real", "{a}.mT",
)  # fmt: skip
READS = (
    "{a} * 2", "{a} + {b}", "{a} * {b}", "{a}.sin()", "{a}.clone()", "{a}.exp().clamp(max=3)", "{a}.sum(0)",
    "{a} * {a}", "torch.where({a} > 0, {a}, {b})", "torch.cat([{a}, {b}])", "{a}.sigmoid()", "{a}.relu()",
    "torch.stack([{a}, {b}])", "{a}.mean()", "({a} > 0)", "{a}.tanh()", "{a}.max()", "{a}.cumsum(0)",
    "{a}.sum() * {b}", "torch.zeros_like({a})", "torch.ones(3)", "{a}.to(torch.float64)", "{a} @ {b}",
    "{a}.masked_fill({b} > 0, 2.0)",
)  # fmt: skip
WRITES = (
    "{a}.add_(1)", "{a}.mul_(2)", "{a}.mul_({b})", "{a}.copy_({b})", "{a}.zero_()", "{a}.sin_()", "{a}[0] = {b}",
    "{a}[1:] = 3", "{a}[..., 0] += {b}", "{a}.add_({b})", "{a}[{a} > 1] = 0", "{a}.masked_fill_({a} > 0, 1.5)",
    "{a}.t_()", "{a}.unsqueeze_(0)", "{a}.squeeze_()", "{a}.transpose_(0, -1)", "{a}.relu_()", "{a}.fill_(0.5)",
    "{a}.index_add_(0, torch.tensor([0]), {b}[:1])", "{a}.detach().mul_(2)", "{a}.data.add_(1)", "{a}.detach_()",
    "{a}.sigmoid_()", "{a}.swapdims_(0, -1)", "{a}.clamp_(-1, 1)", "{a}.div_({b}.abs() + 1)", "{a}.normal_()",
)  # fmt: skip


@st.composite
def view_programs(draw: Any, longest: int = 9) -> list[str]:
    """The lines of a function of ``x``, ``y`` and ``z``; the last one returns."""
    names = ["x", "y", "z"]
    lines: list[str] = []
    indent = ""
    for _ in range(draw(st.integers(1, longest))):
        if not indent and draw(st.integers(0, 9)) == 0:
            lines.append("with torch.no_grad():")
            indent = "    "
        kind = draw(st.sampled_from("VVVRRWWW"))
        table = {"V": VIEWS, "R": READS, "W": WRITES}[kind]
        recent = st.sampled_from(names + names[-3:])
        text = draw(st.sampled_from(table)).format(a=draw(recent), b=draw(recent), i=draw(st.integers(0, 1)))
        if kind != "W":
            name = f"v{len(names)}"
            names.append(name)
            text = f"{name} = {text}"
        lines.append(indent + text)
        if indent and draw(st.booleans()):
            indent = ""
    returned = draw(st.lists(st.sampled_from(names + names[3:]), min_size=1, max_size=4))
    lines.append(f"return ({', '.join(returned)},)")
    return lines


def masked_write(x: torch.Tensor) -> Any:
    """``masked_fill_``'s functional form returns other strides, on which ``reshape`` depends."""
    y = x.t().clone()
    v = y.squeeze(0)
    v.masked_fill_(v > 0, 1.5)
    z = y.reshape(-1)
    z.mul_(3)
    return v, z
