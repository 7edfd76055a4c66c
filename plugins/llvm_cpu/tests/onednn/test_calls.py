"""Convolutions called from native code, beside eager."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from fork_server import run_python
from helpers import output_code
from torch import Tensor, nn
from torch.nn import functional as F

import jitney
from jitney.errors import BackendFailed
from jitney_llvm_cpu import launch, machine, makers
from jitney_llvm_cpu.onednn import calls, native, packed
from jitney_llvm_cpu.onednn.trial import Trial
from jitney_llvm_cpu.shims import dtype_code

pytestmark = pytest.mark.skipif("convolution" not in machine.machine(0).shims, reason="torch does not export it")

Program = Callable[[Tensor, Tensor, Tensor], Any]
# Of images with 8 channels, weights of 12 filters with 8 or 4 channels each, 12 numbers.
PROGRAMS: dict[str, tuple[int, Program]] = {
    "plain": (8, lambda x, w, b: F.conv2d(x, w, b).relu()),
    "no bias": (8, lambda x, w, b: F.conv2d(x, w, padding=1) * 2),
    "strided, dilated": (
        8,
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(2, 1), dilation=(1, 2)).sigmoid(),
    ),
    "grouped": (4, lambda x, w, b: F.conv2d(x, w, b, groups=2).exp()),
    "a result": (8, lambda x, w, b: F.conv2d(x, w, b)),
    "two results": (8, lambda x, w, b: (F.conv2d(x, w, b), F.conv2d(x, w, b).relu())),
    "a view is a result": (8, lambda x, w, b: (F.conv2d(x, w, b)[:, 1:3], F.conv2d(x, w).flatten(1).relu())),
    "one after the other": (8, lambda x, w, b: F.conv2d(F.conv2d(x, w, b).relu()[:, :8], w, b).relu()),
    "of its own result": (8, lambda x, w, b: F.conv2d(F.conv2d(x, w, b)[:, :8], w)),
    "read by another operator": (8, lambda x, w, b: F.conv2d(x, w, b).relu().flatten(1).topk(3)[0]),
    "read by that as it is": (8, lambda x, w, b: F.conv2d(x, w, b).topk(3)[0]),
    "read at once and later": (8, lambda x, w, b: (t := F.conv2d(x, w, b), t.relu().topk(2)[0], t * 2)[1:]),
    "joined": (8, lambda x, w, b: torch.cat([F.conv2d(x, w, b), F.conv2d(x, w)], 1)),
    "part of an argument": (8, lambda x, w, b: F.conv2d(x[:, :, 1:, ::2], w[1:5], b[2:6])),
    "weights are computed": (8, lambda x, w, b: F.conv2d(x, w * 2 + 1, b).tanh()),
    "of a row": (8, lambda x, w, b: F.conv1d(x[:, :, 0], w[:, :, 0], b).relu()),
    "of a cube": (8, lambda x, w, b: F.conv3d(x[:, :, None], w[:, :, None], b).relu()),
    "transposed": (8, lambda x, w, b: F.conv_transpose2d(F.conv2d(x, w, b), w).relu()),
    "written to afterwards": (8, lambda x, w, b: F.conv2d(x, w, b).mul_(2).add_(1)),
    "nobody reads it": (8, lambda x, w, b: (F.conv2d(x, w, b), x * 2)[1]),
    "with a product": (8, lambda x, w, b: F.conv2d(x, w, b).relu().mean((2, 3)) @ w[:, :3, 0, 0]),
    "no filters": (8, lambda x, w, b: F.conv2d(x, w, b)[:, :0].sum(1)),
}


def given(batch: int, channels: int, dtype: torch.dtype, last: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(batch, 8, 9, 7, generator=generator).to(dtype)
    w = torch.randn(12, channels, 3, 3, generator=generator).to(dtype)
    b = torch.randn(12, generator=generator).to(dtype)
    return [x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last), b] if last else [x, w, b]


def leaves(result: Any) -> list[Tensor]:
    return torch.utils._pytree.tree_leaves(result)


def compare(got: Any, wanted: Any, dtype: torch.dtype = torch.float32) -> None:
    tolerance = 3e-2 if dtype is torch.bfloat16 else 1e-4
    for one, other in zip(leaves(got), leaves(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert one.stride() == other.stride()


@pytest.mark.parametrize(
    ("dtype", "last", "dynamic"),
    [(torch.float32, False, True), (torch.float32, True, False), (torch.bfloat16, True, True)],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_those_of_eager(name: str, dtype: torch.dtype, last: bool, dynamic: bool) -> None:
    channels, program = PROGRAMS[name]
    compiled = jitney.compile(program, backend="llvm_cpu", dynamic=dynamic)
    for batch in (2, 3, 1):
        arguments = given(batch, channels, dtype, last)
        compare(compiled(*arguments), program(*arguments), dtype)


@pytest.mark.parametrize(
    "name", ["plain", "a result", "of its own result", "read by another operator", "with a product"]
)
def test_an_empty_batch(name: str) -> None:
    channels, program = PROGRAMS[name]
    compiled = jitney.compile(program, backend="llvm_cpu", dynamic=True)
    for batch in (2, 0, 3):
        arguments = given(batch, channels, torch.float32, False)
        compare(compiled(*arguments), program(*arguments))


@pytest.mark.parametrize("last", [False, True])
def test_nan_and_infinity_stay(last: bool) -> None:
    _, program = PROGRAMS["one after the other"]
    x, w, b = given(2, 8, torch.float32, last)
    x[0, 0, 4, 4], w[3, 1, 1, 1], b[5] = float("nan"), float("inf"), -float("inf")
    compare(jitney.compile(program, backend="llvm_cpu")(x, w, b), program(x, w, b))


def code_of(program: Callable[..., Any], *arguments: Tensor) -> str:
    with output_code() as codes:
        compare(jitney.compile(program, backend="llvm_cpu", options={"dump": True})(*arguments), program(*arguments))
    (code,) = codes
    return code


def net() -> nn.Module:
    def block(size: int, groups: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(size, size, 3, padding=1, groups=groups), nn.BatchNorm2d(size), nn.ReLU()]

    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 32, 3), *block(32), *block(32, 8), nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 4, 1))


def test_a_net_is_one_native_call() -> None:
    module = net().eval().requires_grad_(False)
    code = code_of(module, given(2, 8, torch.float32, False)[0])
    assert len(re.findall(r"if e\d+\(", code)) == 1
    assert not re.search(r"^ +t\d+ = ", code, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "tensors"),
    [("a result", 1), ("two results", 2), ("read by that as it is", 1), ("plain", 1), ("with a product", 0)],
)
def test_only_what_lives_on_becomes_a_tensor(name: str, tensors: int) -> None:
    channels, program = PROGRAMS[name]
    code = code_of(program, *given(2, channels, torch.float32, True))
    handed_over = "".join(re.findall(r"^ +(.*)= _c\d+\(room\)$", code, re.MULTILINE))
    assert handed_over.count(",") == tensors


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str) -> None:
    channels, program = PROGRAMS[name]
    compiled = jitney.compile(program, backend="llvm_cpu")
    for batch in (2, 3):  # then with a symbolic one
        mine, theirs = ([t.requires_grad_() for t in given(batch, channels, torch.float64, False)] for _ in range(2))
        for function, arguments in ((program, mine), (compiled, theirs)):
            sum(t.square().sum() for t in leaves(function(*arguments))).backward()  # type: ignore[union-attr]
        compare([t.grad for t in theirs if t.grad is not None], [t.grad for t in mine if t.grad is not None])


def test_threads_may_call_at_once() -> None:
    module = net().eval()
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=True)
    wrong: list[Any] = []

    def work(batch: int) -> None:
        x = given(batch, 8, torch.float32, False)[0]
        for _ in range(30):
            with torch.no_grad():
                if not torch.allclose(compiled(x), module(x), atol=1e-4):
                    wrong.append(batch)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in (2, 3, 4, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["plain", "a result"])
def test_what_torch_refuses_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Sizes that do not fit never get here; so the call is given a dtype without convolutions."""
    channels, program = PROGRAMS[name]
    wrong = calls.argument
    monkeypatch.setattr(calls, "argument", lambda t: replace(wrong(t), dtype=dtype_code(torch.bool)))
    with pytest.raises(BackendFailed, match="convolution"):
        jitney.compile(program, backend="llvm_cpu")(*given(2, channels, torch.float32, True))


