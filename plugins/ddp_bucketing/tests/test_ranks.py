"""The cases of ``cases.py``, each in two or four processes that are started once."""

import importlib.util
import json
import os
import socket
from pathlib import Path

import pytest
import torch
from fork_server import Program

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch without gloo")

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("ddp_cases", HERE / "cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(world, *command, **environment):
    """One process for each rank, as torchrun starts them."""
    base = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    base |= {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **environment}
    return [
        Program(*command, env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}, merge=True) for rank in range(world)
    ]


def outputs(processes, timeout):
    """What each printed, and its exit status; all are over afterwards."""
    try:
        return [(p.communicate(timeout=timeout)[0], p.returncode) for p in processes]
    finally:
        for p in processes:
            p.kill()
            p.wait()


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_together(tmp_path, world):
    """One test for each number of ranks: starting the processes takes longer than most cases."""
    names = cases.cases_for(world)
    if importlib.util.find_spec("jitney_llvm_cpu") is None:
        names.remove("llvm_cpu")
    printed = outputs(start(world, HERE / "cases.py", tmp_path / "results", *names), timeout=500)
    wrong = []
    for rank, (text, _) in enumerate(printed):
        file = tmp_path / f"results.{rank}"
        found = json.loads(file.read_text()) if file.exists() else {}
        failed = [f"{name}: {found[name]}" for name in names if found.get(name)]
        missing = [name for name in names if name not in found]
        if failed or missing:
            wrong.append(f"rank {rank}: {failed or f'did not come to {missing[0]}: {text}'}")
    assert not wrong, "\n".join(wrong)


DYING = """
import os
import torch, torch.distributed as dist
from datetime import timedelta
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import jitney
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
for mode in ("split", "in_graph"):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    ddp = jitney.compile(DDP(model), backend="aot_eager", options={"ddp": mode, "bucket_cap_mb": 0.0002})
    for step in range(3):
        ddp.zero_grad()
        out = ddp(torch.ones(2, 8))
        if mode == os.environ["MODE"] and step == 2 and dist.get_rank() == 1:
            os._exit(3)  # in the middle of a step
        out.sum().backward()
print("all steps done")
"""


def test_a_rank_that_dies_ends_the_others_with_torchs_error():
    started = {mode: start(2, "-c", DYING, MODE=mode) for mode in ("split", "in_graph")}
    for processes in started.values():
        (survivor, status), (_, dead) = outputs(processes, timeout=60)
        assert dead == 3
        assert status != 0 and "all steps done" not in survivor
        lines = [line for line in survivor.splitlines() if "RuntimeError" in line]
        assert any("gloo" in line.lower() or "connection" in line.lower() for line in lines), survivor
        assert "BackendFailed" not in survivor
