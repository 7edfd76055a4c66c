"""What suits the kernels of this backend."""

from __future__ import annotations

from dataclasses import replace

from jitney_lowering import CPU

POLICY = replace(CPU, scatters_in_order=True)
