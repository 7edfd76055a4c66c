"""Convolutions with weights that oneDNN has put in order, beside eager: whatever is done to the weights."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import jitney
from jitney_llvm_cpu.onednn import convolutions, native, packed
from jitney_llvm_cpu.onednn.trial import Trial

pytestmark = pytest.mark.skipif(convolutions.operators() is None, reason="this torch has no oneDNN")

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "3x3": lambda: nn.Conv2d(16, 64, 3, padding=1),
    "1x1": lambda: nn.Conv2d(16, 2048, 1),
    "no bias": lambda: nn.Conv2d(16, 64, 3, bias=False),
    "strided": lambda: nn.Conv2d(16, 64, 3, stride=2, padding=1),
    "1x1 strided": lambda: nn.Conv2d(16, 512, 1, stride=2),
    "dilated": lambda: nn.Conv2d(16, 64, 3, dilation=2),
    "depthwise": lambda: nn.Conv2d(16, 256, 7, padding=3, groups=16),
    "grouped": lambda: nn.Conv2d(16, 128, 5, padding=2, groups=4),
    "uneven window": lambda: nn.Conv2d(16, 128, (1, 7), padding=(0, 3)),
    "its own result's": lambda: nn.Sequential(nn.Conv2d(16, 64, 3), nn.ReLU(), nn.Conv2d(64, 32, 3), nn.GELU()),
    "normalised": lambda: nn.Sequential(nn.Conv2d(16, 64, 3, bias=False), nn.BatchNorm2d(64), nn.Hardswish()),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What packed convolutions do: ``plain`` or ``packed`` for each call. Weights in order are taken to be faster."""
    found: list[str] = []
    monkeypatch.setattr(packed, "Trial", lambda: Trial(packs=True))
    plain, add = packed._plain, packed._add
    monkeypatch.setattr(packed, "_plain", lambda *given: found.append("plain") or plain(*given))
    monkeypatch.setattr(packed, "_add", lambda *given: found.append("packed") or add(*given))
    return found


@pytest.mark.parametrize(
    ("model", "shape", "wanted"),
    [
        (lambda: nn.Conv2d(16, 64, 3), (2, 16, 20, 20), True),
        (lambda: nn.Conv2d(16, 16, 3), (2, 16, 20, 20), False),  # its weights are small
        (lambda: nn.Conv2d(64, 64, 1), (2, 64, 56, 56), True),  # one thread has enough to do
        (lambda: nn.Conv2d(240, 80, 1), (1, 240, 8, 8), False),  # in one thread torch has a better way
        (lambda: nn.Conv2d(960, 240, 1), (1, 960, 1, 1), False),  # a product
        (lambda: nn.ConvTranspose2d(64, 64, 3), (1, 64, 16, 16), False),
        (lambda: nn.Conv2d(64, 64, 3).double(), (1, 64, 16, 16), False),
    ],
)
def test_where_it_takes_less_time(
    model: Callable[[], nn.Module], shape: tuple[int, ...], wanted: bool, calls: list[str]
) -> None:
    module, threads = model(), torch.get_num_threads()
    x = torch.randn(shape, dtype=next(module.parameters()).dtype).to(memory_format=torch.channels_last)
    torch.set_num_threads(1)
    try:
        checked(jitney.compile(module, backend="llvm_cpu"), module, x)
    finally:
        torch.set_num_threads(threads)
    assert calls == ["packed"] * wanted


def layer(name: str = "3x3") -> nn.Module:
    torch.manual_seed(0)
    made = LAYERS[name]().eval()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()  # type: ignore[operator, union-attr]
            part.running_var.uniform_(0.5, 2)  # type: ignore[operator, union-attr]
    return made


def images(batch: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    made = torch.randn(batch, 16, 20, 20, generator=torch.Generator().manual_seed(batch))
    return made.to(dtype, memory_format=torch.channels_last)


def checked(compiled: Callable[..., Tensor], module: nn.Module, x: Tensor) -> None:
    """At most twice as far from float64 as eager, and as eager lies."""
    with torch.no_grad():
        got, wanted = compiled(x), module(x)
        exact = copy.deepcopy(module).double()(x.double())
    assert got.dtype is wanted.dtype
    assert got.stride() == wanted.stride()
    floor = 1e-7 * float(exact.abs().max())
    assert (got.double() - exact).abs().max() <= 2 * (wanted.double() - exact).abs().max() + floor


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_the_numbers_are_those_of_eager(name: str, dynamic: bool, calls: list[str]) -> None:
    module = layer(name)
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=dynamic)
    for batch in (2, 5, 2, 3):
        checked(compiled, module, images(batch))
    assert "packed" in calls
    assert "plain" not in calls


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_rounded_where_eager_rounds(dtype: torch.dtype) -> None:
    module = layer("normalised").to(dtype)
    with torch.no_grad():
        torch.testing.assert_close(
            jitney.compile(module, backend="llvm_cpu")(images(dtype=dtype)), module(images(dtype=dtype))
        )


