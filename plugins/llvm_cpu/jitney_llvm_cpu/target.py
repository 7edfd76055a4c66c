"""The CPU that code is made for: its name, its features, and how wide its vectors are.

LLVM splits vectors that are wider than the machine's registers, down to scalars where there are none, so a width is a
choice about speed and never about what can run. An instruction that the CPU lacks is another matter: what the user
asks for is checked against the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.binding as llvm

from jitney.errors import InvalidOption

# Vector bytes, the name people know it by, and the x86 features that must all be there; widest first.
_X86_LEVELS = (
    (64, "AVX-512", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    (32, "AVX2", ("avx2", "fma", "f16c")),
    (16, "SSE2", ()),
)
# They lower their clock for 512-bit arithmetic, for everything that runs on the core.
_SLOW_AT_512 = ("skylake-avx512", "cascadelake", "cooperlake", "cannonlake")
_WIDTHS = (16, 32, 64)


@dataclass(frozen=True)
class Target:
    """What LLVM is told about the machine, and the vector width that the emitter uses.

    Args:
        triple: LLVM's name of architecture, vendor and system, such as ``x86_64-unknown-linux-gnu``.
        cpu: LLVM's name of the processor, such as ``znver3``.
        features: ``+avx2,-avx512f,...``; empty where LLVM does not know them.
        vector_bytes: 16, 32 or 64.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    @classmethod
    def host(cls, vector_bytes: int = 0) -> Target:
        """This machine; ``vector_bytes`` of 0 is the width that is fastest here.

        Raises:
            InvalidOption: a width that does not exist, or that this machine does not have.
        """
        features = _host_features()
        target = cls(
            triple=llvm.get_process_triple(),
            cpu=llvm.get_host_cpu_name(),
            features=",".join(f"{'+' if has else '-'}{name}" for name, has in sorted(features.items())),
            vector_bytes=16,
        )
        return target.with_vector_bytes(vector_bytes)

    def with_vector_bytes(self, vector_bytes: int) -> Target:
        """The same machine with another vector width; 0 is its best one. Raises ``InvalidOption`` as ``host`` does."""
        widest, name = self._widest()
        if vector_bytes == 0:
            vector_bytes = 32 if widest == 64 and self.cpu in _SLOW_AT_512 else widest
        if vector_bytes not in _WIDTHS:
            raise InvalidOption(
                f"vector_bytes is 0 (the host's best), 16, 32 or 64, got {vector_bytes}", hint="vector_bytes=0"
            )
        if vector_bytes > widest:
            raise InvalidOption(
                f"vector_bytes={vector_bytes} is more than this CPU ({self.cpu}) has: {widest} bytes, {name}",
                hint=f"vector_bytes={widest}, or 0 for the host's best",
            )
        return Target(self.triple, self.cpu, self.features, vector_bytes)

    def lanes(self, element_bytes: int) -> int:
        """How many elements of this many bytes fill one vector."""
        return max(1, self.vector_bytes // element_bytes)

    def has(self, feature: str) -> bool:
        """Is LLVM's feature of this name there?"""
        return f"+{feature}" in self.features.split(",")

    def gathers(self, bits: int) -> bool:
        """Is one instruction that gathers elements of so many bits faster than a load for each?

        AMD's is not, nor is that of AVX2.
        """
        return bits in (32, 64) and self.has("avx512vl") and not self.cpu.startswith("znver")

    @property
    def is_x86(self) -> bool:
        """Is it an x86-64?"""
        return self.triple.startswith(("x86_64", "amd64"))

    @property
    def has_fma(self) -> bool:
        """Does a fused multiply-add cost one instruction? If not, ``llvm.fma`` calls a slow function."""
        return self.has("fma") if self.is_x86 else self.triple.startswith(("aarch64", "arm64", "powerpc64le", "s390x"))

    def _widest(self) -> tuple[int, str]:
        if not self.is_x86:
            neon = self.triple.startswith(("aarch64", "arm64"))
            return 16, "NEON" if neon else "the widest that LLVM splits well"
        return next((width, name) for width, name, needed in _X86_LEVELS if all(map(self.has, needed)))


def _host_features() -> dict[str, bool]:
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot ask this system: the CPU's name has to do
        return {}
