"""Memory of a row that several of its nests have, one after the other.

A row that goes through many steps, such as those of a sorting network, keeps a few arrays at a time, not all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitney_lowering.ir import Accumulate, Kernel, Load, Scratch, Store, walk


def homes(kernel: Kernel, scratch: Sequence[Scratch]) -> dict[str, str]:
    """For each array the one whose memory it has, itself or an earlier one that nobody reads any more.

    Args:
        kernel: whose nests run in order, each for a whole row before the next.
        scratch: those of its arrays that are in memory; arrays of one dtype and extent may share.
    """
    lives = _lives(kernel)
    found: dict[str, str] = {}
    until: dict[str, int] = {}  # home -> the last nest that looks at what is there
    for s in sorted(scratch, key=lambda s: lives[s.name][0]):
        first, last = lives[s.name]
        like = (h for h in scratch if (h.dtype, h.extent) == (s.dtype, s.extent))
        home = next((h.name for h in like if until.get(h.name, first) < first), s.name)
        found[s.name], until[home] = home, last
    return found


def _lives(kernel: Kernel) -> Mapping[str, tuple[int, int]]:
    """The first and the last nest that each array has a part in."""
    lives: dict[str, tuple[int, int]] = {s.name: (0, 0) for s in kernel.scratch}
    seen: set[str] = set()
    for number, nest in enumerate(kernel.body):
        touched = {v.buffer for s in nest.statements for v in walk(s.value) if isinstance(v, Load)}
        touched |= {s.buffer for s in nest.statements if isinstance(s, (Store, Accumulate))}
        for name in touched & lives.keys():
            lives[name] = (lives[name][0] if name in seen else number, number)
            seen.add(name)
    return lives
