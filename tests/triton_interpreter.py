"""Triton's kernels on the CPU, for tests and the fuzzer."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import linecache
import os
from collections.abc import Callable
from typing import Any

import numpy as np


def interpret_triton() -> None:
    """Have Triton's kernels interpreted on the CPU; to be called before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    triton = importlib.import_module("triton")
    importlib.import_module("jitney_triton_gpu.device")
    triton.knobs.runtime.interpret = True
    interpreter = importlib.import_module("triton.runtime.interpreter")
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
    interpreter._patch_lang = functools.partial(_patch_once, interpreter, interpreter._patch_lang)
    interpreter._patch_attr = functools.partial(_patch_attribute, interpreter)
    interpreter._get_np_dtype = _remembered_types(interpreter)
    _share_shapes(interpreter.tl.core)
    interpreter.FunctionRewriter.rewrite_ast = _rewritten
    semantic = importlib.import_module("triton.language.semantic").TritonSemantic
    semantic.broadcast_impl_value = _quick_broadcast(semantic.broadcast_impl_value)


def _patch_once(interpreter: Any, patch: Callable[[Any], Any], fn: Any) -> Any:
    """``interpreter._patch_lang``, which each call of a function from a kernel does again, a millisecond for naught."""
    language, is_builtin = interpreter.tl, interpreter.tl.core.is_builtin
    seen = [value for value in fn.__globals__.values() if value is language or value is language.core]
    if any(is_builtin(module.load) or is_builtin(module.tensor.__add__) for module in seen):
        return patch(fn)
    return interpreter._LangPatchScope()


def _rewritten(self: Any) -> Callable[..., Any]:
    """``FunctionRewriter.rewrite_ast``: values that are assigned become tensors.

    Triton's own tokenizes the source twice, looks for its module among all that are imported, and goes through all
    expressions three times; statements suffice.
    """
    code = self.fn.__code__
    lines = linecache.getlines(code.co_filename, self.fn.__globals__)[code.co_firstlineno - 1 :]
    if not lines:
        return self.fn  # type: ignore[no-any-return]
    first = next(at for at, line in enumerate(lines) if line.strip().startswith("def "))
    self.filename, self.def_file_lineno, self.def_lineno = code.co_filename, code.co_firstlineno + first, 1
    before = "\n" * (self.def_file_lineno - 1)
    try:
        tree = ast.parse(before + self._prepare_source(_indented_block(lines[first:])))
    except SyntaxError:  # a line of a text, or one in brackets, that is not indented
        tree = ast.parse(before + self._prepare_source(inspect.getblock(lines[first:])))
    statements: list[Any] = list(tree.body)
    while statements:
        statement = statements.pop()
        if isinstance(statement, ast.Assign):
            if len(statement.targets) > 1:
                raise ValueError("Multiple assignments are not supported")
            at = {name: getattr(statement, name) for name in statement._attributes}
            semantic = ast.Name("interpreter_semantic", ast.Load(), **at)
            call = ast.Call(ast.Attribute(semantic, "to_tensor", ast.Load(), **at), [], [], **at)
            call.args = [statement.value, ast.Constant(False, **at)]
            statement.value = call
        for field in ("body", "orelse", "finalbody", "handlers"):
            statements += getattr(statement, field, ())
    return self._compile_and_exec(tree)  # type: ignore[no-any-return]


def _indented_block(lines: list[str]) -> list[str]:
    """The first line and those after it that are indented further, or close its brackets."""
    margin = len(lines[0]) - len(lines[0].lstrip())
    for at, line in enumerate(lines[1:], start=1):
        text = line.lstrip()
        if text and text[0] not in ")#" and len(line) - len(text) <= margin:
            return lines[:at]
    return lines


def _patch_attribute(interpreter: Any, owner: Any, name: str, member: Callable[..., Any], _: Any, scope: Any) -> None:
    """``interpreter._patch_attr``, whose functions copy their arguments one by one at each call."""
    semantic = interpreter.interpreter_semantic

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return member(*args, **kwargs)

    scope.set_attr(owner, name, call)


def _remembered_types(interpreter: Any) -> Callable[[Any], np.dtype[Any]]:
    """``interpreter._get_np_dtype``, which makes a table of all types at each call."""
    look_up, block_type, pointer_type = (
        interpreter._get_np_dtype,
        interpreter.tl.block_type,
        interpreter.tl.pointer_type,
    )
    known: dict[str, np.dtype[Any]] = {}

    def numpy_type(of: Any) -> np.dtype[Any]:
        scalar = of.element_ty if isinstance(of, block_type) else of
        if isinstance(scalar, pointer_type):
            return np.dtype(np.uint64)
        if scalar.name not in known:
            known[scalar.name] = look_up(scalar)
        return known[scalar.name]

    return numpy_type


# An operation of a kernel makes some types of blocks and tensors, and each of those a dozen objects for its shape: most
# of the time of an interpreted kernel. Shapes do not change, so all of one shape share those of the first.


