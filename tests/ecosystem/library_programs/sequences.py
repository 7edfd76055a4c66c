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


def _generated(compiler: Compiler, model: Any) -> Outcome:
    """Two greedy searches from one prompt."""
    compiled = compiler(model.eval())
    prompt = torch.randint(5, 100, (2, 7))

    def step() -> Any:
        return compiled.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)

    return Outcome((step(), step()), step)


TOKENS = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@program("transformers", recompiles=2)
def state_space_generation(compiler: Compiler) -> Outcome:
    """Mamba 2, whose cache has one size."""
    config = transformers.Mamba2Config(
        hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, n_groups=1, state_size=16, chunk_size=8, **TOKENS
    )
    return _generated(compiler, transformers.Mamba2ForCausalLM(config))


@program("transformers", recompiles=2)
def hybrid_generation(compiler: Compiler) -> Outcome:
    """Falcon H1: attention beside state spaces, with both caches."""
    config = transformers.FalconH1Config(
        num_key_value_heads=2, mamba_n_heads=8, mamba_d_head=8, mamba_d_ssm=64, mamba_d_state=16, mamba_chunk_size=8,
        max_position_embeddings=128, **TINY, **TOKENS,
    )  # fmt: skip
    return _generated(compiler, transformers.FalconH1ForCausalLM(config))


@program("transformers")
def experts_training(compiler: Compiler) -> Outcome:
    """gpt-oss: experts, attention sinks and windows."""
    config = transformers.GptOssConfig(
        num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
        max_position_embeddings=128, **TINY, **TOKENS,
    )  # fmt: skip
    batches = [{"input_ids": ids, "labels": ids} for ids in torch.randint(5, 100, (3, 2, 12))]
    return _trained(compiler, transformers.GptOssForCausalLM(config), batches, lambda compiled: None)


@program("transformers", recompiles=1)
def detection(compiler: Compiler) -> Outcome:
    """RT-DETR of one and of two images."""
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, out_features=["stage2", "stage3", "stage4"]
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[8, 16, 16], encoder_layers=1,
        encoder_ffn_dim=32, encoder_attention_heads=2, d_model=16, num_queries=10, decoder_in_channels=[16] * 3,
        decoder_ffn_dim=32, decoder_layers=2, decoder_attention_heads=2, num_denoising=0, num_labels=4,
    )  # fmt: skip
    compiled = compiler(transformers.RTDetrForObjectDetection(config).eval())
    images = [torch.randn(n, 3, 64, 64) for n in (1, 2)]

    def step() -> Any:
        with torch.no_grad():
            return [(out.logits, out.pred_boxes) for out in map(compiled, images)]

    return Outcome((step(), step()), step)
