from __future__ import annotations

import gc
import os
import random
import select
import subprocess
import sys

import pytest
import torch
from torch import nn

pytest.importorskip("jax")

import jitney  # noqa: E402
import jitney_xla  # noqa: E402
from jitney import events  # noqa: E402
from jitney.backends import HOOK_API_VERSION, registry  # noqa: E402
from jitney.errors import InvalidOption  # noqa: E402
from jitney_xla.form import Form  # noqa: E402


def placed(run, *arguments):
    """The result of a call, and who ran how many operators of each graph."""
    seen = []
    with events.listen(lambda event: seen.append(event.pieces) if isinstance(event, events.Placed) else None):
        return run(*arguments), seen


def test_pip_made_it_known_by_name():
    assert registry.get("xla") is jitney_xla.backend
    assert jitney_xla.jitney_hook_api == HOOK_API_VERSION and jitney_xla.lacks() == []


def test_a_training_step_is_eagers_and_draws_no_random_number():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    x = torch.randint(7, (5, 4))
    net(x).square().sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    run, state = jitney.compile(net, backend="xla", fullgraph=True), random.getstate()
    made = run(x)
    torch.testing.assert_close(made, net(x))
    made.square().sum().backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], expected)
    assert random.getstate() == state


def test_images_keep_their_layout():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)).eval()
    x = torch.randn(2, 3, 16, 16)
    for given in (x, x.to(memory_format=torch.channels_last)):
        run = jitney.compile(net, backend="xla", fullgraph=True)
        with torch.no_grad():
            made, right = run(given), net(given)
        torch.testing.assert_close(made, right)
        assert made.stride() == right.stride()


def test_operators_whose_numbers_would_differ_run_eagerly():
    def program(x, z):
        return (x.cosh() + 1).cumsum(0), (z * z).abs(), torch.rand_like(x).sort()[0]

    x = torch.randn(5)
    torch.manual_seed(1)
    made, [pieces] = placed(jitney.compile(program, backend="xla"), x, torch.randn(3, dtype=torch.complex64))
    assert {name for name, _ in pieces} == {"xla", "eagerly"}
    torch.testing.assert_close(made[0], (x.cosh() + 1).cumsum(0))


def test_an_index_out_of_range_and_a_division_by_zero_raise_as_in_eager():
    look = jitney.compile(lambda table, i: table[i] * 2, backend="xla")
    divide = jitney.compile(lambda x, y: x // y + 1, backend="xla")
    table, x = torch.arange(8.0), torch.tensor([7, -7])
    for i in ([0, 7], [-8, 3]):
        assert torch.equal(look(table, torch.tensor(i)), table[i] * 2)
    with pytest.raises(IndexError):
        look(table, torch.tensor([0, 8]))
    assert torch.equal(divide(x, torch.tensor([2, 2])), torch.tensor([4, -3]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(x, torch.tensor([1, 0]))


def test_a_float_beyond_the_integers_is_cast_as_in_eager():
    run = jitney.compile(lambda x: (x * 2).to(torch.int64), backend="xla")
    for x in (torch.tensor([1.5, -3.75]), torch.tensor([1e30, float("nan")])):
        assert torch.equal(run(x), (x * 2).to(torch.int64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_arguments_below_the_smallest_normal_number_are_not_zero(dtype):
    run = jitney.compile(lambda x: (x * 2, x > 0, x.abs()), backend="xla")
    x = torch.tensor([torch.finfo(dtype).tiny / 4, -torch.finfo(dtype).tiny / 8, 1.0, 0.0], dtype=dtype)
    for given in (x, x[2:].repeat(2)):
        assert all(torch.equal(a, b) for a, b in zip(run(given), (given * 2, given > 0, given.abs()), strict=True))


def test_results_can_be_made_larger():
    made = jitney.compile(lambda x: x * 2, backend="xla")(torch.ones(3))
    assert made.untyped_storage().nbytes() == 12 and made.resize_(5).shape == (5,)


def test_results_share_no_memory_with_arguments_or_each_other():
    x = torch.randn(4, 3)
    made = jitney.compile(lambda x: (x.clone(), x.clone(), (x * 1).t(), x + 0), backend="xla", fullgraph=True)(x)
    assert len({t.data_ptr() for t in (x, *made)}) == 5
    right = (x, x, x.t(), x)
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(made, right, strict=True))


def test_each_size_has_its_form_up_to_a_limit():
    def fn(x, y):
        return (x.t() * 2 + y).softmax(0), x.shape[0] * 2

    for limit in (0, 2):
        run = jitney.compile(fn, backend="xla", options={"max_sizes": limit}, dynamic=True, fullgraph=True)
        for n, m in ((3, 5), (8, 5), (3, 5), (64, 17)):
            x, y = torch.randn(n, m), torch.randn(m, n)
            (made, twice), (right, _) = run(x, y), fn(x, y)
            torch.testing.assert_close(made, right)
            assert made.stride() == right.stride() and twice == 2 * n


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's; pytest has taken away the filter against it
def test_a_forked_child_calls_and_compiles():
    run = jitney.compile(lambda x: x * 2 + 1, backend="xla")
    run(torch.ones(3))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        fresh = jitney.compile(lambda x: x * 3 - 1, backend="xla")
        os.write(write, str((run(torch.ones(3)) + fresh(torch.ones(3))).tolist()).encode())
        os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], 30)
    text = os.read(read, 100) if ready else b"the child hangs"
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(read)
    assert text == b"[5.0, 5.0, 5.0]"


def test_compiled_code_dies_with_its_function():
    run = jitney.compile(lambda x: x * 2 + 1, backend="xla")
    gc.collect()  # what other tests have left
    before = sum(type(o) is Form for o in gc.get_objects())
    run(torch.ones(3))
    assert sum(type(o) is Form for o in gc.get_objects()) == before + 1
    del run
    jitney.reset()
    gc.collect()
    assert sum(type(o) is Form for o in gc.get_objects()) <= before


def test_jax_keeps_what_the_program_has_set():
    import jax

    before = (jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision, jax.config.jax_default_device)
    assert jitney.compile(lambda x: x @ x, backend="xla")(torch.eye(3, dtype=torch.float64)).dtype is torch.float64
    after = (jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision, jax.config.jax_default_device)
    assert before == after


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_debug_nans", True),
        ("jax_disable_jit", True),
        ("jax_transfer_guard", "disallow"),
        ("jax_numpy_dtype_promotion", "strict"),
    ],
)
def test_jax_settings_of_the_program_are_for_its_own_jax(name, value):
    import jax

    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        x, i = torch.tensor([-1.0, 4.0]), torch.tensor([1, -1])
        made = jitney.compile(lambda x, i: x.log() + x[i] * 2 + i, backend="xla", fullgraph=True)(x, i)
    finally:
        jax.config.update(name, before)
    torch.testing.assert_close(made, x.log() + x[i] * 2 + i, equal_nan=True)


def test_flags_of_the_environment_make_no_number_another():
    code = """
import jitney, torch
x = torch.tensor([1.0, -0.0, 5.0, 1e-3])
run = jitney.compile(lambda x: (x.exp().log(), x + 0.0, x / 3), backend="xla", fullgraph=True)
found, right = run(x), (x.exp().log(), x + 0.0, x / 3)
torch.testing.assert_close(found, right)
print([t[1].signbit().item() for t in found] == [t[1].signbit().item() for t in right])
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_cpu_enable_fast_min_max=true"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="max_sizes"):
        jitney.compile(torch.sin, backend="xla", options={"max_sizes": -1})