def _share_shapes(core: Any) -> None:
    """``block_type.__init__`` and ``tensor.__init__`` with one object for each shape."""
    make_type, make_tensor, constexpr = core.block_type.__init__, core.tensor.__init__, core.constexpr
    shapes: dict[tuple[int, ...], tuple[Any, ...]] = {}
    of_scalars = (core.tuple([]), constexpr(1))

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple([d.value if isinstance(d, constexpr) else d for d in shape])
        if key not in shapes:
            make_type(self, element_ty, shape)  # which checks it
            of_tensors = (core.tuple([constexpr(d) for d in key]), constexpr(self.numel))
            shapes[key] = (self.shape, self.numel, str(self.shape), of_tensors)
        self.element_ty = element_ty
        self.shape, self.numel, text, self.of_tensors = shapes[key]
        self.name = f"<{text}, {element_ty}>"

    def tensor(self: Any, handle: Any, type: Any) -> None:
        shared = getattr(type, "of_tensors", None) if type.is_block() else of_scalars
        if shared is None:
            make_tensor(self, handle, type)
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shared

    core.block_type.__init__, core.tensor.__init__ = block_type, tensor


def _quick_broadcast(broadcast: Callable[..., Any]) -> Callable[..., Any]:
    """``TritonSemantic.broadcast_impl_value``, which compares shapes as tuples of constants, made anew each time."""

    def pair(self: Any, left: Any, right: Any) -> Any:
        if left.type.is_block() != right.type.is_block():
            return (
                (left, _splat(self, right, left.type))
                if left.type.is_block()
                else (_splat(self, left, right.type), right)
            )
        if not left.type.is_block() or left.type.shape is right.type.shape:
            return left, right
        shapes = left.type.shape.values, right.type.shape.values
        if len(shapes[0]) != len(shapes[1]) or any(a != b and 1 not in (a, b) for a, b in zip(*shapes, strict=True)):
            return broadcast(self, left, right)
        whole = [max(a, b) for a, b in zip(*shapes, strict=True)]
        return _broadcast(self, left, whole), _broadcast(self, right, whole)

    return pair


def _splat(semantic: Any, scalar: Any, like: Any) -> Any:
    """A block of that type's shape, filled with a scalar."""
    of = like.with_element_ty(scalar.type.scalar)
    return semantic.tensor(semantic.builder.create_splat(of, scalar.handle), of)


def _broadcast(semantic: Any, block: Any, shape: list[int]) -> Any:
    """A block in a shape of as many dimensions."""
    if block.type.shape.values == shape:
        return block
    of = type(block.type)(block.type.scalar, shape)
    return semantic.tensor(semantic.builder.create_broadcast(block.handle, shape), of)


# Triton's interpreter combines the elements of a reduction or a scan one by one, in Python: seconds for a row of some
# thousands. These combine whole arrays, in log2(length) steps, as a GPU does. Lengths are powers of two.


def _reduce(ops: Any, given: tuple[Any, ...]) -> list[Any]:
    """``ReduceOps.generic_reduce``: neighbours are combined until one is left."""
    dims = len(given[0].handle.data.shape)
    values, axis = ops.unravel(given, ops.axis)
    while values[0].handle.data.shape[axis] > 1:
        values = _combine(ops, *(_mapped(ops, values, lambda a, at=at: _strided(a, axis, at)) for at in (0, 1)))
    if ops.axis is not None:
        return list(_mapped(ops, values, lambda a: a if ops.keep_dims else a.squeeze(axis)))
    return list(_mapped(ops, values, lambda a: a.reshape((1,) * dims) if ops.keep_dims else a.item()))


def _scan(ops: Any, given: tuple[Any, ...]) -> list[Any]:
    """``ScanOps.generic_scan`` as Hillis and Steele do it: each takes in what is 1, 2, 4, ... places before it."""
    shape = given[0].handle.data.shape
    place = np.indices(shape, sparse=True)[ops.axis]
    values, step = tuple(given), 1
    while step < shape[ops.axis]:
        before = _mapped(ops, values, lambda a, step=step: np.roll(a, step, ops.axis))
        both = zip(_combine(ops, before, values), values, strict=True)
        values = tuple(
            ops.to_tensor(np.where(place < step, alone.handle.data, more.handle.data), alone.dtype)
            for more, alone in both
        )
        step *= 2
    return list(values)


def _strided(array: np.ndarray[Any, Any], axis: int, first: int) -> np.ndarray[Any, Any]:
    """Each second along an axis."""
    return array.take(range(first, array.shape[axis], 2), axis)


def _mapped(ops: Any, values: tuple[Any, ...], fn: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(ops.to_tensor(fn(value.handle.data), value.dtype) for value in values)


def _combine(ops: Any, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the function makes of pairs of elements; ``left`` comes first."""
    made = ops.combine_fn.fn(*left, *right)
    results = zip(made if isinstance(made, tuple) else (made,), left, strict=True)
    return tuple(ops.to_tensor(result.handle.data, value.dtype) for result, value in results)