def test_without_shims_torch_is_called_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.machine(0)
    monkeypatch.setattr(launch, "machine", lambda vector_bytes: replace(here, shims=frozenset()))
    channels, program = PROGRAMS["plain"]
    assert re.search(r"^ +t\d+ = ", code_of(program, *given(2, channels, torch.float32, True)), re.MULTILINE)


def test_explain_tells_how_they_are_called() -> None:
    channels, program = PROGRAMS["plain"]
    report = str(jitney.explain(program, backend="llvm_cpu")(*given(2, channels, torch.float32, True)))
    assert "called from native code" in report


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
@pytest.mark.parametrize("name", ["one after the other", "two results", "a view is a result"])
def test_results_are_given_back(name: str) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    channels, program = PROGRAMS[name]
    arguments = given(2, channels, torch.float32, True)
    compiled = jitney.compile(program, backend="llvm_cpu")
    for _ in range(200):
        compiled(*arguments)
    before = resident()
    for _ in range(2000):
        compiled(*arguments)
    # A result takes two pages and more.
    assert resident() - before < 500


SCRIPT = """
import sys, torch, jitney
sys.path.insert(0, {folder!r})
import test_calls
module = test_calls.net().eval()
x = test_calls.given(2, 8, torch.float32, False)[0]
compiled = jitney.compile(module, backend="llvm_cpu")
with torch.no_grad():
    for _ in range(12):
        torch.testing.assert_close(compiled(x), module(x))
print("PACKED", sum(type(f).__name__ == "PackedConvolution" for f in __import__("gc").get_objects()))
"""


