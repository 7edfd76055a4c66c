"""What a program is told about a tensor holds in each call: layouts alternate, and every answer is eager's."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import FRONTEND, Compiled, compile_fn, reset
from hypothesis import given, settings
from hypothesis import strategies as st

from jitney.capture.policy import FORGETFUL

pytestmark = pytest.mark.skipif(FRONTEND != "jitney", reason="what jitney guards")

MANY = settings(max_examples=settings.default.max_examples * 5)
Tensor = torch.Tensor
FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def _in_format(a: Tensor, index: int) -> bool | None:
    rank = {1: 4, 2: 5}.get(index)
    return a.is_contiguous(memory_format=FORMATS[index]) if rank in (None, a.dim()) else None


# What a program may ask of a tensor; whatever else there is must break the graph, and then Python answers.
QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "is_contiguous": lambda a: a.is_contiguous(),
    "channels_last": lambda a: _in_format(a, 1),
    "channels_last_3d": lambda a: _in_format(a, 2),
    "is_non_overlapping_and_dense": lambda a: torch.ops.aten.is_non_overlapping_and_dense(a),
    "has_internal_overlap": lambda a: torch._debug_has_internal_overlap(a),
    "stride": lambda a: (a.stride(), a.stride(-1)),
    "dim_order": lambda a: a.dim_order(),
    "dim_order_ambiguous": lambda a: _raised(lambda: a.dim_order(ambiguity_check=True)),
    "storage_offset": lambda a: a.storage_offset(),
    "storage_size": lambda a: a.untyped_storage().nbytes(),
    "sizes": lambda a: (a.shape, a.numel(), a.nbytes, a.element_size(), a.itemsize, len(a)),
    "is_leaf": lambda a: a.is_leaf,
    "is_view": lambda a: (a._is_view(), a._base is None),
    "requires_grad": lambda a: (a.requires_grad, a.is_inference()),
    "grad_fn": lambda a: (a.grad_fn is None, type(a._grad_fn).__name__),
    "output_nr": lambda a: a.output_nr,
    "retains_grad": lambda a: a.retains_grad,
    "grad": lambda a: (a.grad is None, a._grad is None),
    "grad_dtype": lambda a: a.grad_dtype if a.is_leaf else None,
    "version": lambda a: a._version if not a.is_inference() else None,
    "is_shared": lambda a: a.is_shared(),
    "is_pinned": lambda a: a.is_pinned(),
    "is_zerotensor": lambda a: a._is_zerotensor(),
    "lazy_bits": lambda a: (a.is_conj(), a.is_neg()),
    "layout": lambda a: (a.layout, a.is_sparse, a.device, a.dtype, a.type(), a.storage_type()),
    "symbolic": lambda a: (a._has_symbolic_sizes_strides, a._python_dispatch),
    "contiguous_is_itself": lambda a: a.contiguous() is a,
    "reshape_is_view": lambda a: a.reshape(-1)._is_view(),
}
# Which tensor is asked: the one from outside, or one that the frame has made of it.
OF = {
    "itself": lambda a: a,
    "transposed": lambda a: a.transpose(0, -1),
    "rest": lambda a: a[1:],
    "steps": lambda a: a[..., ::2],
    "unsqueezed": lambda a: a.unsqueeze(0),
    "detached": lambda a: a.detach(),
}


def _raised(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RuntimeError:
        return "ambiguous"


def _program(question: str, of: str) -> Callable[[Tensor], Any]:
    ask, derive = QUESTIONS[question], OF[of]

    def program(a: Tensor) -> Any:
        return ask(derive(a)), a.detach() + 1

    return program


KINDS = ("plain", "leaf", "inner", "retains", "output", "shared", "written", "inference")


def _of_kind(made: Tensor, kind: str) -> Tensor:
    """The same numbers, with another history."""
    if kind == "inference":
        with torch.inference_mode():
            return made.clone(memory_format=torch.preserve_format)
    if kind == "written":
        return made.mul_(1) if not torch._debug_has_internal_overlap(made) == 1 else made
    if kind == "shared":
        return made if made._is_view() else made.share_memory_()
    if kind in ("plain", "output"):
        return torch.stack([made.requires_grad_(), made]).unbind(0)[1] if kind == "output" else made
    made.requires_grad_()
    inner = made.as_strided(made.shape, made.stride(), made.storage_offset()) if kind != "leaf" else made
    if kind == "retains":
        inner.retain_grad()
    return inner


@st.composite
def layouts(draw: st.DrawFn, rank: int, kinds: tuple[str, ...] = KINDS[:1]) -> Tensor:
    """A tensor of that rank: steps of views over a dense one, so that each fact about strides varies."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank), label="sizes")
    spare = [n + draw(st.integers(0, 2)) for n in sizes]
    steps = [draw(st.sampled_from((1, 1, 2))) for _ in sizes]
    order = draw(st.permutations(range(rank)))
    whole = [spare[d] * steps[d] for d in order]
    count = torch.Size(whole).numel()
    made = torch.arange(count + 2.0).narrow(0, draw(st.sampled_from((0, 0, 1, 2))), count).view(whole)
    made = made.permute([order.index(d) for d in range(rank)])
    for d in range(rank):
        first = draw(st.integers(0, spare[d] - sizes[d]))
        made = made.narrow(d, 0, spare[d] * steps[d])[(slice(None),) * d + (slice(None, None, steps[d]),)]
        made = made.narrow(d, first, sizes[d])
    spread = draw(st.sampled_from(("none", "none", "expanded", "overlapping")))
    if spread == "expanded":
        d = draw(st.integers(0, rank - 1))
        made = made.narrow(d, 0, min(1, sizes[d])).expand(sizes) if sizes[d] else made
    elif spread == "overlapping":
        made = torch.arange(64.0).as_strided(sizes, [draw(st.integers(1, 3)) for _ in sizes])
    return _of_kind(made, draw(st.sampled_from(kinds)))


