"""The Python around compiled halves, written for each graph: autograd function, writes to inputs, views of inputs.

The text can be printed (artefact ``aot_wrapper``) and stepped through. There are no loops over flags at call time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from jitney.aot.memory_overlap import Overlap
from jitney.aot.partition.split import Saved
from jitney.aot.runtime.assembly import assemble
from jitney.aot.runtime.backward import own, saved_and_kept_of, saved_of, underivable
from jitney.aot.runtime.cut import Cut
from jitney.aot.runtime.double_backward import DoubleBackward, keep, refusing
from jitney.aot.runtime.handed_out import HandedOut
from jitney.aot.runtime.replay_safety import plan
from jitney.aot.runtime.result_lines import ResultLines
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import Argument, Constant, Output, Result, Step, Update
from jitney.torch_compat import torch_private
from jitney.torch_compat.rng_state import RandomStates
from jitney.torch_compat.views import is_restricted


@dataclass
class Glue:
    """Writes the function that stands for a captured graph.

    Args:
        joint: what was traced.
        inputs: the FakeTensors and symbols that the graph was traced with.
        saved: where the forward finds what the backward needs.
        name: the user's function.
        autocast: was autocast on where the graph begins?
        filled: outputs that are inputs, which the forward has written to itself.
        failed: ``failed(error, arguments)`` is called if the forward raises before anything was written; its results
            are the function's.
        draws: the devices whose random generators are put back before that.
        started: called at each run of a forward that has a backward, for somebody who watches (``compiler.Watch``).
        again: how the graph runs once more, for derivatives of its gradients.
        cut: its backward where somebody looks at what arrives at results that others are computed from; None if there
            are none.
    """

    joint: Joint
    inputs: Sequence[Any]
    saved: Sequence[Saved]
    name: str
    autocast: bool
    namespace: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    filled: frozenset[int] = frozenset()
    failed: Callable[..., Sequence[Any]] | None = None
    draws: Sequence[str] = ()
    started: Callable[[], Any] | None = None
    again: DoubleBackward = field(default_factory=lambda: refusing("it has no backward"))
    cut: Cut | None = None

    def __post_init__(self) -> None:
        self.namespace.update(_torch_no_grad=torch.no_grad, _enable_grad=torch.enable_grad)
        self.namespace.update(_ref=weakref.ref, _is_grad_enabled=torch.is_grad_enabled, _saved=saved_of)
        self.namespace.update(_saved_and_kept=saved_and_kept_of, _keep=keep, _own=own, _underivable=underivable)
        self.namespace.update(_increment_version=torch_private.increment_version)
        self.namespace.update(_set_version=torch_private.set_version_counters)
        self.namespace.update(_no_autocast=torch_private.DisableAutocast, _foreach_copy_=torch_private.foreach_copy)

    # ------------------------------------------------------------------ the parts of the text

    def build(
        self,
        forward: Callable[..., Sequence[Any]],
        backward: Callable[..., Any] | None,
        eagerly: Callable[..., Sequence[Any]],
    ) -> Callable[..., tuple[Any, ...]]:
        """The function: the captured graph's inputs in, its outputs out.

        Args:
            forward: the compiled forward, or the whole graph for inference.
            backward: ``backward(saved tensors, numbers, tangents)``: gradients, one per input; None for inference.
            eagerly: the captured graph as it is, for arguments that share memory.
        """
        names = [f"a{i}" for i in range(len(self.inputs))]
        arguments = ", ".join(names)
        space = self.namespace
        space.update(_forward=forward, _eagerly=eagerly)
        lines: list[str] = []
        if backward is not None:
            lines += self._function(arguments)
        lines.append(f"def _run({arguments}):")
        body = self._overlap(arguments) + self._forbidden(arguments)
        body += self._without_derivative(arguments) if backward is not None else []
        for i in sorted(self.numbered):  # autograd remembers the version of what is saved
            writes = next(u.writes for u in self.joint.updates if u.input == i)
            body += [self.increment([f"a{i}"] * writes), f"n{i} = a{i}._version"]
        body += self._tried(self._call(arguments, backward is not None), arguments)
        for update in self.joint.updates:
            if update.geometry is not None:
                body += self._reshaped(update)
        body += ResultLines(self, [] if self.cut is None else self.cut.links(self.again)).write()
        values = "".join(f"{self._value(i, result)}, " for i, result in enumerate(self.joint.results))
        for i, (target, args) in enumerate(self.joint.final_state):
            space[f"_state{i}"] = target
            body.append(f"_state{i}(*{self._object(args)})")
        body.append(f"return ({values})")
        lines += [f"    {line}" for line in body]
        self.source = "\n".join(lines) + "\n"
        if backward is not None:
            space["_backward"] = backward
        return assemble(self.source, self.name, space)

    def _reshaped(self, update: Update) -> list[str]:
        """Lines that give an input its new shape, which the version counter sees as a write."""
        assert update.geometry is not None
        size, stride = map(self.text, update.geometry)
        ambient, seen = self.joint.ambient_grad, update.tracked
        line = f"a{update.input}.as_strided_({size}, {stride})"
        lines = self.scoped(line, False, ambient and not seen, seen and not ambient)
        if update.input in self.numbered:
            lines.append(f"_set_version((a{update.input},), (n{update.input},))")
        return lines

    @property
    def numbered(self) -> frozenset[int]:
        """Inputs that are saved, whose shape alone changes: they get their version before the forward runs."""
        saved = {s.at for s in self.saved if s.source == "input"}
        return frozenset(u.input for u in self.joint.updates if u.at is None and u.input in saved)

    @staticmethod
    def increment(names: Sequence[str]) -> str:
        """The call by which version counters see writes, one for each time that a tensor is named."""
        return f"_increment_version(({''.join(f'{name}, ' for name in names)}))"

    def _versions(self) -> list[str]:
        """Lines by which results count the writes to them."""
        names = [f"r[{at}]" for at, count in self.joint.versions.items() for _ in range(count)]
        return [self.increment(names)] if names else []

    def _function(self, arguments: str) -> list[str]:
        """The autograd function's two methods."""
        count = len(self.joint.outputs)
        tensors = [self._place(s) for s in self.saved if s.tensor]
        numbers = [self._place(s) for s in self.saved if not s.tensor]
        plain = [i for i in range(count) if i not in self.joint.tangents and self._is_tensor(i)]
        lines = [f"def _forward_with(ctx, {arguments}):"]
        body = self.scoped(f"r = _forward({arguments})", self.autocast)
        body.append(f"if {' or '.join(f'r[{i}]._is_view()' for i in range(count) if self._is_tensor(i))}: r = _own(r)")
        body += self._aliases()
        body += self._versions()
        body.append(f"ctx.save_for_backward({', '.join(tensors)})")
        body.append(f"ctx.numbers = ({''.join(f'{n}, ' for n in numbers)})")
        body.append("ctx.set_materialize_grads(False)")
        if self.cut is not None:
            self.namespace["_HandedOut"] = HandedOut
            body.append(f"ctx.handed = _HandedOut({len(self.joint.intermediates)})")
        if self.started is not None:
            self.namespace["_started"] = self.started
            body.append("ctx.watched = _started()")
        self._plan()
        body += self._for_again()
        inner = [i for i, v in enumerate(self.inputs) if self._is_inner(v) and not self._unreached(i)]
        if inner and self.again.reason:  # what the engine goes on to from gradients that cannot be differentiated
            body.append(f"ctx.inner = ({''.join(f'_ref(a{i}), ' for i in inner)})")
        if plain:
            body.append(f"ctx.mark_non_differentiable({', '.join(f'r[{i}]' for i in plain)})")
        body.append(f"return ({''.join(f'r[{i}], ' for i in range(count))})")
        lines += [f"    {line}" for line in body]
        grads = ", ".join(f"g{i}" for i in range(count))
        tangents = "".join(f"g{i}, " for i in self.joint.tangents)
        lines.append(f"def _backward_with(ctx, {grads}):")
        missing = " and ".join(f"g{i} is None" for i in self.joint.tangents)
        lines.append(f"    if {missing}: return ({'None, ' * len(self.inputs)})")
        how = "(" if self.started is None else ".of_run(ctx.watched, "
        saved = "_saved_and_kept" if self._inputs_found("kept") else "_saved"
        if self.cut is not None:
            self.namespace.update(_below=self.cut.below, _again_below=self.cut.again_below(self.again))
            lines.append("    if ctx.handed.cut():")
            lines.append(f"        saved = ctx.handed.take({saved}, ctx, _below, ({tangents}))")
            lines.append(f"        if _is_grad_enabled(): return _below.once(ctx, ({tangents}), _again_below, saved)")
            lines.append(f"        return _below{how}saved, ctx.numbers, ({tangents}))")
        lines.append(f"    if _is_grad_enabled(): return _backward.once(ctx, ({tangents}), _again)")
        lines.append(f"    return _backward{how}{saved}(ctx, _backward, ({tangents})), ctx.numbers, ({tangents}))")
        return lines

    def _aliases(self) -> list[str]:
        """Lines that put outputs into the memory of arguments, where the autograd function gives such back.

        Views of anything that it gives back are those to which autograd forbids to write.
        """
        restricted = sorted(self.joint.restricted & self.joint.tangents.keys())
        lines = ["r = [*r]"] if self.joint.aliases or restricted else []
        lines += [f"r[{at}] = r[{at}].view_as(r[{at}])" for at in restricted]
        for at, view in self.joint.aliases.items():
            assert isinstance(view.base, Argument)
            text = f"a{view.base.at}"
            for step in view.steps:
                text = self.step(text, step) + ("" if step.item is None else f"[{step.item}]")
            lines.append(f"r[{at}] = {text}")
        return lines

    def _plan(self) -> None:
        """Say where a second derivative finds the inputs."""
        if any(isinstance(v, torch.Tensor) and v.is_inference() for v in self.inputs):
            self.again = refusing("an input of it was made in inference mode, where nobody counts writes")
        if not self.again.reason:
            tensors = [s for s in self.saved if s.tensor]
            saved = {s.at: i for i, s in enumerate(tensors) if s.source == "input"}
            found = plan(self.joint, self.inputs, saved, self.again.unread, self._unreached)
            self.again = replace(self.again, inputs=found)
        self.namespace["_again"] = self.again

    def _inputs_found(self, *how: str) -> list[int]:
        return [i for i, found in enumerate(self.again.inputs) if found.how in how]

    def _for_again(self) -> list[str]:
        """What the autograd function notes for a second derivative: numbers, weak references, versions."""
        parts = {
            "given": [f"a{i}, " for i in self._inputs_found("number")],
            "alive": [f"_ref(a{i}), " for i in self._inputs_found("alive")],
            "unread": [f"(_ref(a{i}), a{i}.shape, a{i}.stride()), " for i in self._inputs_found("unread")],
            "written": [f"_ref(a{i}), " for i in self._inputs_found("written")],
            "versions": [f"a{i}._version, " for i in self._inputs_found("leaf", "alive")],
        }
        return [f"ctx.{name} = ({''.join(values)})" for name, values in parts.items() if values]

    def _place(self, saved: Saved) -> str:
        if saved.source == "input":
            return f"a{saved.at}.detach()" if saved.at in self.numbered else f"a{saved.at}"  # it keeps the old shape
        return f"r[{saved.at}]"

    def _is_tensor(self, at: int) -> bool:
        node = self.joint.outputs[at]
        return hasattr(node, "meta") and isinstance(node.meta["val"], torch.Tensor)

    @staticmethod
    def scoped(line: str, *conditions: Any) -> list[str]:
        """The line, inside the context managers whose condition holds: no autocast, no_grad, enable_grad."""
        names = ("_no_autocast()", "_torch_no_grad()", "_enable_grad()")
        scopes = [name for name, wanted in zip(names, conditions, strict=False) if wanted]
        return [f"with {', '.join(scopes)}:", f"    {line}"] if scopes else [line]

    def _tried(self, lines: list[str], arguments: str) -> list[str]:
        if self.failed is None:
            return lines
        self.namespace["_failed"] = self.failed
        handler = ["except Exception as error:", f"    return _failed(error, ({arguments},))"]
        before: list[str] = []
        if self.draws:
            self.namespace["_random_states"] = RandomStates
            before.append(f"drawn = _random_states({list(self.draws)})")
            handler.insert(1, "    drawn.failed(error)")
        return [*before, "try:", *(f"    {line}" for line in lines), *handler]

    def _call(self, arguments: str, trains: bool) -> list[str]:
        if trains:
            given = ", ".join(map(self._given, range(len(self.inputs))))
            kept = ", ".join(f"a{i}" for i in self._inputs_found("kept"))
            call = f"r = _apply({given})"
            if kept:
                call += f"; r[{next(iter(self.joint.tangents))}].grad_fn.kept = _keep({kept})"
            if self.cut is not None:
                call += f"; handed = r[{next(iter(self.joint.tangents))}].grad_fn.handed; r = [*r]"
            return self.scoped(call, False, False, not self.joint.ambient_grad)
        quiet = self.joint.ambient_grad and any(isinstance(v, torch.Tensor) and v.requires_grad for v in self.inputs)
        located = "_overlap" in self.namespace and hasattr(self.namespace["_forward"], "located")
        call = f"_forward.located(p, {arguments})" if located else f"_forward({arguments})"
        return self.scoped(f"r = {call}", self.autocast, quiet) + self._versions()

    def _given(self, i: int) -> str:
        """An input as autograd sees it."""
        return f"a{i}.detach()" if self._unreached(i) else f"a{i}"

    @staticmethod
    def _is_inner(value: Any) -> bool:
        """May it be an inner node of the user's autograd graph? Parameters are leaves."""
        tensor = isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
        return tensor and bool(value.requires_grad)

    def _unreached(self, i: int) -> bool:
        """Does an input require grad and get none? Then the engine must not go on through it, as in eager.

        Unless none of them gets one: results that depend on them require grad all the same.
        """
        if all(gradient is None for gradient in self.joint.gradients):
            return False
        value = self.inputs[i]
        return isinstance(value, torch.Tensor) and value.requires_grad and self.joint.gradients[i] is None

    def _overlap(self, arguments: str) -> list[str]:
        """Arguments that share memory, one of them written to: a functional graph cannot say what happens then."""
        written = [u.input for u in self.joint.updates]
        tensors = [i for i, v in enumerate(self.inputs) if isinstance(v, torch.Tensor)]
        loose = [i for i in written if any(isinstance(n, torch.SymInt) for n in _geometry(self.inputs[i]))]
        if not written or (len(tensors) < 2 and not loose):
            return []
        self.namespace["_overlap"] = Overlap([self.inputs[i] for i in tensors], [i in written for i in tensors])
        apart = f"p = _overlap.apart(({''.join(f'a{i}, ' for i in tensors)}))"
        return [apart, f"if p is None: return _eagerly({arguments})"]

    def _forbidden(self, arguments: str) -> list[str]:
        """Views which autograd forbids to write to: the operator that reads them next raises."""
        views = [u for u in self.joint.updates if not u.silent and self._may_be_view(self.inputs[u.input])]
        written = [(u.input, u.tracked) for u in views if u.tracked or self.inputs[u.input].requires_grad]
        self.namespace["_restricted"] = is_restricted
        asked = " or ".join(f"_restricted(a{i}, {tracked})" for i, tracked in written)
        return [f"if {asked}: return _eagerly({arguments})"] if written else []

    @staticmethod
    def _may_be_view(value: Any) -> bool:
        """A leaf that requires grad is none of anything that does."""
        return not (value.requires_grad and value.is_leaf)

    def _without_derivative(self, arguments: str) -> list[str]:
        """Arguments behind which the engine raises if it comes there, for no gradient too."""
        inner = [i for i, v in enumerate(self.inputs) if self._is_inner(v) and not self._unreached(i)]
        asked = " or ".join(f"_underivable(a{i})" for i in inner)
        return [f"if {asked}: return _eagerly({arguments})"] if inner else []

    # ------------------------------------------------------------------ results

    def step(self, base: str, step: Step) -> str:
        """The call of one view operator on ``base``."""
        name = "_" + str(step.target).replace(".", "_")
        self.namespace[name] = step.target
        parts = [base, *map(self.text, step.args), *(f"{k}={self.text(v)}" for k, v in step.kwargs)]
        return f"{name}({', '.join(parts)})"

    def text(self, value: Any) -> str:
        """What stands for a value: an output of the graph, a plain value, or an object by a name."""
        if isinstance(value, Output):
            return f"r[{value.at}]"
        if isinstance(value, tuple):
            return f"[{', '.join(map(self.text, value))}]"
        if value is None or type(value) in (int, float, bool):
            return repr(value)
        return self._object(value)

    def _object(self, value: Any) -> str:
        name = f"_c{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def _value(self, i: int, result: Result) -> str:
        match result:
            case Constant(value):
                return self.text(value) if not isinstance(value, tuple) else self._object(value)
            case Output(at):
                return f"r[{at}]"
            case Argument(at):
                return f"a{at}"
            case _:
                return f"v{i}"


def _geometry(value: Any) -> tuple[Any, ...]:
    return (*value.shape, *value.stride())
