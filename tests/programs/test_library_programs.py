"""Programs in the style of libraries, given a compiled module, or one that is compiled in place: as in eager."""

from __future__ import annotations

import copy
import functools
import inspect
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import jitney


class Runs:
    """A backend that counts the runs of its graphs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            self.count += 1
            return graph.forward(*values)

        return run


FORMS = pytest.mark.parametrize("inplace", [False, True], ids=["proxy", "in place"])


def beside_eager(program: Callable[[Callable[[Any], Any]], Any], inplace: bool, runs: int) -> None:
    """The program gives the same, and has run that many graphs."""
    torch.manual_seed(0)
    wanted, counted = program(lambda module: module), Runs()
    torch.manual_seed(0)
    found = program(lambda module: jitney.compile(module, backend=counted, inplace=inplace))
    torch.testing.assert_close(found, wanted)
    assert counted.count == runs


# --- a trainer that looks at forward's signature --------------------------------------------------------------------


class Classifier(nn.Module):
    """Returns its loss, as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.net(input_ids)
        return {"logits": logits} | ({} if labels is None else {"loss": F.cross_entropy(logits, labels)})


def trains(wrap: Callable[[Any], Any]) -> Any:
    model = wrap(Classifier())
    columns = inspect.signature(model.forward).parameters
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    losses = []
    model.train()
    for _ in range(3):
        batch = {"input_ids": torch.randn(8, 4), "labels": torch.randint(0, 2, (8,)), "idx": 1}
        loss = model(**{k: v for k, v in batch.items() if k in columns})["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        model.zero_grad()
        losses.append(loss.item())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = wrap(Classifier())
    assert str(fresh.load_state_dict(torch.load(file))) == "<All keys matched successfully>"
    return losses, fresh.state_dict()


@FORMS
def test_a_trainer(inplace: bool) -> None:
    beside_eager(trains, inplace, runs=3)


# --- a module with its own training step ----------------------------------------------------------------------------


class Base(nn.Module):
    """What a library gives its users to inherit from."""

    def __init__(self) -> None:
        super().__init__()
        self.hook = ""
        self.metrics: dict[str, Any] = {}

    def log(self, name: str, value: torch.Tensor) -> None:
        """Keep a number, where that is allowed."""
        assert self.hook in ("training_step", "validation_step")
        self.metrics[name] = value.detach()


class Lit(Base):
    """What users write."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("sum", self(batch[0]).sum())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def is_overridden(name: str, instance: Any, parent: type) -> bool:
    """As Lightning asks it."""
    found, theirs = getattr(instance, name), getattr(parent, name, None)
    if hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if isinstance(found, functools.partial):
        found = found.func
    return theirs is None or found.__code__ != theirs.__code__


def fits(wrap: Callable[[Any], Any]) -> Any:
    module = wrap(Lit())
    assert module and isinstance(module, Base)
    assert inspect.getfullargspec(module.training_step).args == ["self", "batch", "batch_idx"]
    assert is_overridden("training_step", module, Base) and not is_overridden("log", module, Base)
    optimizer = module.configure_optimizers()
    batches = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(3)]
    module.hook = "training_step"
    for at, batch in enumerate(batches):
        module.training_step(batch, at).backward()
        optimizer.step()
        optimizer.zero_grad()
    module.eval()
    module.hook = "validation_step"
    with torch.no_grad():
        module.validation_step(batches[0], 0)
    return module.metrics


@FORMS
def test_a_module_with_a_training_step(inplace: bool) -> None:
    beside_eager(fits, inplace, runs=4)


# --- a pipeline of modules ------------------------------------------------------------------------------------------


class Denoiser(nn.Module):
    """Has properties that pipelines read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    @property
    def dtype(self) -> torch.dtype:
        return self.conv.weight.dtype

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sample": self.conv(x) * step}


class Decoder(nn.Module):
    """Is called by another method than its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def decode(self, x: torch.Tensor) -> Any:
        return self.conv(x)

    def forward(self, x: torch.Tensor) -> Any:
        return self.decode(x)


class Pipeline:
    """Holds modules, as diffusers' do."""

    def __init__(self, **parts: nn.Module) -> None:
        self.parts = parts

    def to(self, dtype: torch.dtype) -> Pipeline:
        """Move all of them."""
        self.parts = {name: part.to(dtype) for name, part in self.parts.items()}
        return self

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> Any:
        """Take noise away, step by step."""
        x = x.to(self.parts["denoiser"].dtype)  # type: ignore[arg-type]
        for step in range(3):
            x = x - 0.1 * self.parts["denoiser"](x, torch.tensor([step]))["sample"]
        decoder: Any = self.parts["decoder"]
        return decoder.decode(x)


def denoises(wrap: Callable[[Any], Any]) -> Any:
    pipeline = Pipeline(denoiser=wrap(Denoiser()), decoder=wrap(Decoder())).to(torch.float64)
    assert [type(part).__name__ for part in pipeline.parts.values()] == ["Denoiser", "Decoder"]
    return pipeline(torch.randn(1, 2, 8, 8))


@FORMS
def test_a_pipeline(inplace: bool) -> None:
    if inplace:  # the module's own method calls a part of it: nothing stands in between that could say so
        beside_eager(denoises, inplace, runs=3)
        return
    with pytest.warns(UserWarning, match="Decoder.decode runs uncompiled: it calls parts of the module"):
        beside_eager(denoises, inplace, runs=3)


# --- averages, copies, parallel copies ------------------------------------------------------------------------------


def averages(wrap: Callable[[Any], Any]) -> Any:
    model = wrap(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    average: Any = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    x = torch.randn(6, 4)
    for _ in range(2):
        model(x).sum().backward()
        average.update_parameters(model)
    update_bn([x], average)
    twin = copy.deepcopy(model)
    assert type(average.module).__name__ == type(twin).__name__ == "Sequential"
    return average(x), average.state_dict(), twin(x), nn.DataParallel(model)(x)


@FORMS
def test_averages_and_copies(inplace: bool) -> None:
    # Copies of what is compiled in place are not. ``update_bn`` reads a number, which is a break: one graph more.
    beside_eager(averages, inplace, runs=3 if inplace else 7)


# --- parametrizations and hooks -------------------------------------------------------------------------------------


def changes(wrap: Callable[[Any], Any]) -> Any:
    told: list[Any] = []
    model, x = wrap(nn.Linear(4, 4)), torch.randn(2, 4)
    results = [model(x)]
    parametrizations.weight_norm(model)
    assert parametrize.is_parametrized(model)
    results.append(model(x))
    parametrize.remove_parametrizations(model, "weight")
    handle = model.register_forward_hook(lambda module, args, out: told.append(out.sum().item()))
    results.append(model(x))
    handle.remove()
    model.register_buffer("more", torch.ones(1))
    model.part = nn.Linear(1, 1)
    results.append(torch.func.functional_call(model, {k: v * 2 for k, v in model.named_parameters()}, (x,)))
    return results, told, model.state_dict(), isinstance(model, nn.Linear)


@FORMS
def test_a_module_that_is_changed_from_outside(inplace: bool) -> None:
    beside_eager(changes, inplace, runs=4)