def _agree(program: Callable[[Tensor], Any], tensors: list[Tensor], dynamic: bool | None) -> None:
    reset()
    compiled = compile_fn(program, dynamic=dynamic)
    for tensor in tensors:
        wanted, found = program(tensor), compiled(tensor)
        assert found[0] == wanted[0], (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        assert torch.equal(found[1], wanted[1])


@pytest.mark.filterwarnings("ignore")
@MANY
@given(data=st.data())
def test_answers_about_alternating_layouts_are_eagers(data: st.DataObject) -> None:
    question = data.draw(st.sampled_from(sorted(QUESTIONS)), label="question")
    rank = data.draw(st.integers(1, 5), label="rank")
    tensors = data.draw(st.lists(layouts(rank), min_size=2, max_size=4), label="tensors")
    of = data.draw(st.sampled_from(sorted(OF)), label="of")
    _agree(_program(question, of), tensors, data.draw(st.sampled_from((None, True)), label="dynamic"))


@pytest.mark.filterwarnings("ignore")
@MANY
@given(data=st.data())
def test_answers_about_alternating_histories_are_eagers(data: st.DataObject) -> None:
    question = data.draw(st.sampled_from(sorted(QUESTIONS)), label="question")
    tensors = data.draw(st.lists(layouts(2, KINDS), min_size=2, max_size=4), label="tensors")
    of = data.draw(st.sampled_from(("itself", "detached", "transposed")), label="of")
    _agree(_program(question, of), tensors, None)


def test_contiguity_of_a_third_layout() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    compiled = Compiled(lambda a: (a.is_contiguous(), a + 1))
    for layout in (whole.t(), whole[:, ::2], whole[1:], whole, whole[1:, 1:]):
        compiled(layout)


@pytest.mark.parametrize("dynamic", [None, True])
def test_strides_and_offsets_of_one_and_zero_have_entries_of_their_own(dynamic: bool | None) -> None:
    whole = torch.arange(60.0)
    compiled = Compiled(lambda a: (a.is_contiguous(), a.stride(), a * 2), dynamic=dynamic)
    for step, first in ((2, 2), (3, 5), (1, 0), (1, 3), (2, 0), (0, 1)):
        compiled(whole.as_strided((4, 3), (3 * step, step), first))


def test_a_leaf_that_is_written_to_becomes_an_inner_node() -> None:
    def program(a: Tensor, w: Tensor) -> Any:
        before = a.is_leaf
        a.mul_(w)
        return before, a.is_leaf, a.requires_grad, a * 2

    compiled = Compiled(program)
    for needs in (True, False, True):
        compiled(torch.ones(3), torch.ones(3, requires_grad=needs))


def test_a_tensor_of_zeros_without_memory_runs_in_python() -> None:
    _agree(lambda a: (a._is_zerotensor(), a + 1), [torch.zeros(3), torch._efficientzerotensor(3), torch.zeros(3)], None)


def test_arguments_that_torch_does_not_tell_modes_are_kept() -> None:
    x, y, w = torch.rand(3), torch.rand(3), torch.rand(3)
    compiled = compile_fn(lambda x, y, w: F.l1_loss(x, y, weight=w), fullgraph=True)
    assert torch.equal(compiled(x, y, w), F.l1_loss(x, y, weight=w))

    def raises(a: Tensor) -> Any:
        try:
            return a.dim_order(ambiguity_check=True), a + 1
        except RuntimeError:
            return "ambiguous", a + 1

    both = Compiled(raises)
    for layout in (torch.ones(2, 3), torch.ones(1, 3), torch.ones(3).expand(2, 3)):
        both(layout)


def test_every_function_that_forgets_an_argument_is_known() -> None:
    found = set()
    for module in (F, torch.functional, torch._tensor):
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(function, ast.FunctionDef) or function.name.startswith("_"):
                continue
            given = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "handle_torch_function":
                    handed = [*call.args[2:], *(k.value for k in call.keywords)]  # after the function and whom to ask
                    passed = {n.id for value in handed for n in ast.walk(value) if isinstance(n, ast.Name)}
                    if given - passed:
                        found.add((module.__name__, function.name))
    assert found == FORGETFUL
