"""What is known of one DDP module and what is compiled of it: its buckets, and how its gradients are reduced.

DDP's own forward always runs as it is. In mode ``split`` nothing else is needed: its reducer's hooks fire piece by
piece. In mode ``in_graph`` the reducer is told to stay out (as in ``no_sync``), and each step reduces exactly the
buckets on which the ranks have agreed, in their order: within the backward graph, or, where a step is not clean
(gradients from before, several graphs), after the backward. So ranks that differ in that still meet in the same
collectives.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed, fx

from jitney.backends import Argument, CompileRequest
from jitney.errors import JitneyError
from jitney_ddp_bucketing import private
from jitney_ddp_bucketing.buckets import Item, assign, in_graph, limits_of
from jitney_ddp_bucketing.in_graph import Slot, Variant
from jitney_ddp_bucketing.options import DDPOptions
from jitney_ddp_bucketing.ranks import Ranks
from jitney_ddp_bucketing.steps import NO_PASS, PLAIN, Step, has_hooks, leaves, reducer_waits

PHASE = "ddp"
_numbers = itertools.count()  # DDP modules are compiled in the same order on all ranks


def _refuse(ddp: Any) -> None:
    if not distributed.is_initialized():
        raise JitneyError(
            "a DDP module is compiled without a process group",
            hint="torch.distributed.init_process_group() before, and destroy_process_group() after all that uses it",
            phase=PHASE,
        )
    if ddp.mixed_precision is not None:
        raise JitneyError(
            "DDP's mixed_precision= casts parameters in hooks and cannot be compiled",
            hint="torch.autocast around the forward does the same and is compiled",
            phase=PHASE,
        )
    if not private.uses_reducer(ddp):
        raise JitneyError(
            "a DDP module without its C++ reducer (torch._dynamo's python_reducer, or all parameters delayed) cannot "
            "be compiled by jitney",
            hint="torch._dynamo.config.optimize_ddp as it is by default; no delay_all_reduce_named_params",
            phase=PHASE,
        )


class State:
    """A DDP module in mode ``split``, ``in_graph`` or ``off``.

    Args:
        ddp: the module; not kept alive.
        options: what the user asked for.
    """

    def __init__(self, ddp: Any, options: DDPOptions) -> None:
        _refuse(ddp)
        self.options = options
        self.ddp = weakref.ref(ddp)
        self.limits = limits_of(ddp, options)
        self.group = ddp.process_group
        named = private.parameters_of(ddp)
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.at = {id(parameter): i for i, parameter in enumerate(self.parameters)}
        self.items = [Item.of(*pair) for pair in named]
        self.ranks = Ranks(self.group, f"{options.ddp}/{self.names}")
        self.buckets: list[list[int]] = []  # positions among the parameters, in the order in which they are reduced
        self.agreed: bool | None = None  # does mode ``in_graph`` apply? None before the first graph
        self.why_not = ""
        self.step: Step | None = None  # of the forward that runs
        self.open: weakref.WeakSet[Step] = weakref.WeakSet()  # forwards whose backward has not ended
        self.reduced_in = NO_PASS  # the backward in which all is reduced at its end
        self.warned = False
        self.number = next(_numbers)
        self._asked = NO_PASS, False  # of which backward, and what it does: see ``accumulates``
        _all.add(self)

    # ------------------------------------------------------------------ compiling

    def parameter_at(self, argument: Argument) -> int | None:
        """Which of the parameters an input of a graph is."""
        tensor = argument.tensor
        return None if tensor is None else self.at.get(id(tensor))

    def agree(self, ddp: Any, graph: fx.Graph, request: CompileRequest) -> bool:
        """Does mode ``in_graph`` apply? Asked for the first graph, of all ranks.

        Raises:
            JitneyError: the ranks were given different options or parameters; one does not answer.
        """
        if self.agreed is None:
            reason = self._obstacle(ddp, request)
            order = self._ready_order(graph, request)
            mine = {
                "options": dataclasses.asdict(self.options) | {"limits": self.limits},
                "parameters": [
                    [n, list(p.shape), str(p.dtype)] for n, p in zip(self.names, self.parameters, strict=True)
                ],
                "obstacle": reason,
                "order": order,
            }
            found = self.ranks.exchange("mode", mine)
            for rank, other in enumerate(found):
                for what in ("options", "parameters"):
                    if other[what] != found[0][what]:
                        raise JitneyError(
                            f"ranks 0 and {rank} compile a DDP module with different {what}: {found[0][what]} and "
                            f"{other[what]}",
                            hint="the same model and the same options on all ranks",
                            phase=PHASE,
                        )
            against = [f"rank {rank}: {other['obstacle']}" for rank, other in enumerate(found) if other["obstacle"]]
            self.why_not = "; ".join(dict.fromkeys(against))
            self.agreed = not against
            items = [self.items[i] for i in found[0]["order"]]
            self.buckets = [[found[0]["order"][i] for i in bucket] for bucket in in_graph(items, self.limits)]
        return self.agreed

    def _obstacle(self, ddp: Any, request: CompileRequest) -> str:
        """Why the reducer must do the work; empty if the collectives may go into the graph."""
        given = {self.parameter_at(argument) for argument in request.arguments}
        missing = [self.names[i] for i in range(len(self.parameters)) if i not in given]
        reasons = self._arguments_against(ddp) | {
            f"the backend {request.backend} takes graphs without their backward": request.level != "aten",
            "the module is more than one graph": not request.whole,
            f"parameters that the graph does not use: {', '.join(missing[:3])}": bool(missing),
        }
        return ", ".join(reason for reason, holds in reasons.items() if holds)

    def _arguments_against(self, ddp: Any) -> dict[str, bool]:
        """What of DDP's arguments, and of the module, needs the reducer: the same on all ranks."""
        return {
            "static_graph=True": ddp.static_graph,
            "find_unused_parameters=True": ddp.find_unused_parameters,
            "a communication hook": private.has_comm_hook(ddp),
            "sparse gradients": private.expects_sparse(ddp),
            "complex parameters": any(p.is_complex() for p in self.parameters),
        }

    def _ready_order(self, graph: fx.Graph, request: CompileRequest) -> list[int]:
        """The parameters, in the order in which their gradients are ready: that of their last use, backwards."""
        first: dict[int, int] = {}
        places = {node: i for i, node in enumerate(graph.nodes)}
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, argument in zip(placeholders, request.arguments, strict=True):
            at = self.parameter_at(argument)
            if at is not None:
                first[at] = min((places[user] for user in node.users), default=0)
        return sorted(range(len(self.parameters)), key=lambda i: -first.get(i, 0))

    def variant(self, request: CompileRequest) -> Variant | None:
        """The form of a graph's backward that reduces; None if it does not compute all the gradients."""
        slots = {}
        for given in request.gradients:
            at = self.parameter_at(request.arguments[given])
            if at is not None:
                slots[at] = Slot.of(given, self.parameters[at])
        if len(slots) < len(self.parameters):
            return None
        buckets = tuple(tuple(slots[i] for i in bucket) for bucket in self.buckets)
        return Variant(buckets, self.group.group_name, 1 / self.group.size())

    # ------------------------------------------------------------------ forward

    def begin(self, ddp: Any) -> None:
        """Before DDP's forward: keep its reducer out, if this step's gradients are reduced in mode ``in_graph``."""
        self.step = None
        if ddp.require_backward_grad_sync is private.Sync.ELSEWHERE:  # Ctrl-C has ended a forward
            ddp.require_backward_grad_sync = True
        if self.agreed is False or not ddp.require_backward_grad_sync or not torch.is_grad_enabled():
            return
        if ddp in reducer_waits or private.in_join(ddp) or private.has_comm_hook(ddp):
            return
        if ddp.static_graph or ddp.find_unused_parameters:
            return
        if self.agreed is None and any(self._arguments_against(ddp).values()):
            return
        self.step = self.opened(late=any(map(has_hooks, self.parameters)))
        ddp.require_backward_grad_sync = private.Sync.ELSEWHERE

    def opened(self, *, late: bool = False, synced: bool = True) -> Step:
        """One more forward. Its backward may be that of other open ones, too, where gradients come as sums."""
        step = Step(late or bool(self.open), synced)
        for other in self.open:
            other.late = True
        self.open.add(step)
        return step

    def ended(self, step: Step) -> None:
        """The backward of a forward has run."""
        step.ended = True
        self.open.discard(step)

    def end(self, ddp: Any, output: Any) -> None:
        """After the forward of a step of this mode, even one that raised."""
        step, self.step = self.step, None
        assert step is not None
        ddp.require_backward_grad_sync = True
        ddp.require_forward_param_sync = True
        if step.runs != 1 or not self.agreed:
            step.late = True
        if not self.buckets:  # the first forward, and nothing was compiled
            items = self.items[::-1]
            self.buckets = [[len(items) - 1 - i for i in bucket] for bucket in assign(items, self.limits)]
        if not step.late:
            return
        for value in leaves(output):
            if isinstance(value, torch.Tensor):
                if value.grad_fn is not None:
                    value.register_hook(lambda gradient: self.reduce_at_end(step))
            elif step.runs != 1 and not isinstance(value, PLAIN):  # with one graph, its backward tells
                raise JitneyError(
                    f"in mode in_graph, the tensors in a {type(value).__qualname__} that the module returns cannot be "
                    "found: nothing would tell when their backward begins",
                    hint='tensors, containers or dataclasses of tensors as output; or options={"ddp": "split"}',
                    phase=PHASE,
                )

    # ------------------------------------------------------------------ backward

    def reduce_at_end(self, step: Step) -> None:
        """Within a backward: reduce all gradients when it is done, once."""
        if not self.accumulates():
            return
        self.ended(step)
        if self.reduced_in != private.backward_pass():
            self.reduced_in = private.backward_pass()
            private.after_backward(functools.partial(_reduce_all_of, self.reduced_in))

    def accumulates(self) -> bool:
        """Does the backward that runs add to parameters' ``.grad``? If not, DDP does not reduce either."""
        now = private.backward_pass()
        if self._asked[0] != now:
            self._asked = now, private.accumulates(self.parameters)
        return self._asked[1]

    def shares_backward(self) -> bool:
        """May the backward that runs be that of other DDP modules, too?

        Then what is reduced in it and what after it must not depend on what one rank alone knows: all is after it.
        """
        now = private.backward_pass()
        others = (state for state in _all if state is not self)
        return any(other.reduced_in == now or any(step.synced for step in other.open) for other in others)

    def reduce_all(self) -> None:
        """The buckets' collectives, with what is in ``.grad``; numbers as DDP's reducer has them."""
        started = []
        with torch.no_grad():
            for bucket in self.buckets:
                parts = [self._gradient(i).reshape(-1) for i in bucket]
                flat = torch.cat(parts).mul_(1 / self.group.size())
                started.append((bucket, flat, distributed.all_reduce(flat, group=self.group, async_op=True)))
            for bucket, flat, work in started:
                work.wait()
                for i, part in zip(bucket, flat.split([self.parameters[i].numel() for i in bucket]), strict=True):
                    parameter = self.parameters[i]
                    if not parameter.requires_grad:  # frozen since: others may train it, this rank does not
                        continue
                    if parameter.grad is None:
                        parameter.grad = torch.empty_like(parameter)
                    parameter.grad.copy_(part.view(parameter.shape))

    def _gradient(self, at: int) -> torch.Tensor:
        parameter = self.parameters[at]
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    def expect(self, found: Sequence[tuple[int, torch.Tensor, int]]) -> None:
        """Within a backward: look afterwards whether parameters got just these gradients.

        Args:
            found: for each: which parameter, the gradient's memory, how often it was written to.

        A parameter that the program also uses outside of DDP's forward got more, and that was not reduced.
        """

        def look() -> None:
            wrong = []
            for at, expected, version in found:
                gradient = self.parameters[at].grad
                if gradient is None:  # torch.autograd.grad, or backward(inputs=...)
                    continue
                same = gradient.data_ptr() == expected.data_ptr() or torch.equal(gradient, expected)
                if not same or expected._version != version:
                    wrong.append(self.names[at])
            if wrong:
                raise JitneyError(
                    f"gradients of {', '.join(wrong[:5])} came from elsewhere than DDP's forward, too; in mode "
                    "in_graph that is not reduced",
                    hint='options={"ddp": "split"}',
                    phase=PHASE,
                )

        private.after_backward(look)


_all: weakref.WeakSet[State] = weakref.WeakSet()


def _reduce_all_of(backward_pass: int) -> None:
    """What waits for the end of this backward: in the same order on all ranks."""
    for state in sorted(_all, key=lambda state: state.number):
        if state.reduced_in == backward_pass:
            state.reduced_in = NO_PASS
            state.reduce_all()
