"""The backends that run on this machine's CPU, and each two of them."""

from __future__ import annotations

import itertools

from jitney.backends import registry

ORDER = ("eager", "aot_eager", "llvm_cpu", "triton_gpu")  # of trust: the earlier is what the later is held to


def installed() -> list[str]:
    """Their names; triton_gpu is among them where its kernels are interpreted."""
    names = {row.name for row in registry.listings() if row.status != "broken"}
    return [name for name in ORDER if name in names and registry.get(name).device_types in ((), ("cpu",))]


def pairs() -> list[tuple[str, str]]:
    """Each two of them, the one that is trusted more first."""
    return list(itertools.combinations(installed(), 2))
