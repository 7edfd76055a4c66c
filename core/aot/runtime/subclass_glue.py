"""The Python around compiled halves of a graph with tensors of subclasses: autograd sees the outer tensors.

Arguments are taken apart for the graph, results are made again of its outputs; likewise tangents and gradients. What
the backward needs of an outer tensor is saved as that tensor: inner ones do not count how often they are written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.aot.memory_overlap import Overlap
from jitney.aot.partition.split import Saved
from jitney.aot.runtime.backward import once
from jitney.aot.runtime.double_backward import refusing
from jitney.aot.runtime.glue import Glue
from jitney.aot.trace.results import Outer, Output, Result
from jitney.aot.trace.subclass_layout import Layout, Template
from jitney.errors import JitneyError
from jitney.torch_compat.subclasses import Wrapping, wraps


def made(wrapping: Wrapping, inner: Sequence[Any], size: Sequence[int], stride: Sequence[int]) -> Any:
    """A tensor of a subclass around outputs of a graph; autograd does not know it yet."""
    value = wrapping.make(inner, torch.Size(size), tuple(stride))
    return value.requires_grad_(False) if value.requires_grad else value


class WrappedGlue(Glue):
    """``Glue`` for a joint graph that has a layout. The graph's own inputs and outputs go by ``layout``'s positions."""

    @property
    def layout(self) -> Layout:
        """Where the tensors of subclasses are."""
        assert self.joint.layout is not None
        return self.joint.layout

    # ------------------------------------------------------------------ the parts of the text

    def build(
        self,
        forward: Callable[..., Sequence[Any]],
        backward: Callable[..., Any] | None,
        eagerly: Callable[..., Sequence[Any]],
    ) -> Callable[..., tuple[Any, ...]]:
        """As ``Glue.build``; ``backward`` takes and gives plain tensors, by the joint graph's positions."""
        if backward is None:
            return super().build(forward, None, eagerly)
        whole = Outside(backward, self.name)
        run = super().build(forward, whole, eagerly)
        space = self.namespace
        whole.complete(space["_saved_of"], self._tangents(), space["_gradients_of"])
        return run

    def _flat(self) -> str:
        return ", ".join(self.layout.paths)

    def _function(self, arguments: str) -> list[str]:
        names, lines = self._kept()
        lines.append(f"def _forward_with(ctx, {arguments}):")
        body = self.scoped(f"r = _forward({self._flat()})", self.autocast)
        body += [f"y{i} = {self._made(t, 'r')}" for i, t in enumerate(self.layout.results)]
        body.append(f"ctx.save_for_backward({', '.join(names)})")
        body.append(f"ctx.numbers = ({''.join(f'{self._place(s)}, ' for s in self.saved if not s.tensor)})")
        body.append("ctx.set_materialize_grads(False)")
        reached = [i for i, v in enumerate(self.inputs) if self._is_inner(v) and not self._unreached(i)]
        if reached:  # what a double backward would go on to
            body.append(f"ctx.inner = ({''.join(f'_ref(a{i}), ' for i in reached)})")
        outputs = self._outputs()
        wanted = self._differentiable()
        plain = [text for i, text in enumerate(outputs) if text != "None" and i not in wanted and self._is_output(i)]
        if plain:
            body.append(f"ctx.mark_non_differentiable({', '.join(plain)})")
        body.append(f"return ({''.join(f'{text}, ' for text in outputs)})")
        lines += [f"    {line}" for line in body]
        tangents = "".join(f"g{i}, " for i in wanted)
        lines.append(f"def _backward_with(ctx, {', '.join(f'g{i}' for i in range(len(outputs)))}):")
        missing = " and ".join(f"g{i} is None" for i in wanted)
        lines.append(f"    if {missing}: return ({'None, ' * len(self.inputs)})")
        lines.append(f"    if _is_grad_enabled(): return _backward.once(ctx, ({tangents}))")
        lines.append(f"    return _backward(_saved(ctx), ctx.numbers, ({tangents}))")
        return lines + self._gradients()

    def _outputs(self) -> list[str]:
        """What the autograd function returns: the graph's outputs but for inner tensors, then tensors of subclasses."""
        inner = {at for t in self.layout.results for at in t.positions()}
        plain = ["None" if i in inner else f"r[{i}]" for i in range(len(self.joint.outputs))]
        return [*plain, *(f"y{i}" for i in range(len(self.layout.results)))]

    def _is_output(self, at: int) -> bool:
        return at >= len(self.joint.outputs) or self._is_tensor(at)

    def _differentiable(self) -> list[int]:
        """Positions among ``_outputs`` that get gradients, plain ones first."""
        inner = {at for t in self.layout.results for at in t.positions()}
        outer = [len(self.joint.outputs) + i for i in self.layout.tangents]
        return [*(at for at in self.joint.tangents if at not in inner), *outer]

    # ------------------------------------------------------------------ what is saved

    def _place(self, saved: Saved) -> str:
        return self.layout.paths[saved.at] if saved.source == "input" else f"r[{saved.at}]"

    def _kept(self) -> tuple[list[str], list[str]]:
        """(what is saved, the function that finds in it what the backward graph takes)."""
        within: dict[str, tuple[str, str]] = {}  # text of an inner tensor -> (text of the outer one, path from there)
        for i, template in enumerate(self.layout.inputs):
            if isinstance(template, Template):
                within.update({text: (f"a{i}", path) for text, path in _both(template, f"a{i}")})
        for i, template in enumerate(self.layout.results):
            within.update({f"r[{at}]": (f"y{i}", path) for at, path in template.paths("{}")})
        names: list[str] = []
        read: list[str] = []
        for saved in self.saved:
            if saved.tensor:
                outer, path = within.get(self._place(saved), (self._place(saved), "{}"))
                if outer not in names:
                    names.append(outer)
                read.append(path.format(f"s[{names.index(outer)}]"))
        return names, ["def _saved_of(s):", f"    return ({''.join(f'{text}, ' for text in read)})"]

    # ------------------------------------------------------------------ tangents and gradients

    def _tangents(self) -> list[Tangent]:
        layout, found = self.layout, []
        for i, expected in layout.tangents.items():
            examples = [self.joint.tangents[at].meta["val"] for at in layout.results[i].positions()]
            found.append(Tangent(expected, examples, self.name))
        return found

    def _gradients(self) -> list[str]:
        texts = []
        for gradient in self.layout.gradients:
            if isinstance(gradient, Template):
                first = next(gradient.positions())
                texts.append(f"None if f[{first}] is None else {self._made(gradient, 'f')}")
            else:
                texts.append("None" if gradient is None else f"f[{gradient}]")
        return ["def _gradients_of(f):", f"    return ({''.join(f'{text}, ' for text in texts)})"]

    def _made(self, template: Template, values: str) -> str:
        """Text that makes a tensor of a subclass of a list's items."""
        self.namespace["_made"] = made
        inner = [self._made(t, values) if isinstance(t, Template) else f"{values}[{t}]" for t in template.inner]
        size, stride = (self._numbers(part, values) for part in (template.size, template.stride))
        parts = "".join(f"{text}, " for text in inner)
        return f"_made({self._object(template.wrapping)}, ({parts}), {size}, {stride})"

    @staticmethod
    def _numbers(sizes: Sequence[Any], values: str) -> str:
        return f"({''.join(f'{values}[{s.at}], ' if isinstance(s, Output) else f'{s}, ' for s in sizes)})"

    # ------------------------------------------------------------------ the call

    def _call(self, arguments: str, trains: bool) -> list[str]:
        if trains:
            return super()._call(arguments, True)
        # Inner tensors may require grad, which nobody sees below the outer one.
        lines = self.scoped(f"r = _forward({self._flat()})", self.autocast, self.joint.ambient_grad)
        return lines + [f"y{i} = {self._made(t, 'r')}" for i, t in enumerate(self.layout.results)]

    def _unreached(self, i: int) -> bool:
        gradients = self.layout.gradients
        if all(gradient is None for gradient in gradients):
            return False
        value = self.inputs[i]
        return isinstance(value, torch.Tensor) and value.requires_grad and gradients[i] is None

    def _overlap(self, arguments: str) -> list[str]:
        written = [f"a{u.input}" for u in self.joint.updates]
        values = [node.meta["val"] for node in self.joint.inputs]
        tensors = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
        if not written or len(tensors) < 2:
            return []
        paths = [self.layout.paths[i] for i in tensors]
        self.namespace["_overlap"] = Overlap([values[i] for i in tensors], [path in written for path in paths])
        return [f"if _overlap.apart(({''.join(f'{p}, ' for p in paths)})) is None: return _eagerly({arguments})"]

    def _value(self, i: int, result: Result) -> str:
        if not isinstance(result, Outer):
            return super()._value(i, result)
        return f"r[{len(self.joint.outputs) + result.at}]" if self.joint.trains else f"y{result.at}"


