"""The example of the README: trains under torchrun, and goes on from its checkpoint."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp_train.py"


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch without gloo")
def test_training_goes_on_where_it_stopped(tmp_path):
    checkpoint = tmp_path / "model.pt"

    def run(steps):
        command = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", EXAMPLE]
        sizes = ["--batch", 8, "--width", 16, "--layers", 1, "--every", 4, "--backend", "aot_eager"]
        given = ["--steps", steps, "--checkpoint", checkpoint]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        arguments = [sys.executable, *map(str, [*command, *sizes, *given])]
        made = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120)
        assert made.returncode == 0, made.stderr
        return made.stdout

    first = run(4)
    assert re.search(r"step 4: loss \d\.\d+, [\d,]+ points/s", first)
    assert torch.load(checkpoint, weights_only=True)["step"] == 4
    again = run(6)
    assert f"going on at step 4 of {checkpoint}" in again and "step 6: loss" in again
    assert "step 4: loss" not in again
    assert torch.load(checkpoint, weights_only=True)["step"] == 6
