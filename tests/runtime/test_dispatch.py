"""Compiled functions inside of what transforms functions: torch.func, forward-mode AD, torch.autograd.functional.

They see the program itself; a backward that is given a batch of gradients runs operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwd
from helpers import compile_fn, t
from torch.autograd import functional

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # torch's own forward-mode formulas
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # of vmap's, where it has no rule
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),  # of linearize's
]

Program = Callable[..., torch.Tensor]
Transform = Callable[[Program, torch.Tensor, torch.Tensor], Any]


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).exp().transpose(0, 1)


def broken(x: torch.Tensor) -> torch.Tensor:
    import jitney

    y = x.sin() * x
    jitney.graph_break()
    return y.exp().transpose(0, 1)


def dual(f: Program, x: torch.Tensor, v: torch.Tensor) -> Any:
    with fwd.dual_level():
        value, tangent = fwd.unpack_dual(f(fwd.make_dual(x, v)))
        return value.clone(), tangent.clone()


def dual_that_requires_grad(f: Program, x: torch.Tensor, v: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    with fwd.dual_level():
        tangent = fwd.unpack_dual(f(fwd.make_dual(x, v))).tangent
        return tangent.detach().clone(), torch.autograd.grad(tangent.sum(), x)


def batch_of_gradients(f: Program, x: torch.Tensor, v: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    out = f(x)
    given = torch.stack([v.transpose(0, 1), v.transpose(0, 1) * 2])
    return torch.autograd.grad(out, x, given, is_grads_batched=True)


def vmap_of_a_backward(f: Program, x: torch.Tensor, v: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    out = f(x)

    def pull(g: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(out, x, g, retain_graph=True)[0]

    given = torch.stack([v, v * 2])
    return torch.vmap(pull, in_dims=2)(given.permute(2, 1, 0)), pull(v.t())


def dual_of_a_gradient(f: Program, x: torch.Tensor, v: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    out = f(x)
    with fwd.dual_level():
        given = fwd.make_dual(v.transpose(0, 1), v.transpose(0, 1) * 2)
        (gradient,) = torch.autograd.grad(out, x, given)
        return tuple(part.clone() for part in fwd.unpack_dual(gradient))


TRANSFORMS: dict[str, Transform] = {
    "dual numbers of a gradient": dual_of_a_gradient,
    "dual numbers": dual,
    "dual numbers of a tensor that requires grad": dual_that_requires_grad,
    "a batch of gradients": batch_of_gradients,
    "vmap of a backward": vmap_of_a_backward,
    "vmap": lambda f, x, v: torch.vmap(f)(torch.stack([x, v])),
    "vmap of grad": lambda f, x, v: torch.vmap(torch.func.grad(lambda a: f(a).sum()))(torch.stack([x, v])),
    "jvp": lambda f, x, v: torch.func.jvp(f, (x,), (v,)),
    "vjp": lambda f, x, v: torch.func.vjp(f, x)[1](v.t()),
    "linearize": lambda f, x, v: torch.func.linearize(f, x)[1](v),
    "jacfwd": lambda f, x, v: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x, v: torch.func.hessian(lambda a: f(a).sum())(x),
    "functional.jacobian": lambda f, x, v: functional.jacobian(f, x),
    "functional.jacobian of a batch": lambda f, x, v: functional.jacobian(f, x, vectorize=True),
    "functional.jacobian forward": lambda f, x, v: functional.jacobian(f, x, vectorize=True, strategy="forward-mode"),
    "functional.vjp": lambda f, x, v: functional.vjp(f, x, v.t().contiguous()),
    "gradcheck": lambda f, x, v: torch.autograd.gradcheck(
        f, x.double().requires_grad_(), check_forward_ad=True, check_batched_grad=True
    ),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_transforms_a_compiled_function_gives_the_same(name: str, backend: str) -> None:
    x, v = t(2, 3), t(2, 3) + 1
    compiled = compile_fn(program, backend=backend)
    wanted = TRANSFORMS[name](program, x, v)
    for _ in range(2):  # the second time with graphs for plain tensors
        torch.testing.assert_close(TRANSFORMS[name](compiled, x, v), wanted)
        for leaf in (x, x.clone().requires_grad_()):
            torch.testing.assert_close(compiled(leaf), program(leaf))


@pytest.mark.parametrize("name", ["dual numbers", "a batch of gradients", "vmap"])
def test_so_does_a_function_with_a_graph_break(name: str) -> None:
    x, v = t(2, 3), t(2, 3) + 1
    compiled = compile_fn(broken, backend="llvm_cpu")
    for _ in range(2):
        torch.testing.assert_close(TRANSFORMS[name](compiled, x, v), TRANSFORMS[name](program, x, v))
        torch.testing.assert_close(compiled(x), program(x))


def test_a_tangent_that_a_compiled_function_finds_by_itself_is_not_dropped() -> None:
    x, v = t(2, 3), t(2, 3) + 1
    with fwd.dual_level():
        held = fwd.make_dual(x, v)
        compiled = compile_fn(lambda: program(held), backend="llvm_cpu")
        torch.testing.assert_close(fwd.unpack_dual(compiled()).tangent, fwd.unpack_dual(program(held)).tangent)
    plain = compiled()
    torch.testing.assert_close(plain, program(x))
    with fwd.dual_level():
        fwd.unpack_dual(compiled())


def test_random_numbers_under_vmap_are_as_its_mode_says() -> None:
    compiled = compile_fn(lambda: torch.rand(3), backend="llvm_cpu")
    compiled()
    for mode in ("same", "different"):
        found = torch.vmap(lambda x: x * 0 + compiled(), randomness=mode)(t(4, 3))  # noqa: B023
        assert bool((found == found[0]).all()) == (mode == "same")
    with pytest.raises(RuntimeError, match="random"):
        torch.vmap(lambda x: x + compiled())(t(4, 3))
