"""Lightning: what is compiled in a LightningModule."""

from __future__ import annotations

import tempfile
from typing import Any

import lightning
import torch
from harness import Compiler, Outcome, in_processes, program, size, state_of
from torch.utils.data import DataLoader, TensorDataset

import jitney

WIDTH, BATCH = size(32, 512), size(8, 256)


class Classifier(lightning.LightningModule):
    """An image classifier, as the tutorials have it."""

    def __init__(self, compile_part: Any = None) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(36, WIDTH, bias=False),
            torch.nn.BatchNorm1d(WIDTH),
            torch.nn.GELU(),
            torch.nn.Linear(WIDTH, 5),
        )
        self.compile_part = compile_part

    def configure_model(self) -> None:
        if self.compile_part is not None:
            self.net = self.compile_part(self.net)
            self.compile_part = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        logits = self(x)
        self.log("val_loss", torch.nn.functional.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(-1) == y).float().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def images() -> DataLoader:
    data = TensorDataset(torch.randn(4 * BATCH, 1, 6, 6), torch.arange(4 * BATCH) % 5)
    return DataLoader(data, batch_size=BATCH)


class Losses(lightning.Callback):
    """The loss of each step of this process."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.found.append(float(outputs["loss"]))


def _trainer(folder: str, epochs: int, **arguments: Any) -> lightning.Trainer:
    """On the CPU, which says nothing."""
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, **arguments,
    )  # fmt: skip


def _fit(module: Any, original: Any, **arguments: Any) -> Outcome:
    losses = Losses()
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(folder, 2, callbacks=[losses], log_every_n_steps=1, **arguments)
        data = images()
        trainer.fit(module, data, data)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    batch = next(iter(images()))

    def step() -> None:
        original.zero_grad()
        torch.nn.functional.cross_entropy(module(batch[0]), batch[1]).backward()

    return Outcome((losses.found, metrics, state_of(original)), step)


@program("lightning", recompiles=2)
def lightning_module(compiler: Compiler) -> Outcome:
    """The whole module, as Lightning's documentation says."""
    module = Classifier()
    return _fit(compiler(module), module)


@program("lightning", recompiles=2)
def lightning_in_place(compiler: Compiler) -> Outcome:
    module = Classifier()
    compiler.in_place(module)
    return _fit(module, module)


@program("lightning", recompiles=2)
def lightning_part(compiler: Compiler) -> Outcome:
    module = Classifier()
    module.net = compiler(module.net)
    return _fit(module, module, accumulate_grad_batches=2, gradient_clip_val=0.5)


@program("lightning", recompiles=2)
def lightning_configure_model(compiler: Compiler) -> Outcome:
    module = Classifier(compiler)
    return _fit(module, module)


@program("lightning", recompiles=2, breaks=3)  # self.log: Lightning keeps it from compilers
def lightning_training_step(compiler: Compiler) -> Outcome:
    module = Classifier()
    module.training_step = compiler(module.training_step)
    return _fit(module, module)


@program("lightning", recompiles=2, tolerance=2e-2)
def lightning_bf16(compiler: Compiler) -> Outcome:
    module = Classifier()
    module.net = compiler(module.net)
    return _fit(module, module, precision="bf16-mixed")


@program("lightning", recompiles=4, breaks=4, tolerance=2e-2)
def lightning_16_mixed(compiler: Compiler) -> Outcome:
    """Half precision, as a CPU has it, accumulated over two batches, in a training step that is compiled whole."""
    module = Classifier()
    module.training_step = compiler(module.training_step)
    return _fit(module, module, precision="16-mixed", accumulate_grad_batches=2)


@program("lightning", recompiles=2)
def lightning_resume(compiler: Compiler) -> Outcome:
    """A checkpoint of one run goes into another, compiled otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        first = Classifier()
        data = images()
        trainer = _trainer(folder, 1)
        trainer.fit(compiler(first), data)
        path = f"{folder}/one.ckpt"
        trainer.save_checkpoint(path)
        second = Classifier()
        compiler.in_place(second.net)
        trainer = _trainer(folder, 2)
        trainer.fit(second, data, ckpt_path=path)
        loaded = Classifier.load_from_checkpoint(path)
    return Outcome((state_of(first), state_of(second), state_of(loaded)))


@program("lightning", recompiles=10, breaks=10)
def lightning_ddp(compiler: Compiler) -> Outcome:
    """DistributedDataParallel around the whole module, in one process: Lightning's logging is reached, and breaks."""
    module = Classifier()
    try:
        return _fit(compiler(module), module, strategy="ddp", devices=1)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def rank_of_two(compiler: Compiler) -> Any:
    """One process of two: losses, metrics, weights, and how many graphs were captured for them."""
    torch.manual_seed(0)
    module = Classifier(compiler)
    with jitney.CompileProfiler() as profile:
        results = _fit(module, module, strategy="ddp", devices=2, accumulate_grad_batches=2).results
    return results, profile.graphs


@program("lightning", uncompiled=True)  # here
def lightning_ddp_of_two(compiler: Compiler) -> Outcome:
    """DistributedDataParallel over two processes, which compile the network in ``configure_model``."""
    found = in_processes(2, rank_of_two, compiler)
    assert all(bool(graphs) is bool(compiler) for _, graphs in found)
    return Outcome([results for results, _ in found])


@program("lightning", recompiles=3, breaks=5)
def lightning_resume_step(compiler: Compiler) -> Outcome:
    """A checkpoint goes into a run whose model ``configure_model`` compiles, and whose training step is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        data = images()
        modules = []
        for epochs, path in ((1, None), (3, f"{folder}/one.ckpt")):
            module = Classifier(compiler)
            module.training_step = compiler(module.training_step)
            trainer = _trainer(folder, epochs)
            trainer.fit(module, data, data, ckpt_path=path)
            trainer.save_checkpoint(f"{folder}/one.ckpt")
            modules.append(state_of(module))
    return Outcome(modules)


@program("lightning", recompiles=2)
def lightning_manual(compiler: Compiler) -> Outcome:
    """Manual optimisation, whose step is compiled in part; predictions after it."""

    class Manual(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return loss

    module = Manual()
    return _fit(compiler(module), module)
