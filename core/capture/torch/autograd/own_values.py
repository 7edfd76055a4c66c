"""Which writes of items, in the code of an ``autograd.Function``, go to values of its own: new tensors and lists."""

from __future__ import annotations

import dis
import operator
import types
from dataclasses import dataclass, replace
from typing import Any

import torch

from jitney.capture.interpreter.code import CodeInfo, Instr, decode
from jitney.capture.python.operators import BINARY, COMPARE

OPCODES = {"UNARY_NEGATIVE": operator.neg, "UNARY_INVERT": operator.invert, "UNARY_NOT": operator.not_,
           "BINARY_SUBSCR": operator.getitem, "BINARY_SLICE": operator.getitem, "CONTAINS_OP": operator.contains,
           "GET_ITER": iter, "FOR_ITER": iter, "UNPACK_SEQUENCE": iter}  # fmt: skip
# Functions of torch's, and methods, whose results share no memory with anything.
MAKERS = frozenset(
    "zeros ones empty full zeros_like ones_like empty_like full_like rand rand_like randn randn_like arange eye clone "
    "where".split()
)
METHODS = frozenset("clone new_zeros new_ones new_empty new_full".split())
# Operators that no container has.
OF_TENSORS = frozenset((operator.sub, operator.truediv, operator.floordiv, operator.pow, operator.matmul))
STORES = {
    "STORE_SUBSCR": 3,
    "STORE_SLICE": 4,
}  # how many values they take: what is written, where to, and at which place
LEAVING = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
           "JUMP_BACKWARD_NO_INTERRUPT")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slot:
    """What is known of a value on the stack.

    Args:
        name: of the local variable that it is, or of which it is an item; of the global, or the method.
        kind: "local", "item", "global" or "method"; empty if nothing is known.
        owner: whose method it is.
    """

    name: str = ""
    kind: str = ""
    owner: Slot | None = None


def writes_own(fn: types.FunctionType, code: types.CodeType, at: int) -> bool:
    """Does the instruction write an item of what the code has made: a tensor that is new, or a list?"""
    info = decode(code)
    count = STORES.get(info.instrs[at].op)
    stack = _stack(info, at, count) if count is not None else None
    if count is None or stack is None or (written := stack[1 - count]).kind not in ("local", "item"):
        return False
    name = written.name
    stores = _reaching(info, at, name)
    arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    if -1 in stores and name in code.co_varnames[:arguments]:
        return False
    return all(_stores_own(fn, info, i, written.kind == "local") for i in stores if i != -1)


def names_of(instr: Instr) -> tuple[str, ...]:
    """The local variables of an instruction that has one, or two."""
    return instr.argval if isinstance(instr.argval, tuple) else (instr.argval,)


def operator_of(instr: Instr) -> Any:
    """The function that does what an instruction does, if that is an operator."""
    if instr.op == "BINARY_OP":
        return BINARY.get(dis._nb_ops[instr.arg][1])  # type: ignore[attr-defined]
    if instr.op == "COMPARE_OP":
        return COMPARE.get(str(instr.argval).removeprefix("bool(").removesuffix(")"))
    return OPCODES.get(instr.op)


def _reaching(info: CodeInfo, at: int, name: str) -> set[int]:
    """The instructions whose values the variable may have here; -1 if it may have the one that it began with."""
    before: dict[int, list[int]] = {}
    for instr, handler in zip(info.instrs, info.handlers, strict=True):
        targets = [instr.target, -1 if handler is None else handler.target]
        targets += [instr.index + 1] if instr.op not in LEAVING else []
        for target in targets:
            before.setdefault(target, []).append(instr.index)
    found, seen, todo = set[int](), set[int](), [at]
    while todo:
        place = todo.pop()
        if place == 0:
            found.add(-1)
        for earlier in before.get(place, ()):
            instr = info.instrs[earlier]
            if "FAST" in instr.op and not instr.op.startswith("LOAD_FAST") and name in names_of(instr):
                found.add(earlier)
                if info.handlers[earlier] is None:
                    continue
            if earlier not in seen:
                seen.add(earlier)
                todo.append(earlier)
    return found