def test_autocast_packs_the_rounded_weights(calls: list[str]) -> None:
    module = layer()
    compiled = jitney.compile(module, backend="llvm_cpu")
    for _ in range(2):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compiled(images()), module(images()), rtol=0.02, atol=0.02)


def in_place(weight: Tensor) -> None:
    weight.mul_(-1)


def through_data(weight: Tensor) -> None:
    weight.data.mul_(-1)


def through_numpy(weight: Tensor) -> None:
    weight.detach().numpy()[...] *= -1


def one_number(weight: Tensor) -> None:
    weight.data[3, 2, 1, 1] += 10


def other_memory(weight: Tensor) -> None:
    weight.data = weight.data.flip(0).clone()


def other_order(weight: Tensor) -> None:
    weight.data.copy_(weight.data.flip(0))


@pytest.mark.parametrize("write", [in_place, through_data, through_numpy, one_number, other_memory, other_order])
def test_weights_are_put_in_order_again_when_written_to(write: Callable[[Tensor], None], calls: list[str]) -> None:
    module = layer()
    compiled = jitney.compile(module, backend="llvm_cpu")
    checked(compiled, module, images())
    checked(compiled, module, images())
    with torch.no_grad():
        write(module.weight)  # type: ignore[arg-type]
    checked(compiled, module, images())
    checked(compiled, module, images())
    assert calls == ["packed", "packed"]


def test_weights_are_put_in_order_again_when_loaded_or_trained(calls: list[str]) -> None:
    module = layer()
    compiled = jitney.compile(module, backend="llvm_cpu")
    checked(compiled, module, images())
    module.load_state_dict({name: t.flip(0) for name, t in module.state_dict().items()})
    checked(compiled, module, images())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    compiled(images()).square().mean().backward()
    optimizer.step()
    checked(compiled, module, images())
    assert calls == ["packed"] * 3


