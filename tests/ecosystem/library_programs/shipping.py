"""Checkpoints, exporters, tracers, workers, threads, sentence-transformers."""

from __future__ import annotations

import copy
import io
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from harness import Compiler, Outcome, program, state_of
from torch.utils.data import DataLoader, Dataset


def net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)
    ).eval()


@program("safetensors")
def safetensors_checkpoint(compiler: Compiler) -> Outcome:
    from safetensors.torch import load_file, load_model, save_file, save_model

    model, other = net(), net()
    compiled = compiler(model)
    x = torch.randn(2, 6)
    first = compiled(x)
    with tempfile.TemporaryDirectory() as folder:
        save_model(compiled, f"{folder}/a.safetensors")
        save_file(compiled.state_dict(), f"{folder}/b.safetensors")
        names = sorted(load_file(f"{folder}/a.safetensors"))
        assert names == sorted(load_file(f"{folder}/b.safetensors"))
        target = compiler(other)
        load_model(target, f"{folder}/a.safetensors")
    return Outcome((first, target(x), names, state_of(other)), lambda: compiled(x))


@program("torch", uncompiled=True)
def torch_export(compiler: Compiler) -> Outcome:
    compiled = compiler(net())
    x = torch.randn(2, 6)
    before = compiled(x)
    exported = torch.export.export(compiled, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    return Outcome((before, exported.module()(torch.ones(5, 6))))


@program("onnx", "onnxscript", "onnxruntime", uncompiled=True)
def onnx_export(compiler: Compiler) -> Outcome:
    import onnxruntime

    compiled = compiler(net())
    x = torch.randn(2, 6)
    compiled(x)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "net.onnx")
        torch.onnx.export(compiled, (x,), path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path)
        out = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    return Outcome(torch.as_tensor(out))


@program("torch", uncompiled=True)
def torch_jit_trace(compiler: Compiler) -> Outcome:
    compiled = compiler(net())
    x = torch.randn(2, 6)
    traced = torch.jit.trace(compiled, x)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    return Outcome((traced(torch.ones(3, 6)), torch.jit.load(file)(x)))


class Rows(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return torch.full((6,), at / 16), at % 3


class Augmented(Rows):
    """What workers run: a transformation that is compiled."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        x, y = super().__getitem__(at)
        return self.transform(x), y


def _augment(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin() + 1


@program("torch")
def dataloader_workers(compiler: Compiler) -> Outcome:
    """Workers fork after the model has run compiled; a transformation is compiled in them."""
    model = net()
    compiled = compiler(model)
    compiled(torch.randn(4, 6)).sum().backward()
    rows = Augmented(compiler(_augment))
    results = []
    for x, y in DataLoader(rows, batch_size=4, num_workers=2):
        results.append(torch.nn.functional.cross_entropy(compiled(x), y))
    return Outcome(results, lambda: compiled(x))


@program("torch", recompiles=4)
def serving_threads(compiler: Compiler) -> Outcome:
    """Eight threads ask for texts of any length at once."""
    model = net()
    compiled = compiler(model)
    requests = [torch.linspace(0, 1, 6 * n).view(n, 6) for n in range(1, 25)]
    answers: list[Any] = [None] * len(requests)

    def serve(start: int) -> None:
        with torch.inference_mode():
            for at in range(start, len(requests), 8):
                answers[at] = compiled(requests[at]).clone()

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Outcome(answers, lambda: compiled(requests[3]))


@program("torch")
def torch_checkpoints(compiler: Compiler) -> Outcome:
    """state_dict, torch.save of the whole, deepcopy, EMA, load into the plain model."""
    model = net()
    compiled = compiler(model)
    x = torch.randn(2, 6)
    out = compiled(x)
    file = io.BytesIO()
    torch.save({"model": compiled.state_dict()}, file)
    file.seek(0)
    plain = net()
    plain.load_state_dict(torch.load(file)["model"])
    twin = copy.deepcopy(compiled)
    average = torch.optim.swa_utils.AveragedModel(compiled)
    average.update_parameters(compiled)
    return Outcome((out, plain(x), twin(x), average(x), list(compiled.state_dict())), lambda: compiled(x))


def _sentences() -> Any:
    """A model of random weights, with a vocabulary of words."""
    import tokenizers
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "fox", "and", "the", "blue", "whale", "sing"]
    with tempfile.TemporaryDirectory() as folder:
        plain = tokenizers.Tokenizer(
            tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="[UNK]")
        )
        plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")
        tokenizer.save_pretrained(folder)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        transformers.BertModel(transformers.BertConfig(vocab_size=12, **sizes)).save_pretrained(folder)
        encoder = modules.Transformer(folder)
        return SentenceTransformer(modules=[encoder, modules.Pooling(16), modules.Normalize()], device="cpu")


def _encoded(model: Any) -> Outcome:
    texts = ["a red fox", "the blue whale and the red fox sing", "sing", "the whale"]

    def step() -> torch.Tensor:
        return torch.as_tensor(model.encode(texts, batch_size=2, show_progress_bar=False))

    return Outcome((step(), step()), step)


@program("sentence-transformers", "transformers", recompiles=4)
def sentence_embeddings(compiler: Compiler) -> Outcome:
    """The network in it, whose ``forward`` is called by name: so it is not compiled in place."""
    model = _sentences()
    model[0].model = compiler(model[0].model)
    return _encoded(model)


@program("sentence-transformers", "transformers", recompiles=4)
def sentence_embeddings_whole(compiler: Compiler) -> Outcome:
    """The whole, whose ``encode`` calls it."""
    return _encoded(compiler(_sentences()))
