"""Random numbers of a counter: the published ones, and good ones."""

from __future__ import annotations

import pytest
import torch

from jitney_lowering import philox


def test_the_first_words_are_those_of_the_authors() -> None:
    """The known answer for a counter and a key of zeros, in Random123's ``kat_vectors``."""
    zero = torch.zeros((), dtype=torch.int64)
    assert [int(w) for w in philox.words(zero, zero)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_words_are_those_of_whole_numbers() -> None:
    """Python's integers have no sign bit that could be in the way."""

    def exact(seed: int, counter: int) -> tuple[int, ...]:
        k, c = (
            [seed & philox.WORD, seed >> 32 & philox.WORD],
            [counter & philox.WORD, counter >> 32 & philox.WORD, 0, 0],
        )
        for _ in range(philox.ROUNDS):
            first, second = c[0] * philox.MULTIPLIERS[0], c[2] * philox.MULTIPLIERS[1]
            c = [
                second >> 32 ^ c[1] ^ k[0], second & philox.WORD, first >> 32 ^ c[3] ^ k[1], first & philox.WORD,
            ]  # fmt: skip
            k = [(a + b) & philox.WORD for a, b in zip(k, philox.STEPS, strict=True)]
        return tuple(c)

    generator = torch.Generator().manual_seed(0)
    for seed, counter in torch.randint(-(2**63), 2**63 - 1, (200, 2), generator=generator).tolist():
        found = philox.words(torch.tensor(seed), torch.tensor(counter))
        assert tuple(map(int, found)) == exact(seed & (2**64 - 1), counter & (2**64 - 1))


@pytest.mark.parametrize("which", ["counters", "seeds"])
def test_numbers_are_even_and_independent(which: str) -> None:
    count = 1 << 20
    line, one = torch.arange(count), torch.tensor(7)
    drawn = philox.uniform(one, line) if which == "counters" else philox.uniform(line, one)
    assert drawn.dtype is torch.float32 and 0 <= drawn.min() and drawn.max() < 1
    cells = torch.histc(drawn, 1024, 0, 1)
    expected = count / 1024
    square = ((cells - expected) ** 2 / expected).sum().item()
    assert 1023 - 6 * 45.2 < square < 1023 + 6 * 45.2  # chi squared, six deviations
    centred = drawn.double() - 0.5
    for lag in (1, 2, 3, 4, 32, 1000):
        assert abs((centred[lag:] * centred[:-lag]).mean().item()) < 6 / 12 / (count - lag) ** 0.5


def test_the_operator_can_be_called_alone() -> None:
    seed, counter = torch.tensor([3]), torch.arange(10).view(2, 5)
    assert torch.equal(torch.ops.jitney.uniform(seed, counter), philox.uniform(seed, counter))
