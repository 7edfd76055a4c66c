"""What must hold between the objects that a frame has read: conditions over several sources, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.metadata import version_of
from jitney.guards import Guard, Program, Source
from jitney.guards.checks import all_different, apart
from jitney.guards.tensor_attributes import HOOKLESS, Untouched, is_quiet
from jitney.guards.tensors import nothing_shared, views_of_none
from jitney.torch_compat.subclasses import wraps

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

Adopted = tuple[Any, Source]  # a real tensor and where it came from
MANY = 8  # more tensors than these are asked in one call for attributes of their own
FEW = 2  # objects written to that are compared with each other one, one by one


def between(
    vm: Interpreter,
    program: Program,
    written: Mapping[type, Mapping[int, Source]],
    found: Sequence[tuple[int, Adopted]],
    stand_ins: Mapping[int, Any],
) -> Iterator[str]:
    """All conditions.

    Args:
        vm: after capture.
        program: names the sources.
        written: what is written to after the graph, by class and id.
        found: the tensors from outside by the ids of their stand-ins.
        stand_ins: these, by id.
    """
    for a, b, same in vm.world.relations:
        yield _one(program, a, b, same)
    checked = {id(source) for _, (_, source) in found}  # by a call that tells them apart, too
    for group in vm.world.apart.values():
        sources = list(group.values())
        certain = all(source.is_const for source in sources) or all(id(source) in checked for source in sources)
        if len(sources) > 1 and not certain:
            yield _call(program, all_different, "", sources)
    for function, places, answer in vm.world.comparisons:
        yield f"{_call(program, function, '', places)} is {answer}"
    yield from _written_apart(vm, program, written)
    yield from _memory_apart(vm, program, [(real, source, stand_ins[key]) for key, (real, source) in found])
    yield from _views_of_none(vm, program, found)


def _call(program: Program, function: Any, first: str, sources: Sequence[Source]) -> str:
    return f"{program.pool.object(function)}({first}{', '.join(map(program.expression, sources))})"


def _one(program: Program, a: Source, b: Source, same: bool) -> str:
    return f"{program.expression(a)} {'is' if same else 'is not'} {program.expression(b)}"


def _written_apart(vm: Interpreter, program: Program, written: Mapping[type, Mapping[int, Source]]) -> Iterator[str]:
    """What is written to is nothing else that was read under another name."""
    for kind, group in written.items():
        records = [r for key, r in vm.world.records.items() if type(r.value) is kind and key not in group]
        others = [r.source for r in records if r.owner is None and not r.source.is_const]
        sources = list(group.values())
        if len(sources) <= FEW:
            for i, source in enumerate(sources):
                yield from (_one(program, source, other, False) for other in [*sources[i + 1 :], *others])
        else:  # a training step writes to many
            yield _call(program, apart, f"{len(sources)}, ", [*sources, *others])


def _memory_apart(vm: Interpreter, program: Program, adopted: list[tuple[Any, Source, Any]]) -> Iterator[str]:
    """Conditions on what a copy on another device would not share."""
    before = vm.tracer.versions
    given = [
        (real, source, not 0 <= version_of(fake) == before[id(fake)])
        for real, source, fake in adopted
        if not wraps(type(real))
    ]
    together = vm.elsewhere.apart(given)
    if together:
        yield _call(program, nothing_shared, f"{tuple([w for _, w in together])}, ", [source for source, _ in together])


def _views_of_none(vm: Interpreter, program: Program, found: Sequence[tuple[int, Adopted]]) -> Iterator[str]:
    """The condition on tensors beside leaves that require grad from the frame on, or no longer."""
    toggled = vm.tracer.tape.toggled
    others = [s for key, (real, s) in found if key not in toggled and type(real) is not torch.nn.Parameter]
    if toggled and others:
        leaves = [source for key, (_, source) in found if key in toggled]
        yield _call(program, views_of_none, f"{len(leaves)}, ", [*leaves, *others])


def untouched(program: Program, adopted: Sequence[Adopted], inputs: Mapping[str, int]) -> str:
    """The condition on attributes and hooks of tensors, where there are many: their own guards are left out.

    Args:
        program: names the sources.
        adopted: the tensors.
        inputs: where in the tuple ``_inputs`` the variables are, if there is one.
    """
    asked: list[tuple[Source, set[str], bool]] = []
    left_out: list[Guard] = []
    for real, source in adopted:
        hookless = [guard for guard in source.guards if guard.kind == HOOKLESS]
        absent = [g for g in source.step("dict_of").guards if g.kind == "disjoint"]
        if (hookless or absent) and is_quiet(real):
            asked.append((source, {name for guard in absent for name in guard.expected}, bool(hookless)))
            left_out += [*hookless, *absent]
    if len(asked) <= MANY:
        return ""
    program.leave_out(left_out)
    sources, names, without_hooks = zip(*asked, strict=True)
    places = [inputs.get(program.expression(source)) for source in sources]
    first = places[0]
    if first is not None and places == [*range(first, first + len(places))]:  # the tuple has them next to each other
        function = program.pool.object(Untouched(names, without_hooks))
        return f"{function}(*_inputs[{first}:{first + len(places)}])"
    return _call(program, Untouched(names, without_hooks), "", sources)
