"""What suits GPUs: the numbers by which graphs are lowered and scheduled here."""

from __future__ import annotations

from dataclasses import replace

from jitney_lowering import GPU

POLICY = replace(GPU, asserts=True, scatters=True)