def test_another_process_takes_it_from_disk(tmp_path: Any) -> None:
    folder = os.path.dirname(__file__)
    environment = {**os.environ, "JITNEY_CACHE_DIR": str(tmp_path), "JITNEY_LOGS": "cache"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    outputs = [run_python("-c", SCRIPT.format(folder=folder), env=environment, check=True) for _ in range(2)]
    assert [out.stdout for out in outputs] == ["PACKED 1\n"] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_process_may_call_too() -> None:
    module = net().eval()
    compiled = jitney.compile(module, backend="llvm_cpu")
    x = given(2, 8, torch.float32, False)[0]
    with torch.no_grad():
        wanted = [compiled(x) for _ in range(12)][0]
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.allclose(compiled(x), wanted) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ------------------------------------------------------------------ the order of weights

# Channels, filters, window, groups; in the last ones threads share the weights.
WEIGHTS = [
    (8, 6, (3, 3), 1), (8, 12, (1, 7), 2), (8, 12, (3, 1), 4), (8, 8, (3, 3), 8), (1, 4, (3, 3), 1), (8, 5, (1, 1), 1),
    (32, 96, (5, 3), 1), (64, 64, (7, 7), 2),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("channels", "filters", "window", "groups"), WEIGHTS)
def test_weights_with_channels_first_of_images_with_channels_last(
    channels: int, filters: int, window: tuple[int, int], groups: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(channels, filters, window, padding="same", groups=groups).to(dtype)
    compiled = jitney.compile(module, backend="llvm_cpu", options={"packed_weights": False})
    for grad in (False, True):
        x = torch.randn(3, channels, 9, 8, dtype=dtype).to(memory_format=torch.channels_last)
        with torch.set_grad_enabled(grad):
            compare(compiled(x), module(x), dtype)
            module.weight.data[1] = float("nan")
            compare(compiled(x), module(x), dtype)
            nn.init.normal_(module.weight)


def test_the_order_of_weights_does_not_change_the_numbers(library: Any) -> None:
    x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)
    weight = torch.randn(6, 8, 3, 3)
    for images in (x, x.contiguous(), x[:, :, :, ::2]):
        expected = F.conv2d(images, weight)
        numbers = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
        call = makers.Description((images, weight, None), numbers, [(expected.stride(), x.dtype)])
        made = []
        for name, first in (("jitney_make_convolution", ()), ("jitney_convolution", (1,))):
            types = [ctypes.c_int64] * len(first) + [ctypes.c_void_p] * 3
            assert library.function(name, *types, result=ctypes.c_int32)(*first, call.data, call.desc, call.made) == 0
            made += native.tensors_of([call.made[0]])
        assert torch.equal(made[0], made[1])
        torch.testing.assert_close(made[1], expected)


@pytest.fixture(scope="module")
def library() -> Any:
    machine.machine(0)
    return native._libraries[-1]


# ------------------------------------------------------------------ weights in order


def packed_layer(monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, Callable[[Tensor], Tensor], Tensor]:
    """A convolution whose weights are in order, called from native code without a word to Python."""
    monkeypatch.setattr(packed, "Trial", lambda: Trial(packs=True))
    jitney.reset()
    module = nn.Sequential(nn.Conv2d(16, 64, 3), nn.ReLU()).eval()
    compiled = jitney.compile(module, backend="llvm_cpu")
    x = torch.randn(2, 16, 20, 20).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for _ in range(2):
            compare(compiled(x), module(x))
    return module, compiled, x


def the_only_one() -> packed.PackedConvolution:
    gc.collect()
    (one,) = (found for found in gc.get_objects() if type(found) is packed.PackedConvolution)
    return one


def test_python_is_asked_only_where_native_code_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, compiled, x = packed_layer(monkeypatch)
    asked = []
    answer = packed.PackedConvolution.answer
    monkeypatch.setattr(packed.PackedConvolution, "answer", lambda one, q: asked.append(q.x.shape) or answer(one, q))
    with torch.no_grad():
        for _ in range(3):
            compare(compiled(x), module(x))
        assert asked == []
        module[0].weight.data.neg_()
        for _ in range(3):
            compare(compiled(x), module(x))
        assert len(asked) == 1
        module[0].weight.data[3, 2, 1, 1] = float("nan")
        for _ in range(3):
            compare(compiled(x), module(x))
        assert len(asked) == 2


def test_a_kernel_writes_where_the_result_was(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, x = packed_layer(monkeypatch)
    code = code_of(module.requires_grad_(False), x)
    assert re.search(
        r"^    (t\d+), = _c\d+\(room\)\n    (t\d+) = \1\n    del \1\n    return \(\2, \)", code, re.MULTILINE
    )


def test_calls_with_the_same_weights_between_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    module, compiled, x = packed_layer(monkeypatch)
    with torch.no_grad():
        for _ in range(2 * packed.PATIENCE):
            module[0].weight.data.neg_()
            for _ in range(2):
                compare(compiled(x), module(x))
    assert the_only_one().kept is not None


def test_replaced_tables_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module, compiled, x = packed_layer(monkeypatch)
    one = the_only_one()
    with torch.no_grad():
        for _ in range(5):
            module[0].weight.data.neg_()
            compare(compiled(x), module(x))
            compare(compiled(x), module(x))
    assert one.retired == []
    assert list(one.published.values()) == [one.table]
    one.state.users += 1  # a thread is in native code
    with torch.no_grad():
        module[0].weight.data.neg_()
        compare(compiled(x), module(x))
        assert len(one.retired) == 1
        one.state.users -= 1
        module[0].weight.data.neg_()
        compare(compiled(x), module(x))
    assert one.retired == []


def test_an_exception_of_python_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module, compiled, x = packed_layer(monkeypatch)

    def fail(*given: Any) -> Any:
        raise MemoryError("no room for weights")

    with torch.no_grad():
        module[0].weight.data.neg_()
        monkeypatch.setattr(packed.PackedConvolution, "_packed", fail)
        with pytest.warns(UserWarning, match="MemoryError: no room for weights"):  # then it runs eagerly
            compare(compiled(x), module(x))
        monkeypatch.undo()
        compare(compiled(x), module(x))


def test_weights_change_while_threads_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each weight is one number everywhere, so that whatever a call sees of a change is of one of both."""
    module, compiled, x = packed_layer(monkeypatch)
    x = torch.ones_like(x)
    done = threading.Event()
    wrong: list[Tensor] = []
    with torch.no_grad():
        module[0].bias.zero_()
        module[0].weight.fill_(1.0)

    def call() -> None:
        with torch.no_grad():
            while not done.is_set():
                got = compiled(x)
                if not (got.isfinite().all() and 144 <= got.min() and got.max() <= 288):
                    wrong.append(got)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(300):
        with torch.no_grad():
            module[0].weight.data.fill_(1.0 + n % 2)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    with torch.no_grad():
        compare(compiled(x), module(x))


def test_tables_of_native_code() -> None:
    table = native.Table([native.Row((2, 3, 4), 5, native.PLAIN)], native.ASK, 7, 8)
    assert (table.native.digest, table.native.bytes, table.native.count) == (7, 8, 1)
    assert [*table.native.rows[0].sizes] == [2, 3, 4, 0, 0]
    assert table.contents == native.Table([native.Row((2, 3, 4), 5, native.PLAIN)], native.ASK, 7, 8).contents
    assert table.contents != native.Table([native.Row((2, 3, 5), 5, native.PLAIN)], native.ASK, 7, 8).contents


# ------------------------------------------------------------------ single pixels


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(8, 4, 1, bias=bias)
        self.excite = nn.Conv2d(4, 8, 1, stride=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        squeezed = self.squeeze(x.mean((2, 3), keepdim=True))
        return x * self.excite(squeezed.relu()).sigmoid(), squeezed


@pytest.mark.parametrize(
    ("dtype", "bias", "last", "dynamic"),
    [
        (torch.float32, True, True, False),
        (torch.float32, False, False, True),
        (torch.float64, True, False, False),
        (torch.bfloat16, True, True, True),
    ],
)
def test_convolutions_of_pixels(dtype: torch.dtype, bias: bool, last: bool, dynamic: bool) -> None:
    torch.manual_seed(0)
    module = Gate(bias).to(dtype)
    other = copy.deepcopy(module)
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=dynamic)
    for batch in (2, 1, 5):
        x = given(batch, 8, dtype, last)[0]
        with torch.no_grad():
            compare(compiled(x), other(x), dtype)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        for function, argument in ((compiled, mine), (other, theirs)):
            sum(t.square().mean() for t in function(argument)).backward()
        compare(mine.grad, theirs.grad, dtype)
    compare([p.grad for p in module.parameters()], [p.grad for p in other.parameters()], dtype)


def test_convolutions_of_pixels_are_products() -> None:
    module = Gate(True).requires_grad_(False)
    code = code_of(module, given(2, 8, torch.float32, False)[0])
    assert "aten.mm" in code and "aten.convolution" not in code


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(8, 8, 1, groups=2),
        nn.Conv2d(8, 8, 1, padding=1),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ConvTranspose2d(8, 8, 1),
    ],
)
def test_other_convolutions_of_pixels_are_none(module: nn.Module) -> None:
    module.requires_grad_(False)
    assert "aten.convolution" in code_of(module, given(2, 8, torch.float32, False)[0][:, :, :1, :1])


# ------------------------------------------------------------------ windows of one pixel


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_in_one_thread_images_are_multiplied_as_matrices(last: bool, dynamic: bool) -> None:
    torch.manual_seed(0)
    parts = [nn.Conv2d(8, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 4, 1, bias=False)]
    module = nn.Sequential(*parts).eval().requires_grad_(False)
    compiled = jitney.compile(module, backend="llvm_cpu", dynamic=dynamic)
    for batch in (2, 1, 3, *([0] * dynamic)):
        x = given(batch, 8, torch.float32, last)[0]
        compare(compiled(x), module(x))
        x[:, 0, 0, 0] = float("nan")
        compare(compiled(x), module(x))
    code = code_of(module, given(2, 8, torch.float32, last)[0])
    assert "aten.mm" in code and "convolution" not in code


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(8, 8, 1),
        nn.Conv2d(8, 8, 1, bias=False, stride=2),
        nn.Conv2d(8, 8, 1, bias=False, padding=1),
        nn.Conv2d(8, 8, 1, bias=False, groups=2),
        nn.Conv2d(8, 8, 1, bias=False).double(),
        nn.Conv2d(8, 8, 3, bias=False),
    ],
)
def test_in_one_thread_other_convolutions_are_convolutions(module: nn.Module) -> None:
    x = given(2, 8, next(module.parameters()).dtype, True)[0]
    assert "convolution" in code_of(module.requires_grad_(False), x)
