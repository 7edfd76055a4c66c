"""A first compile leaves Python's random numbers alone, whatever is imported for it."""

from __future__ import annotations

import os

from differential.backends import installed
from fork_server import run_python

CODE = """
import random, sys
import torch, jitney

random.seed(1)
before = random.getstate()
for name in sys.argv[1:]:
    jitney.compile(lambda x: (x * 2 + 1).sum(-1), backend=name)(torch.ones(3, requires_grad=True)).backward()
    if random.getstate() != before:
        print(name)
"""


def test_nothing_draws_while_a_program_is_compiled() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "JITNEY_CACHE": "0"}
    done = run_python("-c", CODE, *installed(), check=True, env=environment)
    assert done.stdout == ""
