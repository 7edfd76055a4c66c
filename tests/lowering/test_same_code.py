"""The code of a program is the same in every process: machine code is kept on the disk by its text."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import sys
    junk = [object() for _ in range(int(sys.argv[2]))]  # what is made afterwards has other addresses
    import torch
    import jitney
    from jitney import events

    codes = []

    def keep(event):
        if isinstance(event, events.Artefact) and event.name == "output_code":
            codes.append(event.text)

    def places(image, rows, columns):
        y, x = rows.long().clamp(0, 30), columns.long().clamp(0, 20)
        return image[:, y, x] * 2 + image[:, y + 1, x] - image[:, y, x + 1]

    def steps(x):
        total, scale, turn = x.sum(0), x.mean(0), x.t().contiguous()
        for _ in range(5):
            parts = turn @ x
            total, scale = total + parts.sum(0), scale * parts.mean(1)
            turn = turn + total[:, None] - scale[:, None]
        return total, scale

    def counts(x, places):
        found = torch.zeros(3, 7, 5).index_put_((places % 3, places % 7), x[:, :5], accumulate=True)
        return found.cumsum(1), found.amax(0), found.argmin(2)

    def loss(x, weight):
        return torch.nn.functional.cross_entropy(torch.tanh(x @ weight) @ weight.t(), x.argmax(1))

    torch.manual_seed(0)
    numbers, weight = torch.randn(20, 12), torch.randn(12, 6, requires_grad=True)
    with events.listen(keep), events.details():
        for fn, args in (
            (places, (torch.randn(3, 32, 24), torch.rand(9) * 40, torch.rand(9) * 30)),
            (steps, (numbers,)),
            (counts, (numbers, torch.arange(20))),
            (loss, (numbers, weight)),
        ):
            found = jitney.compile(fn, backend=sys.argv[1])(*args)
            if fn is loss:
                found.backward()
    print(len(codes))
    print("\\n".join(codes))
"""


def code(script: Path, backend: str, seed: int) -> str:
    """What a new process makes, whose sets of texts and of objects have an order of their own."""
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "JITNEY_CACHE": "0", "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(script), backend, str(seed * 30011)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_the_code_is_the_same_in_every_process(backend: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    codes = [code(script, backend, seed) for seed in (1, 2)]
    assert int(codes[0].split("\n", 1)[0]) >= 5  # the last program has a backward
    assert codes[0] == codes[1]
