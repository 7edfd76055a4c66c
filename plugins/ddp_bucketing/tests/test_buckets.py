"""Buckets are DDP's own, and graphs are cut where they end."""

import random
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from jitney_ddp_bucketing.buckets import Item, assign, in_graph, limits_of, table
from jitney_ddp_bucketing.options import DDPOptions
from jitney_ddp_bucketing.split import cuts


@pytest.mark.parametrize("seed", range(8))
def test_buckets_are_those_of_ddp(seed):
    draw = random.Random(seed)
    dtypes = [torch.float32, torch.float64, torch.bfloat16][: 1 + seed % 3]
    tensors = [torch.empty(draw.randint(0, 300), dtype=draw.choice(dtypes)) for _ in range(draw.randint(1, 30))]
    limits = draw.choice([[0], [400], [100, 900], [1, 50, 2000]])
    expected, _ = dist._compute_bucket_assignment_by_size(tensors, limits, [False] * len(tensors))
    assert assign([Item.of(str(i), t) for i, t in enumerate(tensors)], limits) == expected


def chain(count, uses=()):
    """A graph of ``count`` operations, each with a parameter of 10 bytes; ``uses`` are pairs (operation, parameter)."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    parameters = [graph.placeholder(f"p{i}") for i in range(count)]
    extra = dict(uses)
    operations = []
    for i in range(count):
        x = graph.call_function(torch.add, (x, parameters[i], *([parameters[extra[i]]] if i in extra else [])))
        operations.append(x)
    graph.output((x,))
    return graph, {p: Item(p.name, 10, "f32") for p in parameters}, operations


def shown(found, operations):
    return [operations.index(n) for n in found.before], [([i.name for i in items], n) for items, n in found.rows]


def test_pieces_fill_buckets_from_the_end():
    graph, parameters, operations = chain(5)
    found = cuts(graph, parameters, operations[1:], [10, 20])
    assert shown(found, operations) == ([2, 4], [(["p4"], 1), (["p3", "p2"], 2), (["p1", "p0"], 2)])


def test_a_parameter_used_twice_belongs_to_its_first_use():
    graph, parameters, operations = chain(4, [(3, 0)])
    found = cuts(graph, parameters, operations[1:], [10])
    assert shown(found, operations)[1] == [(["p3"], 1), (["p2"], 1), (["p1"], 1), (["p0"], 1)]


def test_a_piece_goes_on_to_where_the_graph_may_be_cut():
    graph, parameters, operations = chain(4)
    found = cuts(graph, parameters, [operations[1]], [10])
    assert shown(found, operations) == ([1], [(["p3", "p2", "p1"], 3), (["p0"], 1)])


def test_one_parameter_may_be_larger_than_a_bucket():
    graph, parameters, operations = chain(2)
    parameters = {p: Item(i.name, 1000, "f32") for p, i in parameters.items()}
    assert shown(cuts(graph, parameters, operations[1:], [10]), operations)[0] == [1]


def test_nothing_is_cut_without_parameters_or_places():
    graph, parameters, operations = chain(3)
    assert shown(cuts(graph, {}, operations[1:], [10]), operations) == ([], [([], 3)])
    assert shown(cuts(graph, parameters, [], [10]), operations)[0] == []


def test_a_limit_may_be_infinite():
    ddp = SimpleNamespace(bucket_bytes_cap=1, bucket_bytes_cap_default=True)
    assert limits_of(ddp, DDPOptions(bucket_cap_mb=float("inf"))) == [sys.maxsize // 2**20 * 2**20]
    assert limits_of(ddp, DDPOptions(bucket_cap_mb=3, first_bucket_cap_mb=0.5)) == [2**19, 3 * 2**20]


def test_in_a_graph_what_is_large_has_a_bucket_of_its_own():
    sizes = [6, 6, 3, 50, 7, 7, 7, 41, 40]
    items = [Item(str(at), size, "f32") for at, size in enumerate(sizes)]
    assert in_graph(items, [10, 20]) == [[0, 1], [2], [3], [4, 5, 6], [7], [8]]
    assert in_graph(items[3:], [10, 20]) == [[0], [1, 2, 3], [4], [5]]
    assert assign(items[3:7], [10, 20]) == [[0], [1, 2, 3]]
    small = items[:3] * 5
    assert in_graph(small, [10, 20]) == assign(small, [10, 20])
    assert in_graph([], [10]) == []


def test_the_table_says_what_is_reduced_together():
    items = [Item(f"layer.{i}", 500_000, "f32") for i in range(4)]
    assert table([(items, 7), ([], 2)]) == [
        "bucket  parameters        MB   ops  from",
        "     1           4     2.000     7  layer.0, layer.1, layer.2, ...",
        "     2           0     0.000     2  (none)",
    ]
