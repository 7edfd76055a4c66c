"""transformers: models of two sequences, of sounds, and with windows."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from harness import Compiler, Outcome, program, size, state_of

WIDTH = size(32, 256)
HEADS = 4


def _trained(compiler: Compiler, model: Any, batches: list[dict[str, torch.Tensor]], generate: Any) -> Outcome:
    """A step on each batch, then what it generates."""
    compiled = compiler(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    model.train()
    for batch in batches:
        loss = compiled(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    state = state_of(model)
    model.eval()
    with torch.no_grad():
        made = generate(compiled)
    model.train()
    return Outcome((losses, state, made), lambda: compiled(**batches[-1]).loss.backward())


@program("transformers", recompiles=8)
def translation(compiler: Compiler) -> Outcome:
    """T5, fine-tuned by hand on texts of varying lengths; then greedy search and beams."""
    config = transformers.T5Config(
        vocab_size=100, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=2 * WIDTH, num_layers=2, num_heads=HEADS,
        decoder_start_token_id=0, dropout_rate=0.1,
    )  # fmt: skip
    batches = []
    for source, target in ((7, 5), (9, 6), (12, 4), (9, 9)):
        ids, labels = torch.randint(2, 100, (3, source)), torch.randint(2, 100, (3, target))
        labels[1, target - 2 :] = -100
        batches.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})

    def generate(compiled: Any) -> Any:
        prompt = {name: batches[0][name] for name in ("input_ids", "attention_mask")}
        return [compiled.generate(**prompt, num_beams=n, max_new_tokens=8, do_sample=False) for n in (1, 3)]

    return _trained(compiler, transformers.T5ForConditionalGeneration(config), batches, generate)


@program("transformers", recompiles=6)
def speech(compiler: Compiler) -> Outcome:
    """Whisper, fine-tuned by hand."""
    sides = ("encoder", "decoder")
    config = transformers.WhisperConfig(
        vocab_size=100, d_model=WIDTH, num_mel_bins=20, max_source_positions=30, max_target_positions=40,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None,
        **{f"{side}_layers": 2 for side in sides}, **{f"{side}_attention_heads": HEADS for side in sides},
        **{f"{side}_ffn_dim": 2 * WIDTH for side in sides},
    )  # fmt: skip
    batches = [
        {"input_features": torch.randn(2, 20, 60), "labels": torch.randint(4, 100, (2, length))} for length in (5, 7, 9)
    ]

    def logits(compiled: Any) -> Any:
        return compiled(**batches[0]).logits

    return _trained(compiler, transformers.WhisperForConditionalGeneration(config), batches, logits)


@program("transformers", recompiles=5)
def generate_within_windows(compiler: Compiler) -> Outcome:
    """Gemma 3, whose layers look back over a window, and whose caches hold no more than that."""
    config = transformers.Gemma3TextConfig(
        vocab_size=100, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=2,
        intermediate_size=2 * WIDTH, head_dim=WIDTH // HEADS, max_position_embeddings=256, sliding_window=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    compiled = compiler(transformers.Gemma3ForCausalLM(config).eval())
    prompt = torch.randint(5, 100, (2, 6))

    def step() -> Any:
        return compiled.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False)

    return Outcome((step(), step()), step)