def test_weights_that_always_change_are_not_packed(calls: list[str]) -> None:
    compiled = jitney.compile(lambda x, w: F.conv2d(x, w, padding=1).relu(), backend="llvm_cpu")
    for seed in range(6):
        w = torch.randn(64, 16, 3, 3, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            torch.testing.assert_close(compiled(images(), w), F.conv2d(images(), w, padding=1).relu())
    (one,) = alive()
    assert calls == ["packed"] * packed.PATIENCE
    assert (one.kept, one.table.native.otherwise) == (None, native.PLAIN)


def test_weights_that_another_thread_writes_to_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others, and the old ones again, while they are put in order: what is kept is of the old ones."""
    one = packed.PackedConvolution()
    weight = torch.randn(16, 16, 3, 3)
    x = torch.randn(1, 16, 8, 8).to(memory_format=torch.channels_last)
    operators = packed._mkldnn

    class Meanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(operators, name)

        def _reorder_convolution_weight(self, given: Tensor, *others: Any) -> Tensor:
            weight.neg_()
            packed = operators._reorder_convolution_weight(given, *others)
            weight.neg_()
            return packed

    monkeypatch.setattr(packed, "_mkldnn", Meanwhile())
    given = ([1, 1], [1, 1], [1, 1], 1, "none", [], "")
    for _ in range(2):
        torch.testing.assert_close(one(x, weight, None, *given), F.conv2d(x, weight, padding=1))
    assert one.kept is not None
    assert len(one.kept.copies) == 1


def test_windows_in_three_dimensions(calls: list[str]) -> None:
    module = nn.Sequential(nn.Conv3d(8, 64, 3, padding=1), nn.ReLU(), nn.Conv3d(64, 8, 3)).eval()
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=True)
    for batch in (2, 3):
        checked(compiled, module, torch.randn(batch, 8, 5, 6, 7).to(memory_format=torch.channels_last_3d))
    assert "packed" in calls


def test_frozen_weights(calls: list[str]) -> None:
    module = layer("normalised")
    compiled = jitney.compile(module, backend="llvm_cpu", options={"freeze": True})
    for _ in range(2):
        checked(compiled, module, images())
    assert calls == ["packed"]


def test_few_copies_are_kept(calls: list[str]) -> None:
    one = packed.PackedConvolution()
    weight = torch.randn(16, 16, 3, 3)
    for size in range(4, 20):
        x = torch.randn(1, 16, size, size).to(memory_format=torch.channels_last)
        got = one(x, weight, None, [1, 1], [1, 1], [1, 1], 1, "none", [], "")
        torch.testing.assert_close(got, F.conv2d(x, weight, padding=1))
        assert one.kept is not None
        assert len(one.kept.copies) <= packed.LAYOUTS
    assert calls == ["packed"] * packed.LAYOUTS + ["plain"] * (16 - packed.LAYOUTS)


def test_an_empty_batch(calls: list[str]) -> None:
    module = layer()
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=True)
    for batch in (2, 0, 3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(images(batch)), module(images(batch)))


@pytest.mark.parametrize("activation", [F.relu, F.relu6, F.hardsigmoid, F.hardswish, F.silu, F.gelu, F.leaky_relu])
def test_nan_and_infinity_stay(activation: Callable[[Tensor], Tensor]) -> None:
    module = layer()
    x = images()
    x[0, 0, 5, 5], x[1, 0, 9, 9] = float("nan"), float("inf")
    compiled = jitney.compile(lambda x: activation(module(x)), backend="llvm_cpu")
    with torch.no_grad():
        got, wanted = compiled(x), activation(module(x))
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got.isinf(), wanted.isinf())


def test_threads_may_call_and_write() -> None:
    module = layer()
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=True)
    wrong: list[Any] = []

    def work(batch: int) -> None:
        for _ in range(20):
            with torch.no_grad():
                if not torch.allclose(compiled(images(batch)), module(images(batch)), atol=1e-4):
                    wrong.append(batch)

    with torch.no_grad():
        compiled(images())
    threads = [threading.Thread(target=work, args=(batch,)) for batch in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def alive() -> list[packed.PackedConvolution]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is packed.PackedConvolution]


def test_copies_die_with_the_compiled_function() -> None:
    jitney.reset()
    assert not alive()
    compiled = jitney.compile(layer(), backend="llvm_cpu")
    with torch.no_grad():
        compiled(images())
    assert len(alive()) == 1
    del compiled
    jitney.reset()
    assert not alive()


def test_a_graph_from_disk_has_it_too(calls: list[str], tmp_path: Any) -> None:
    from jitney.cache.recipes import Reader, Writer

    writer = Writer()
    number = writer.ref(packed.PackedConvolution())
    made = Reader(writer.objects, writer.blobs, {}).space({"made": number})["made"]
    assert isinstance(made, packed.PackedConvolution)


def test_not_without_the_option(calls: list[str]) -> None:
    module = layer()
    with torch.no_grad():
        jitney.compile(module, backend="llvm_cpu", options={"packed_weights": False})(images())
    assert calls == []


def test_not_where_gradients_are_wanted(calls: list[str]) -> None:
    module = layer()
    jitney.compile(module, backend="llvm_cpu")(images()).sum().backward()
    assert calls == []


def test_not_in_an_older_torch(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "_NEEDED", ("no_such_operator",))
    module = layer()
    checked(jitney.compile(module, backend="llvm_cpu"), module, images())
    assert calls == []


def test_a_programs_own_call_keeps_its_activation() -> None:
    def fn(x: Tensor, weight: Tensor) -> Tensor:
        arguments = (x, weight, None, [1, 1], [1, 1], [1, 1], 1, "relu", [], "")
        return torch.ops.mkldnn._convolution_pointwise(*arguments)

    x = torch.randn(2, 16, 20, 20).to(memory_format=torch.channels_last)
    weight = torch.randn(64, 16, 3, 3)
    compiled = jitney.compile(fn, backend="llvm_cpu")
    for _ in range(packed.PATIENCE + 2):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, weight), F.conv2d(x, weight, padding=1).relu())
            weight.mul_(1.5)  # after so many changes nothing is packed any more
