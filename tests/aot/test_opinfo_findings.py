"""What the OpInfo samples brought to light."""

import torch
from aot.sides import same
from helpers import t


def test_an_overwritten_input_that_the_backward_reads_is_kept():
    def make():
        leaf, other = t(2, 3, requires_grad=True), t(2, 3, requires_grad=True)
        return leaf * 2, other

    same(lambda x, y: x.hypot_(y), make)
    same(lambda x, y: (x.hypot_(y), y.sin()), make)


def test_no_gradient_through_an_inner_node_stays_none():
    def make():
        return (t(2, 3, requires_grad=True) * 2,)

    same(lambda x: torch.linalg.vector_norm(x, 0), make)


def test_an_in_place_operator_that_functionalization_does_not_know_is_kept():
    same(lambda x: x.polygamma_(1), lambda: (torch.tensor([0.5, 1.5]),), kept="polygamma_")


def test_out_of_a_batch_norm_that_writes_statistics_is_kept():
    def fn(x, mean, var, out, save_mean, save_rstd):
        return torch._native_batch_norm_legit(
            x, None, None, mean, var, True, 0.1, 1e-5, out=(out, save_mean, save_rstd)
        )

    def make():
        return t(4, 4), torch.zeros(4), torch.ones(4), torch.zeros(4, 4), torch.zeros(4), torch.zeros(4)

    same(fn, make, kept="mixes up")