def _stack(info: CodeInfo, at: int, count: int) -> list[Slot] | None:
    """What is on the stack before an instruction, of whose uppermost values ``count`` are asked for."""
    depth = info.depth_at(at)
    if depth is None:
        return None
    depths = ((i, info.depth_at(i)) for i in range(at - 1, -1, -1))
    start = next((i for i, below in depths if below is None or below <= depth - count), 0)
    if info.depth_at(start) is None or any(start < instr.target <= at for instr in info.instrs):
        return None
    stack = [Slot()] * (info.depth_at(start) or 0)
    for instr in info.instrs[start:at]:
        _apply(instr, stack, info.depth_at(instr.index + 1) or 0)
    return stack


def _apply(instr: Instr, stack: list[Slot], after: int) -> None:
    """What an instruction does to the stack; of its results nothing is known, unless it is one of these."""
    if instr.op.startswith("LOAD_FAST") and len(stack) + len(names_of(instr)) == after:
        stack += [Slot(name, "local") for name in names_of(instr)]
    elif instr.op == "LOAD_GLOBAL":  # of two places, one is empty
        stack += [Slot(instr.argval, "global")] * (after - len(stack))
    elif instr.op in ("LOAD_ATTR", "LOAD_METHOD"):  # of two places, one may be the owner's
        held = stack.pop()
        stack += [Slot(instr.argval, "method", held)] * (after - len(stack))
    elif instr.op in ("BINARY_SUBSCR", "BINARY_SLICE"):
        held = stack[after - 1]
        stack[after - 1 :] = [replace(held, kind="item") if held.kind == "local" else held]
    elif instr.op == "COPY":  # for ``x[i] += y``, which may change in place what a list holds
        held = stack[-instr.arg]
        stack[-instr.arg] = replace(held, kind="item") if held.kind == "local" else held
        stack.append(stack[-instr.arg])
    elif instr.op == "SWAP":
        stack[-1], stack[-instr.arg] = stack[-instr.arg], stack[-1]
    elif instr.op not in ("NOP", "CACHE", "PRECALL", "KW_NAMES"):
        stack[after - 1 :] = [Slot()] * (after - len(stack[: after - 1]))


def _stores_own(fn: types.FunctionType, info: CodeInfo, at: int, direct: bool) -> bool:
    """Is something new stored here, whichever way code came: a tensor, or a list to which writes go?

    ``direct``: the write is to what is stored, and not to an item of that, which may be older than the list it is in.
    """
    last = info.instrs[at - 1]
    if info.instrs[at].op != "STORE_FAST" or any(instr.target == at for instr in info.instrs):  # x if flag else y
        return False
    if last.op in ("BINARY_OP", "UNARY_NEGATIVE", "UNARY_INVERT", "COMPARE_OP"):
        in_place = last.op == "BINARY_OP" and dis._nb_ops[last.arg][1].endswith("=")  # type: ignore[attr-defined]
        return not in_place and (direct or last.op.startswith("UNARY") or operator_of(last) in OF_TENSORS)
    if last.op in ("BUILD_LIST", "BUILD_MAP"):
        return direct
    if last.op not in ("CALL", "CALL_KW"):
        return False
    count = last.arg + 2 + (last.op == "CALL_KW")  # what is called, a place beside it, and the arguments
    stack = _stack(info, last.index, count)
    if stack is None or any(type(names) is tuple and "out" in names for names in info.code.co_consts):
        return False
    called = max(stack[-count], stack[1 - count], key=lambda slot: slot.kind == "method")
    if called.kind == "method" and called.owner is not None:
        owner = called.owner
        is_torch = owner.kind == "global" and fn.__globals__.get(owner.name) is torch
        return called.name in MAKERS if is_torch else called.name in METHODS
    is_list = called.name == "list" and "list" not in fn.__globals__ and last.arg == 1
    return direct and is_list and called.kind == "global"
