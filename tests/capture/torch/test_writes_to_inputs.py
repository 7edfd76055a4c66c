"""Operations that are called for what they do to their arguments."""

import pytest
import torch
from helpers import check, check_made, t


@pytest.mark.parametrize("op", [torch.unbind_copy, lambda x, out: torch.split_copy(x.flatten(), 3, out=out)])
def test_an_operation_that_only_fills_out_is_in_the_graph(op):
    def fn(x, first, second):
        op(x, out=[first, second])
        return first + 1

    check(fn, t(2, 3), torch.zeros(3), torch.zeros(3), graphs=1, breaks=0)


@torch.library.custom_op("jitney_tests::add_one", mutates_args={"x"})
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


@add_one.register_fake
def _(x: torch.Tensor) -> None:
    pass


@pytest.mark.parametrize("op", [torch.ops.jitney_tests.add_one, torch.ops.jitney_tests.add_one.default])
def test_a_custom_operator_without_results_is_in_the_graph(op):
    def fn(x):
        y = x * 2
        op(y)
        op(x)
        return y

    check(fn, t(3))


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.t_(), lambda x: x[0].zero_()])
def test_an_inner_node_of_the_users_autograd_graph_is_written_to(write):
    def make():
        leaf = t(2, 3, requires_grad=True)

        def fn():
            inner = leaf * 3
            write_to(inner)
            return inner

        def write_to(inner):
            write(inner)

        return fn

    check_made(make)


def test_writes_to_an_inner_node_make_one_graph():
    def make():
        leaf = t(2, 3, requires_grad=True)
        inners = [leaf * 3, leaf * 4]

        def fn():
            inner = inners[0]
            inner.mul_(2)
            inner[0] += 1
            return inner * inner

        return fn, lambda: [*inners, *torch.autograd.grad(sum(i.sum() for i in inners), leaf, retain_graph=True)]

    check_made(make, graphs=1, breaks=0, calls=1)


def test_an_operation_that_forgets_out_when_traced_breaks_the_graph():
    def fn(x, out):
        y = x + 1
        torch.linalg.matrix_rank(y, out=out)
        return out + 1

    check(fn, t(3, 3), torch.zeros((), dtype=torch.int64), breaks=1)


def test_out_of_an_operation_without_elements_is_written_to():
    def fn(x, out):
        return torch.sin(x, out=out)

    check(fn, torch.ones(0), torch.ones(0), graphs=1, breaks=0)
