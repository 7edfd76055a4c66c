"""Text generation: where its graphs are compiled, token by token, and tokens per second beside eager and torch.compile.

.venv-ecosystem/bin/python tests/ecosystem/generation.py     # the table of docs/integrations.md
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness  # noqa: F401 # completes torchvision, which transformers imports
import torch
from transformers import GPT2Config, GPT2LMHeadModel, StoppingCriteria, StoppingCriteriaList

import jitney
from jitney import events

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 20, "temperature": 0.8},
    "beams": {"do_sample": False, "num_beams": 3},
}
CACHES: dict[str, dict[str, Any]] = {
    "DynamicCache": {},
    "StaticCache": {"cache_implementation": "static", "disable_compile": True},
}


def model(width: int = 32, layers: int = 2) -> Any:
    """A GPT-2 of random weights."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 1000, "n_positions": 256, "n_embd": width, "n_layer": layers, "n_head": 4}
    made = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=None))
    made.generation_config.pad_token_id = 1
    return made.eval()


class Tokens(StoppingCriteria):
    """Notes how many frames have been captured by the time of each token."""

    def __init__(self, captures: Callable[[], int]) -> None:
        self.captures = captures
        self.found: list[int] = []

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        self.found.append(self.captures())
        return torch.zeros(len(input_ids), dtype=torch.bool)


def generate(target: Any, way: str, cache: str, tokens: int, criteria: Any = None, prompt: int = 7) -> torch.Tensor:
    """What a model writes."""
    torch.manual_seed(3)
    given = torch.randint(5, 1000, (2, prompt), generator=torch.Generator().manual_seed(prompt))
    stopping = None if criteria is None else StoppingCriteriaList([criteria])
    found: torch.Tensor = target.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=tokens, stopping_criteria=stopping,
        **WAYS[way], **CACHES[cache],
    )  # fmt: skip
    return found


def captures_by_token(
    target: Any, way: str, cache: str, tokens: int, prompt: int = 7
) -> tuple[torch.Tensor, list[int]]:
    """What it writes, and how many frames were captured for each token."""
    count = 0

    def collect(event: events.Event) -> None:
        nonlocal count
        count += isinstance(event, events.FrameCaptured)

    criteria = Tokens(lambda: count)
    with events.listen(collect):
        found = generate(target, way, cache, tokens, criteria, prompt)
    return found, [now - before for before, now in zip([0, *criteria.found], criteria.found, strict=False)]


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    tokens, rounds = 48, 4
    print(
        "| generate | cache | captures by token, first call | second call | eager, tokens/s | jitney | torch.compile |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for cache in CACHES:
        for way in WAYS:
            plain, ours, torchs = model(256, 4), model(256, 4), model(256, 4)
            compiled = jitney.compile(ours)
            torch._dynamo.reset()
            torchs.forward = torch.compile(torchs.forward, dynamic=None)
            first = captures_by_token(compiled, way, cache, tokens)[1]
            second = captures_by_token(compiled, way, cache, tokens, 9)[1]
            targets = {"eager": plain, "jitney": compiled, "torch.compile": torchs}
            best = dict.fromkeys(targets, float("inf"))
            for number in range(rounds + 1):
                for name, target in targets.items():
                    begin = time.process_time()
                    generate(target, way, cache, tokens)
                    if number:
                        best[name] = min(best[name], time.process_time() - begin)
            speeds = " | ".join(f"{2 * tokens / seconds:,.0f}" for seconds in best.values())
            early = ", ".join(map(str, first[:4]))
            print(f"| {way} | {cache} | {early}, then {sum(first[4:])} | {sum(second)} | {speeds} |", flush=True)


if __name__ == "__main__":
    main()
