"""transformers: fine-tuning with Trainer, generation with caches."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import transformers
from harness import Compiler, Outcome, program, size, state_of

WIDTH = size(32, 256)
TINY = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 2 * WIDTH}
LONG = size(1, 8)  # times as many tokens


def bert() -> Any:
    config = transformers.BertConfig(vocab_size=100, max_position_embeddings=256, num_labels=3, **TINY)
    return transformers.BertForSequenceClassification(config)


def texts(count: int = 24) -> list[dict[str, Any]]:
    """Of varying lengths."""
    made = []
    for at in range(count):
        length = LONG * (5 + at % 7)
        made.append({"input_ids": torch.randint(5, 100, (length,)), "labels": at % 3})
    return made


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence([r["input_ids"] for r in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([r["labels"] for r in rows])}


def _train(model: Any, original: Any, **arguments: Any) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=4, report_to=[], logging_steps=1, save_strategy="no",
            disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False, **arguments,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, settings, train_dataset=texts(), eval_dataset=texts(8), data_collator=padded
        )
        trainer.train()
        evaluated = trainer.evaluate()["eval_loss"]
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    batch = padded(texts(4))

    def step() -> None:
        trainer.model_wrapped.train()
        trainer.model_wrapped(**batch).loss.backward()

    return Outcome((losses, evaluated, state_of(original)), step)


@program("transformers", "accelerate", recompiles=4)
def trainer(compiler: Compiler) -> Outcome:
    """A model that is compiled, given to Trainer."""
    model = bert()
    return _train(compiler(model), model)


@program("transformers", "accelerate", recompiles=4)
def trainer_in_place(compiler: Compiler) -> Outcome:
    """The model compiled in place; accumulation and clipping; checkpointing of activations."""
    model = compiler.in_place(bert())
    return _train(model, model, gradient_accumulation_steps=2, max_grad_norm=0.5)


def gpt() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=100,
        max_position_embeddings=256,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        **TINY,
    )
    return transformers.LlamaForCausalLM(config).eval()


def _generate(compiler: Compiler, **arguments: Any) -> Outcome:
    model = gpt()
    compiled = compiler(model)
    prompt = torch.randint(5, 100, (2, 7))
    mask = torch.ones_like(prompt)

    def step() -> Any:
        torch.manual_seed(3)
        return compiled.generate(prompt, attention_mask=mask, max_new_tokens=12, **arguments)

    return Outcome((step(), step()), step)


@program("transformers", recompiles=3)
def generate_greedy(compiler: Compiler) -> Outcome:
    return _generate(compiler, do_sample=False)


@program("transformers", recompiles=3)
def generate_sampled(compiler: Compiler) -> Outcome:
    return _generate(compiler, do_sample=True, top_k=20, temperature=0.8)


@program("transformers", recompiles=3)
def generate_beams(compiler: Compiler) -> Outcome:
    return _generate(compiler, do_sample=False, num_beams=3)


@program("transformers", recompiles=3)
def generate_static_cache(compiler: Compiler) -> Outcome:
    arguments = {"cache_implementation": "static", "disable_compile": True}
    return _generate(compiler, do_sample=False, **arguments)


@program("transformers", recompiles=3)
def pipeline(compiler: Compiler) -> Outcome:
    """Logits of texts of three lengths, in the library's own classifier."""
    model = bert().eval()
    compiled = compiler(model)
    inputs = [torch.randint(5, 100, (2, LONG * n)) for n in (6, 9, 11)]

    def step() -> Any:
        with torch.inference_mode():
            return [compiled(ids).logits for ids in inputs]

    return Outcome((step(), step()), step)
