"""Lanes and the share that is hidden, from events that say so."""

import gzip
import json
from xml.etree import ElementTree

import pytest

from jitney_ddp_bucketing.timeline import intersection, lanes, main, read, svg, union, without


def event(cat, name, begin, end):
    return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": end - begin}


GPU = [
    event("kernel", "triton_k0", 0, 100),
    event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING", 50, 150),
    event("kernel", "gemm", 120, 140),
    event("cpu_op", "aten::mm", 0, 900),  # the CPU does not count where a GPU works
    {"ph": "M", "name": "process_name"},
]
CPU = [
    event("cpu_op", "Backward", 0, 100),
    event("cpu_op", "_c10d_functional::wait_tensor", 60, 90),
    event("user_annotation", "gloo:all_reduce", 40, 80),
    event("user_annotation", "gloo:all_reduce", 70, 90),
]


def test_intervals():
    assert union([(5, 6), (0, 2), (1, 3), (4, 4)]) == [(0, 3), (5, 6)]
    assert intersection([(0, 3), (5, 9)], [(2, 6), (8, 20)]) == [(2, 3), (5, 6), (8, 9)]
    assert without([(0, 10)], [(-1, 1), (3, 4), (9, 12)]) == [(1, 3), (4, 9)]


def test_kernels_of_nccl_are_communication():
    found = lanes(GPU, "rank")
    assert found.compute == [(0, 100), (120, 140)] and found.communication == [(50, 150)]
    assert found.hidden == pytest.approx(0.7)


def test_on_a_cpu_waiting_is_no_computation():
    found = lanes(CPU, "rank")
    assert found.compute == [(0, 60), (90, 100)] and found.communication == [(40, 90)]
    assert found.hidden == pytest.approx(20 / 50)


def test_without_communication_nothing_is_hidden():
    assert lanes(CPU[:1], "rank").hidden is None


def test_the_command_draws_all_ranks(tmp_path, capsys):
    (tmp_path / "r0.json").write_text(json.dumps({"traceEvents": GPU}))
    (tmp_path / "r1.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": CPU}).encode()))
    picture = tmp_path / "picture.svg"
    assert main([str(tmp_path / "r0.json"), str(tmp_path / "r1.json.gz"), "-o", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "r0: compute 0.12 ms, communication 0.10 ms, 70.0% of it hidden" in shown and "r1: " in shown
    assert len(ElementTree.parse(picture).getroot().findall("{*}rect")) == 1 + 3 + 3
    assert "70% of communication hidden" in picture.read_text()


def test_what_is_no_trace_is_said(tmp_path, capsys):
    (tmp_path / "x.json").write_text("[")
    assert main([str(tmp_path / "x.json")]) == 1
    assert "is no trace of torch's profiler" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "y.json").write_text("[]")
    assert main([str(tmp_path / "y.json"), "-o", str(tmp_path / "nowhere" / "y.svg")]) == 1
    assert "No such file or directory" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="no trace"):
        read(tmp_path / "x.json")


def test_an_empty_picture_is_a_picture():
    assert "no communication" in svg([lanes([], "rank")])


def test_ranks_are_told_apart_in_the_picture() -> None:
    picture = svg([lanes([], f"a_model_of_ours_rank{n}") for n in range(2)])
    assert "a_model_of_ours: " in picture
    assert ">rank0 compute" in picture and ">rank1 compute" in picture