def _both(template: Template, base: str) -> Iterator[tuple[str, str]]:
    """(text from ``base``, format of the same path) for each innermost tensor."""
    for (_, text), (_, path) in zip(template.paths(base), template.paths("{}"), strict=True):
        yield text, path


@dataclass
class Tangent:
    """Takes the gradient of one result of a subclass apart.

    Args:
        expected: what the backward was traced with.
        examples: FakeTensors for its innermost tensors.
        name: the user's function.
    """

    expected: Template
    examples: Sequence[Any]
    name: str

    def __call__(self, tangent: Any) -> list[Any]:
        """The innermost tensors; None for each without a tangent. Raises ``JitneyError`` for one of another class."""
        if tangent is None:
            return [None] * len(self.examples)
        if tangent.requires_grad:
            tangent = tangent.detach()
        found = list(self._inner(tangent, self.expected))
        for leaf, example in zip(found, self.examples, strict=True):
            sizes = zip(leaf.shape, example.shape, strict=False)
            if leaf.dim() != example.dim() or any(type(b) is int and a != b for a, b in sizes):
                raise self._refusal(tangent, f"its inner tensors have size {list(leaf.shape)}")
        return found

    def _inner(self, tangent: Any, expected: Template) -> Iterator[Any]:
        wrapping = expected.wrapping
        if not wrapping.holds(tangent):
            tangent = self._coerced(tangent, wrapping)
        for part, template in zip(wrapping.inner(tangent), expected.inner, strict=True):
            if isinstance(template, Template):
                yield from self._inner(part, template)
            elif wraps(type(part)):
                raise self._refusal(tangent, f"it holds a {type(part).__qualname__}")
            else:
                yield part

    def _coerced(self, tangent: Any, wrapping: Wrapping) -> Any:
        """As torch's own protocol has it; what comes of it counts as right."""
        coerce = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
        given = () if type(tangent) is wrapping.cls else (wrapping.cls,)
        found = None if coerce is None else coerce(wrapping.context, *given)
        if type(found) is not wrapping.cls:
            text = "in another context" if type(tangent) is wrapping.cls else f"as a {type(tangent).__qualname__}"
            raise self._refusal(tangent, f"it comes {text}")
        return found

    def _refusal(self, tangent: Any, reason: str) -> JitneyError:
        return JitneyError(
            f"{self.name} was compiled for a gradient that is a {self.expected.wrapping.cls.__qualname__} like its "
            f"result, and {reason}",
            phase="backward",
            hint="give a gradient like the result, or compile with backend='eager'",
        )


