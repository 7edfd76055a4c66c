"""DTensor on a mesh of one process, through ``aot_eager``: the same as eager, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from helpers import Observed, compile_fn, observe
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

pytestmark = [
    pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sharded(mesh: DeviceMesh, *shape: int, seed: int = 0, by: Any = None, grad: bool = True) -> Any:
    return distribute_tensor(t(*shape, seed=seed), mesh, [by or Shard(0)]).requires_grad_(grad)


def picture(value: Any) -> Any:
    if isinstance(value, DTensor):
        local = value._local_tensor
        facts = (value.placements, value.device_mesh, tuple(value.shape), value.stride(), value.dtype, value.is_leaf)
        return (*facts, value.requires_grad, local.tolist(), local.stride())
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [picture(v) for v in value] if isinstance(value, (tuple, list)) else value


def same(fn: Any, make: Callable[[], tuple[Any, ...]], kept: str | None = None, breaks: int = 0) -> Observed:
    compiled = compile_fn(fn, backend="aot_eager")
    with observe() as seen:
        for _ in range(2):
            sides = []
            for side in (fn, compiled):
                args = make()
                result = side(*args)
                results = result if isinstance(result, tuple) else (result,)
                pictures = [picture(result)]
                total: Any = sum(r.square().sum() for r in results if r.requires_grad)
                if isinstance(total, torch.Tensor):
                    total.backward()
                sides.append([*pictures, picture([a.grad for a in args if a.is_leaf]), picture(args)])
            assert sides[0] == sides[1]
    assert len(seen.breaks) == breaks, seen.breaks
    assert not seen.skips, seen.skips
    if kept is None:
        assert not seen.kept, seen.kept
    else:
        assert any(kept in reason for reason in seen.kept), seen.kept
    return seen


PROGRAMS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, y: (x * y + 1).tanh(),
    "linear": lambda x, y: F.linear(x, y).relu(),
    "sum": lambda x, y: (x * y).sum(0),
    "several": lambda x, y: (x + y, x.exp(), y * 2),
    "softmax": lambda x, y: F.softmax(x, -1) @ y.t(),
    "norm": lambda x, y: F.layer_norm(x, (4,)) * y,
    "view": lambda x, y: (x * y).t().reshape(4, 4),
    "in place": lambda x, y: (x * 2).add_(y).mul_(2),
    "detached": lambda x, y: x.detach() * y,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("by", [Shard(0), Shard(1), Replicate()])
def test_program(mesh: DeviceMesh, name: str, by: Any) -> None:
    same(PROGRAMS[name], lambda: (sharded(mesh, 4, 4, by=by), sharded(mesh, 4, 4, seed=1, by=by)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_without_grad(mesh: DeviceMesh, name: str) -> None:
    with torch.no_grad():
        same(PROGRAMS[name], lambda: (sharded(mesh, 4, 4), sharded(mesh, 4, 4, seed=1)))


def test_other_placements_compile_again(mesh: DeviceMesh) -> None:
    compiled = compile_fn(lambda x: x * 2, backend="aot_eager")
    with observe() as seen:
        for by in (Shard(0), Replicate(), Shard(0)):
            x = sharded(mesh, 4, 4, by=by)
            out = compiled(x)
            assert out.placements == (by,)
            out.sum().backward()
            assert x.grad.placements == (by,)
    assert len(seen.graphs) == 2


def test_partial_result(mesh: DeviceMesh) -> None:
    def run(fn: Any) -> Any:
        x = sharded(mesh, 4, 4)
        out = fn(x)
        assert isinstance(out.placements[0], Partial)
        out.full_tensor().backward()
        return picture([out, x.grad])

    def program(x: Any) -> Any:
        return (x * 2).sum()

    assert run(program) == run(compile_fn(program, backend="aot_eager"))


def test_another_size_compiles_again(mesh: DeviceMesh) -> None:
    compiled = compile_fn(lambda x: (x * 2).relu(), backend="aot_eager")
    with observe() as seen:
        for size in (2, 3, 4):
            x, y = sharded(mesh, size, 4), sharded(mesh, size, 4)
            found, expected = compiled(x), (y * 2).relu()
            assert picture(found) == picture(expected)
    assert len(seen.graphs) == 3
    assert not seen.kept


def test_module_with_distributed_parameters(mesh: DeviceMesh) -> None:
    def run(compiled: bool) -> Any:
        torch.manual_seed(0)
        module: Any = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        for layer in (module[0], module[2]):
            for name, parameter in [*layer.named_parameters()]:
                layer.register_parameter(
                    name, torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Replicate()]))
                )
        call = compile_fn(module, backend="aot_eager") if compiled else module
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        losses = []
        for step in range(3):
            loss = call(sharded(mesh, 6, 4, seed=step, grad=False)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(picture(loss.detach()))
        return losses, picture([*module.parameters()])

    with observe() as seen:
        assert run(True) == run(False)
    assert not seen.kept
    assert not seen.breaks


def test_own_attributes_and_methods_break(mesh: DeviceMesh) -> None:
    def program(x: Any) -> Any:
        y = x * 2
        z = y.to_local() + 1
        return z * len(y.placements)

    seen = same(program, lambda: (sharded(mesh, 4, 4),), breaks=3)
    assert "DTensor.to_local is the subclass's own" in seen.breaks[0]


def test_made_inside_breaks(mesh: DeviceMesh) -> None:
    def program(x: torch.Tensor) -> Any:
        return DTensor.from_local(x * 2, mesh, [Shard(0)]) * 3

    compiled = compile_fn(program, backend="aot_eager")
    assert picture(compiled(t(4, 4))) == picture(program(t(4, 4)))


def test_input_written(mesh: DeviceMesh) -> None:
    def program(x: Any) -> Any:
        x.add_(1)
        return x * 2

    same(program, lambda: (sharded(mesh, 4, 4, grad=False),), kept="is written to")


def test_tangent_with_other_placements(mesh: DeviceMesh) -> None:
    def run(fn: Any) -> Any:
        x = sharded(mesh, 4, 4)
        fn(x).backward(sharded(mesh, 4, 4, seed=3, by=Replicate(), grad=False))
        return x.grad.full_tensor().tolist()

    def program(x: Any) -> Any:
        return x.exp() * 2

    assert run(program) == run(compile_fn(program, backend="aot_eager"))


def test_mixing_with_plain_tensors_fails_as_in_eager(mesh: DeviceMesh) -> None:
    compiled = compile_fn(lambda x, y: x + y, backend="aot_eager")
    with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
        compiled(sharded(mesh, 4, 4), t(4, 4))


def test_two_dimensional_mesh(mesh: DeviceMesh) -> None:
    both = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model"))

    def make() -> tuple[Any, ...]:
        x = distribute_tensor(t(4, 4), both, [Shard(0), Replicate()]).requires_grad_()
        return x, distribute_tensor(t(4, 4, seed=1), both, [Replicate(), Shard(0)]).requires_grad_()

    same(lambda x, w: F.linear(x, w).relu(), make)
