"""Generation compiles at the first tokens of the first call, and never after."""

from __future__ import annotations

import pytest
import torch
from generation import CACHES, WAYS, captures_by_token, generate, model

import jitney

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("way", WAYS)
def test_tokens_after_the_second_compile_nothing(way: str, cache: str) -> None:
    plain, compiled = model(), jitney.compile(model())
    found, captures = captures_by_token(compiled, way, cache, 10)
    assert torch.equal(found, generate(plain, way, cache, 10))
    assert sum(captures[:2]) == 2 and not any(captures[2:])  # the prompt; one token after any number of tokens
    for prompt in (9, 12):
        found, captures = captures_by_token(compiled, way, cache, 10, prompt)
        assert torch.equal(found, generate(plain, way, cache, 10, prompt=prompt))
        assert not any(captures[2:]), captures  # a static cache of another size is a form of its own
    assert captures == [0] * 10