class Outside:
    """The backward as the engine calls it, with outer tensors.

    Args:
        backward: the compiled backward, on plain tensors.
        name: the user's function.
    """

    def __init__(self, backward: Callable[..., Any], name: str) -> None:
        self.backward = backward
        self.name = name

    def complete(
        self, saved: Callable[[Any], Any], tangents: Sequence[Tangent], gradients: Callable[[Any], tuple[Any, ...]]
    ) -> None:
        """Take the functions that the glue has written."""
        self.saved = saved
        self.tangents = tangents
        self.gradients = gradients

    def __call__(self, saved: Sequence[Any], numbers: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients, one per input of the captured graph."""
        plain = list(tangents[: len(tangents) - len(self.tangents)])
        for tangent in plain:
            if tangent is not None and wraps(type(tangent)):
                raise self._refusal(tangent)
        for take, tangent in zip(self.tangents, tangents[len(plain) :], strict=True):
            plain += take(tangent)
        found = self.backward(self.saved(saved), numbers, plain)
        if None in [leaf if leaf is None else 0 for leaf in plain]:  # a gradient may then be a tangent, or another one
            found = tuple(g.clone() if isinstance(g, torch.Tensor) else g for g in found)
        return self.gradients(found)

    def once(self, ctx: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
        """See ``backward.once``."""
        return once(self, self.name, ctx, tangents, refusing("it has tensors of a subclass"))

    def _refusal(self, tangent: Any) -> JitneyError:
        return JitneyError(
            f"{self.name} was compiled for a gradient that is a plain tensor like its result, and it comes as a "
            f"{type(tangent).__qualname__}",
            phase="backward",
            hint="give a gradient like the result, or compile with backend='eager'",
        )
