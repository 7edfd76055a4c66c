"""What needs one process only: options, refusals, and that programs without DDP pay nothing."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from fork_server import run_python
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import jitney
from jitney.backends import registry, resolve
from jitney.errors import InvalidOption, JitneyError

OPTIONS = {"ddp": "split", "bucket_cap_mb": 0.0001}


@pytest.fixture
def alone():
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=10))
    yield
    dist.destroy_process_group()


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ddp": "both"}, "option 'ddp' of extension 'ddp_bucketing' is 'split' . 'in_graph' . 'off'"),
        ({"bucket_cap_mb": 0}, "bucket_cap_mb is a positive number of MiB, got 0"),
        ({"first_bucket_cap_mb": -1.0}, "first_bucket_cap_mb is a positive number"),
        ({"bucket_cap": 3}, "(?s)backend 'eager' has no option 'bucket_cap'.*did you mean 'bucket_cap_mb'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InvalidOption, match=message):
        resolve("eager", options)


def test_a_module_is_refused_without_a_process_group(alone):
    ddp = DDP(mlp())
    dist.destroy_process_group()
    try:
        with pytest.raises(JitneyError, match="without a process group"):
            jitney.compile(ddp, backend="eager")
    finally:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def test_ddps_own_errors_stay(alone):
    with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
        DDP(jitney.compile(nn.ReLU(), backend="eager"))


def test_a_bucket_cap_of_zero_in_ddp_is_a_bucket_for_each_parameter(alone):
    model = mlp()
    x = torch.randn(3, 4)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for mode in ("split", "in_graph"):
        compiled = jitney.compile(DDP(model, bucket_cap_mb=0), backend="aot_eager", options={"ddp": mode})
        compiled.zero_grad()
        compiled(x).sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)


def test_mixed_precision_is_refused_with_what_to_do(alone):
    ddp = DDP(mlp())
    ddp.mixed_precision = object()
    with pytest.raises(JitneyError, match="mixed_precision= casts parameters in hooks") as e:
        jitney.compile(ddp, backend="eager")
    assert "autocast" in e.value.hint


def test_the_compiled_module_is_the_ddp_module(alone):
    ddp = DDP(mlp())
    compiled = jitney.compile(ddp, backend="aot_eager", options=OPTIONS)
    assert isinstance(compiled, DDP) and compiled.module is ddp.module
    assert [*compiled.state_dict()] == [*ddp.state_dict()]
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), ddp(x))
    compiled.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), ddp.module(x))
    assert ddp._modules["module"] is ddp.module


def test_an_error_of_the_model_is_the_users_and_leaves_ddp_as_it_was(alone):
    class Failing(nn.Linear):
        def forward(self, x):
            if x.shape[0] == 5:
                raise KeyError("five")
            return super().forward(x)

    ddp = DDP(Failing(4, 4))
    compiled = jitney.compile(ddp, backend="aot_eager", options={"ddp": "in_graph"})
    for n in (2, 5, 2):
        compiled.zero_grad()
        if n == 5:
            with pytest.raises(KeyError, match="five"):
                compiled(torch.ones(n, 4))
            assert ddp.require_backward_grad_sync
            continue
        compiled(torch.ones(n, 4)).sum().backward()
        assert ddp.module.weight.grad is not None


def test_off_compiles_as_one_graph(alone):
    ddp = DDP(mlp())
    text = str(jitney.explain(ddp, backend="aot_eager", options={**OPTIONS, "ddp": "off"})(torch.ones(2, 4)))
    assert "DDP buckets" not in text and text.count("joint of") == 1


def test_programs_without_ddp_pay_nothing():
    """Loaded at the first compile, the plugin imports nothing of torch.distributed, and asks nothing of a graph."""
    code = """
import sys, torch
before = {m for m in sys.modules if m.startswith("torch.distributed")}
import jitney
jitney.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
from jitney.backends import registry
assert [row.status for row in registry.extension_listings() if row.name == "ddp_bucketing"] == ["loaded"]
assert not registry.changes_graphs()
own = sorted(m for m in sys.modules if m.startswith("jitney_ddp_bucketing"))
assert own == ["jitney_ddp_bucketing", "jitney_ddp_bucketing.options", "jitney_ddp_bucketing.private"], own
assert not {m for m in sys.modules if m.startswith("torch.distributed")} - before
"""
    run_python("-c", code, check=True, timeout=60)


def test_the_extension_is_found_by_its_entry_point():
    assert "ddp_bucketing" in [row.name for row in registry.extension_listings()]
