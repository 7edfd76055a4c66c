"""Operators, membership and truth, by Python's own protocol."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter import tracebacks
from jitney.capture.interpreter.signals import Break, GiveUp, UserRaised
from jitney.capture.kinds import STAND_INS, hashed_in_python
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import (
    DEEP,
    PLAIN,
    SYMBOLIC,
    beside_symbols,
    check_elements,
    compared_in_python,
    constant_key,
    default_equality,
    demanded,
    expose,
    held,
    makes_own_class,
    plain_text,
    printable,
    python_method,
    refuse_asking,
    refuse_opaque,
    refuse_own_hash,
    refuses,
    specialise,
)
from jitney.capture.python.classes import lookup
from jitney.capture.python.containers import delitem, dict_contains, getitem, iterable, settle_among, tell_apart
from jitney.capture.python.type_slots import name_in_c
from jitney.capture.torch.classes import objects
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.world.host_comparisons import host_comparison, host_truth
from jitney.capture.world.record import ABSENT, CONTENT_TYPES
from jitney.torch_compat import torch_private
from jitney.torch_compat.torch_private import FakeTensor

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
COMPARE_METHODS = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
COMPARED_IN_C = ((dict, collections.OrderedDict), (list,), (tuple,), (set, frozenset), (str,), (bytes,),
                 (collections.deque,), (int,), (float, int), (complex, float, int))  # fmt: skip
OPERAND_METHODS = ("__torch_function__", "__array__", "__array_interface__", "__cuda_array_interface__",
                   "__index__", "__int__", "__float__", "__complex__")  # fmt: skip
MIRROR = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
UNARY: dict[str, Callable[..., Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


# Numbers that symbols may be beside in arithmetic.
LOGIC = (operator.and_, operator.or_, operator.xor)
REAL = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def truth(vm: Interpreter, value: Any) -> bool:
    """``bool(value)``."""
    kind = type(value)
    if kind is bool:
        return bool(value)
    if value is None:
        return False
    if kind in STAND_INS:
        known = None if vm.tracer.rules.is_watched(value) else host_truth(vm, value)
        if known is not None:
            return known
        raise_if_data_dependent(vm, value)
        return vm.native(bool, value)
    record = vm.world.record_of(value)
    own = python_method(vm, value, "__bool__") or python_method(vm, value, "__len__")
    if record is not None and isinstance(value, CONTENT_TYPES) and not own:
        return _container_truth(vm, value, record)
    if kind in PLAIN:
        return vm.native(bool, value)
    for name in ("__bool__", "__len__"):
        method = python_method(vm, value, name)
        if method is not None:
            answer = vm.call(method, value)
            if type(answer) is torch.SymBool and name == "__bool__":
                return vm.truth(answer)
            number = specialise(demanded(answer, bool if name == "__bool__" else int, name))
            if not 0 <= number <= sys.maxsize:
                raise Break(f"{name} gave {number}")
            return bool(number)
        if lookup(vm, kind, name) is not ABSENT:
            refuse_opaque(vm, "the truth", value)
            break
    return vm.native(bool, value)


def _container_truth(vm: Interpreter, value: Any, record: Any) -> bool:
    if record.shadow is not None:
        return bool(record.shadow)
    if record.overlay or record.pending:
        return True
    vm.world.guard(record.source, "nonempty" if len(value) else "empty")
    return len(value) != 0


def raise_if_data_dependent(vm: Interpreter, value: Any) -> None:
    """Break with the words that people search for."""
    try:
        bool(value)
    except (torch_private.DataDependentOutputException, torch_private.GuardOnDataDependentSymNode):
        raise Break(
            "data-dependent control flow: a branch depends on the values of a tensor",
            "use torch.where, or keep the branch outside the compiled function",
        ) from None
    except Exception:
        raise Break("the truth of a tensor with more than one value") from None


def exact(*values: Any) -> tuple[Any, ...]:
    """Numbers for an operation that cannot be put off: a symbolic float is a constant there."""
    if any(type(v) is torch.SymFloat for v in values):
        return tuple(map(specialise, values))
    return values


def put_off(vm: Interpreter, target: Callable[..., Any], *values: Any) -> Any:
    """Float arithmetic with a symbol in it: one Python operation that runs with the graph; None if it is not that."""
    scalars = vm.symbols.scalars
    return scalars.compute(target, values) if scalars.applies(target, values) else None


def binary(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """``a symbol b``; ``symbol`` may end in ``=`` for the in-place form."""
    if type(a) in (str, bytes):  # formatting
        b = specialise(b) if type(b) in SYMBOLIC else b
    if type(a) in PLAIN and type(b) in PLAIN:
        target = BINARY[symbol.rstrip("=")]
        if target not in LOGIC or not {type(a), type(b)} <= {bool, torch.SymBool}:
            a, b = (specialise(v) if type(v) is torch.SymBool else v for v in (a, b))  # symbols know no int of it
        made = put_off(vm, target, a, b)
        if made is None:
            fixed = type(a) not in REAL or type(b) not in REAL or vm.symbols.may_leave_int64(target, a, b)
            if fixed or vm.symbols.scalars.applies(target, (a, b)):  # it may raise, or give another class
                a, b = specialise(a), specialise(b)
            elif target is operator.pow and type(a) in (int, torch.SymInt) and type(b) is torch.SymInt:
                return _power(vm, a, b)
        return vm.native(BINARY[symbol], *exact(a, b)) if made is None else made
    if type(a) is Array and a.scalar and type(b) in STAND_INS:  # it leaves the operation to the tensor
        number = a.number()
        if type(number) is bool:
            raise Break("a numpy.bool_ beside a tensor", "give it bool(...)")
        a = a if number is None else number
    if symbol in ("*", "*=") and Array in (type(a), type(b)):
        if isinstance(a, SEQUENCES) and type(b) is Array and b.scalar:
            return binary(vm, symbol, a, _times(vm, b))
        if isinstance(b, SEQUENCES) and type(a) is Array and a.scalar:
            return binary(vm, "*", b, _times(vm, a))
    if type(a) in STAND_INS or type(b) in STAND_INS:
        if type(b) in STAND_INS or type(b) in PLAIN:
            if type(a) in STAND_INS or type(a) in PLAIN:
                return vm.native(BINARY[symbol], a, b)
        if type(a) in STAND_INS:
            refuse_asking(vm, b)
        if objects.takes_over(a) or objects.takes_over(b):
            return _overloaded(vm, symbol, a, b)
    base = symbol.rstrip("=")
    name = METHODS[base]
    if symbol != base:
        done, value = _inplace(vm, symbol, f"__i{name}__", a, b)
        if done:
            return value
    forward, reflected = python_method(vm, a, f"__{name}__"), python_method(vm, b, f"__r{name}__")
    if reflected and _is_overridden(vm, f"__r{name}__", type(a), type(b)):
        value = vm.call(reflected, b, a)
        if value is not NotImplemented:
            return value
        reflected = None
    if refuses(vm, a, f"__{name}__"):
        return vm.call(None, b)
    if forward:
        value = vm.call(forward, a, b)
        if value is not NotImplemented:
            return value
    elif not reflected:
        if python_method(vm, a, "__getattr__") and not hasattr(type(a), f"__{name}__"):
            return _unsupported(vm, symbol, a, b)
        refuse_opaque(vm, f"the operator {base}", a, b)
        if symbol == "%" and isinstance(a, (str, bytes)) and not (plain_text(b) and plain_text(expose(vm, b))):
            raise Break("an object is turned into text")
        if symbol == "%" and isinstance(a, (str, bytes)):
            vm.world.read_orders_within(expose(vm, b))
        if isinstance(a, SETS):
            check_elements(vm, expose(vm, a))
            check_elements(vm, expose(vm, b))
        return _in_c(vm, symbol, a, b)
    if reflected and (type(a) is not type(b)):
        c_forward = getattr(type(a), f"__{name}__", None)
        if base in ("+", "*") and forward is None and isinstance(a, SEQUENCES) and c_forward is not None:
            value = vm.call(reflected, b, a)  # sequences do not have numbers' methods, which Python asks first
            if value is not NotImplemented:
                return value
            if base == "*" and not hasattr(type(b), "__index__"):
                return vm.raise_user(TypeError(f"can't multiply sequence by non-int of type {name_in_c(type(b))!r}"))
            return vm.native(c_forward, expose(vm, a), b)
        if forward is None and c_forward is not None:
            value = vm.native(c_forward, expose(vm, a), b)
            if value is not NotImplemented:
                return value
        value = vm.call(reflected, b, a)
        if value is not NotImplemented:
            return value
    if type(a) is not type(b) and refuses(vm, b, f"__r{name}__"):
        return vm.call(None, a)
    return _unsupported(vm, symbol, a, b)


def _power(vm: Interpreter, base: Any, exponent: torch.SymInt) -> Any:
    """``base ** exponent`` of ints. Of a base that may be negative, or zero, torch cannot say how large the power is.

    It recurses without end. So a negative number's power has its sign apart, a changing base a constant exponent.
    """
    if type(base) is torch.SymInt or base == 0:
        return vm.native(operator.pow, *exact(base, specialise(exponent)))
    size = vm.native(operator.pow, abs(base), exponent)
    return size if base > 0 else size * (1 - 2 * (exponent % 2))


def _times(vm: Interpreter, scalar: Array) -> Any:
    """How often a scalar of NumPy's repeats a sequence: it leaves that to Python."""
    number = scalar.number() if scalar.dtype.kind in "iu" else None
    if number is None:
        raise Break("a sequence is multiplied by a scalar of NumPy that capture does not know")
    return specialise(number)


def _overloaded(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """An operator on a tensor and an object with its own ``__torch_function__``."""
    name = METHODS[symbol.rstrip("=")]
    owners = [(a, f"__{name}__"), (a, f"__i{name}__"), (b, f"__r{name}__")]
    own = [method for owner, at in owners if (method := python_method(vm, owner, at)) is not None]
    if not own:
        return objects.call(vm, BINARY[symbol], [a, b], {})
    if type(a) in STAND_INS and symbol == symbol.rstrip("="):
        value = objects.call(vm, getattr(torch.Tensor, f"__{name}__"), [a, b], {})
        return vm.call(own[0], b, a) if value is NotImplemented else value
    value = vm.call(own[0], a, b) if len(own) == 1 and type(b) in STAND_INS else NotImplemented
    if value is NotImplemented:
        raise Break("an operand with its own __torch_function__")
    return value


def _is_overridden(vm: Interpreter, name: str, kind: type, derived: type) -> bool:
    """Is ``derived`` a class below ``kind`` with a method of its own in the place of its?"""
    below = kind is not derived and issubclass(derived, kind)
    return below and lookup(vm, derived, name) is not lookup(vm, kind, name)


def _in_c(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """What C code makes of two values. It complains of their own classes, and of the operator as it is written."""
    base = symbol.rstrip("=")
    left, right = _operand(vm, a), printable(expose(vm, b)) if isinstance(a, (str, bytes)) else _operand(vm, b)
    left, right = beside_symbols(left, right)
    try:
        return vm.native(BINARY[base], left, right)
    except UserRaised as raised:
        if type(raised.value) is not TypeError or UNSUPPORTED.fullmatch(str(raised.value)) is None:
            raise
    return _unsupported(vm, symbol, a, b)


def _has_symbol_and_other(*sequences: Any) -> bool:
    """May these hold symbols, and things that do not know them?"""
    kinds = {type(value) for sequence in sequences for value in sequence}
    return not kinds.isdisjoint(DEEP) and not kinds <= {*PLAIN, *STAND_INS}


def _operand(vm: Interpreter, value: Any) -> Any:
    """A value as C code may see it. What a sequence or a dictionary holds becomes part of the result as it is."""
    if not isinstance(value, (list, tuple, collections.deque, dict)):
        return expose(vm, value)
    content = held(vm, value)
    if type(content) is not type(value) and makes_own_class(value):
        raise Break(f"an operator on a {type(value).__qualname__} from outside")
    return content


def _unsupported(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    text = "** or pow()" if symbol == "**" else symbol
    kinds = f"{name_in_c(type(a))!r} and {name_in_c(type(b))!r}"
    return vm.raise_user(TypeError(f"unsupported operand type(s) for {text}: {kinds}"))


def _inplace(vm: Interpreter, symbol: str, name: str, a: Any, b: Any) -> tuple[bool, Any]:
    """Try the in-place method: (was there one, its value)."""
    method = python_method(vm, a, name)
    if method is not None:
        value = vm.call(method, a, b)
        return value is not NotImplemented, value
    if refuses(vm, a, name):
        return True, vm.call(None, b)
    if type(a) is Array and not a.scalar:
        return True, vm.native(BINARY[symbol], a, expose(vm, b))
    if type(b) is Array and isinstance(a, list | collections.deque):
        return True, binary(vm, symbol.rstrip("="), a, b)  # NumPy is asked first
    if isinstance(a, set):
        check_elements(vm, expose(vm, a))
        check_elements(vm, expose(vm, b))
    reflected = python_method(vm, b, f"__r{name[3:]}") if isinstance(a, list | collections.deque) else None
    if reflected is not None:  # sequences do not have numbers' methods, which Python asks first
        value = vm.call(reflected, b, a)
        if value is not NotImplemented:
            return True, value
    record = vm.world.record_of(a)
    if record is not None and isinstance(a, CONTENT_TYPES) and hasattr(type(a), name):
        content = vm.world.content(record)
        by_items = isinstance(a, list | collections.deque) and symbol == "+="
        other = content if a is b else iterable(vm, b) if by_items else expose(vm, b)
        vm.native(BINARY[symbol], content, other)
        record.dirty = True
        return True, a
    if isinstance(a, CONTENT_TYPES) and hasattr(type(a), name):
        other = b if a is b else iterable(vm, b) if isinstance(a, list) and symbol == "+=" else expose(vm, b)
        return True, vm.native(BINARY[symbol], a, other)
    return False, None


def compare(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """``a symbol b`` for the six comparisons."""
    if type(a) in PLAIN and type(b) in PLAIN:
        unknown = vm.symbols.scalars.is_unknown(a) or vm.symbols.scalars.is_unknown(b)
        if unknown and {type(a), type(b)} <= {int, torch.SymInt}:
            return vm.native(COMPARE[symbol], a, b)
        if unknown:
            known = host_comparison(vm, symbol, a, b)
            if known is not None:
                return known
            raise Break("a comparison of a number that only the graph knows", "compare tensors, with torch.where")
        if torch.SymBool in (type(a), type(b)) or not all(map(vm.symbols.scalars.compares, (a, b))):
            a, b = specialise(a), specialise(b)
        if {type(a), type(b)} == {bool, torch.SymInt}:  # torch's symbols take no truth value, and say so
            a, b = +a, +b
        return vm.native(COMPARE[symbol], a, b)
    if isinstance(a, weakref.ref) or isinstance(b, weakref.ref):
        raise Break("weak references are compared", "compare what they refer to")
    tracebacks.refuse_comparison(a, b)
    forward = python_method(vm, a, COMPARE_METHODS[symbol])
    reflected = python_method(vm, b, COMPARE_METHODS[MIRROR[symbol]])
    refused = refuses(vm, a, COMPARE_METHODS[symbol]) or refuses(vm, b, COMPARE_METHODS[MIRROR[symbol]])
    if forward is None and reflected is None and not refused:
        if FakeTensor in (type(a), type(b)) and not (_is_operand(a) and _is_operand(b)):
            for name in (COMPARE_METHODS[symbol], COMPARE_METHODS[MIRROR[symbol]]):
                vm.world.guard_method(name)
            return _uncompared(vm, symbol, a, b)
        if type(a) is type(b) and type(a) in (list, tuple):
            first, second = (_items(vm, value) for value in (a, b))
            if compared_in_python(vm, first) or compared_in_python(vm, second) or _has_symbol_and_other(first, second):
                return _compare_items(vm, symbol, first, second)
        if symbol == "!=" and (python_method(vm, a, "__eq__") or python_method(vm, b, "__eq__")):
            value = compare(vm, "==", a, b)
            return not truth(vm, value)
        if symbol in ("==", "!=") and default_equality(vm, type(a)) and default_equality(vm, type(b)):
            return identical(vm, a, b) == (symbol == "==")
        if symbol in ("==", "!=") and any(
            type(x) in PLAIN and type(y) not in STAND_INS and default_equality(vm, type(y)) for x, y in ((a, b), (b, a))
        ):
            return symbol == "!="  # numbers, text and their like know nothing of other classes
        for value in (a, b):
            vm.world.distinct(value)
            check_elements(vm, expose(vm, value))
        refuse_opaque(vm, f"the comparison {symbol}", a, b)
        if isinstance(a, dict) and isinstance(b, dict):
            return vm.native(COMPARE[symbol], printable(expose(vm, a)), printable(expose(vm, b)))
        return vm.native(COMPARE[symbol], *beside_symbols(expose(vm, a), expose(vm, b)))
    if vm.witness is not None and vm.witness.settles:
        vm.witness.settle(a, b)
    first = [(forward, a, b), (reflected, b, a)]
    if type(a) is not type(b) and issubclass(type(b), type(a)):
        first.reverse()
    for method, x, y in first:
        name = COMPARE_METHODS[symbol if x is a else MIRROR[symbol]]
        value = vm.call(method, x, y) if method is not None else _compared_in_c(vm, name, x, y)
        if value is not NotImplemented:
            return value
    return _uncompared(vm, symbol, a, b)


def _uncompared(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """What Python says where neither of the two knows how to compare itself with the other."""
    if symbol in ("==", "!="):
        return identical(vm, a, b) == (symbol == "==")
    kinds = f"{name_in_c(python_type(vm, a))!r} and {name_in_c(python_type(vm, b))!r}"
    return vm.raise_user(TypeError(f"{symbol!r} not supported between instances of {kinds}"))


def _is_operand(value: Any) -> bool:
    """May torch compute with this value? Of others, tensors say that they are not implemented."""
    return isinstance(value, (torch.Tensor, *SYMBOLIC)) or any(
        name in vars(cls) for cls in type(value).__mro__ for name in OPERAND_METHODS
    )


def _items(vm: Interpreter, value: Any) -> Any:
    record = vm.world.record_of(value)
    return vm.world.content(record) if record is not None and isinstance(value, CONTENT_TYPES) else value


def _is_equal(vm: Interpreter, x: Any, y: Any) -> bool:
    """As C code of containers compares: what is the same object is equal, whatever it says."""
    if x is y or truth(vm, compare(vm, "==", x, y)):
        return True
    tell_apart(vm, x, y)
    return False


def places(vm: Interpreter, items: Any, value: Any) -> Iterator[int]:
    """Where in a list, tuple or deque the value is, one place after the other, as C code looks for it."""
    iterator = iter(items)
    for at in itertools.count():
        item = vm.native(next, iterator, END)  # a deque that a comparison has changed raises
        if item is END:
            return
        if _is_equal(vm, item, value):
            yield at


END = object()


def _compare_items(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """Two lists or two tuples, item by item as C code does it."""
    equality = symbol in ("==", "!=")
    if type(a) is list and len(a) != len(b) and equality:
        return symbol == "!="
    at = 0
    while at < len(a) and at < len(b) and _is_equal(vm, a[at], b[at]):
        at += 1
    if at >= len(a) or at >= len(b):  # a comparison may have shortened them
        return COMPARE[symbol](len(a), len(b))
    return symbol == "!=" if equality else compare(vm, symbol, a[at], b[at])


def _compared_in_c(vm: Interpreter, name: str, x: Any, y: Any) -> Any:
    """What C code of a builtin class says where the other one is of its kind, too, but has its own methods."""
    x, y = specialise(x), specialise(y)
    found = lookup(vm, type(x), name)
    if found is None:
        return vm.call(None, y)
    if found is vars(object)["__ne__"]:  # the contrary of what ``__eq__`` says
        method = python_method(vm, x, "__eq__")
        value = vm.call(method, x, y) if method is not None else _compared_in_c(vm, "__eq__", x, y)
        return value if value is NotImplemented else not truth(vm, value)
    base = getattr(found, "__objclass__", object)
    kinds = next((kinds for kinds in COMPARED_IN_C if base in kinds), ())
    if not isinstance(y, kinds):
        return NotImplemented
    for value in (x, y):
        vm.world.distinct(value)
        check_elements(vm, expose(vm, value))
    return vm.native(getattr(base, name), expose(vm, x), expose(vm, y))


def identical(vm: Interpreter, a: Any, b: Any) -> bool:
    """``a is b``, guarded where both are objects from outside; eager where only equality is known."""
    if type(a) in PLAIN and type(b) in PLAIN:
        a, b = specialise(a), specialise(b)
    same = a is b
    if isinstance(a, weakref.ref) and isinstance(b, weakref.ref):
        raise Break("the identity of weak references", "compare what they refer to")
    tracebacks.refuse_comparison(a, b)
    if type(a) in VALUES and type(a) is type(b) and not _only_one(a) and vm.world.constant_key(a) and (same or a == b):
        raise GiveUp(f"'is' between equal values of class {type(a).__name__}", "compare them with ==")
    first, second = vm.world.record_of(a), vm.world.record_of(b)
    if first is not None and second is not None and not same and type(a) is type(b):
        if not (first.source.is_const and second.source.is_const):
            vm.world.relate(first.source, second.source, False)
    return same


UNSUPPORTED = re.compile(r"unsupported operand type\(s\) for [^ ]{1,3}: '.*' and '.*'")
SEQUENCES = (list, tuple, str, bytes, bytearray, collections.deque)
SETS: tuple[type, ...] = (set, frozenset, type({}.keys()), type({}.items()))
VALUES = (int, float, complex, str, bytes, tuple)


def _only_one(value: Any) -> bool:
    """Does Python make no second object of this value?"""
    if type(value) is int:
        return -5 <= value <= 256
    if type(value) is str:
        return not value or (len(value) == 1 and value < "\u0100")
    return type(value) in (bytes, tuple) and len(value) <= (type(value) is bytes)


# What operator.add and its like stand for.
OPERATOR_FUNCTIONS: dict[int, Callable[[Any, Any, Any], Any]] = {}
for _symbol, _fn in (*BINARY.items(), ("**", pow)):
    OPERATOR_FUNCTIONS[id(_fn)] = functools.partial(lambda symbol, vm, a, b: binary(vm, symbol, a, b), _symbol)
for _symbol, _fn in COMPARE.items():
    OPERATOR_FUNCTIONS[id(_fn)] = functools.partial(lambda symbol, vm, a, b: compare(vm, symbol, a, b), _symbol)
OPERATOR_FUNCTIONS[id(operator.getitem)] = lambda vm, a, b: getitem(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.contains)] = lambda vm, a, b: contains(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.delitem)] = lambda vm, a, b: delitem(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.is_)] = lambda vm, a, b: identical(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.is_not)] = lambda vm, a, b: not identical(vm, a, b)
UNARY_FUNCTIONS: dict[int, Callable[[Any, Any], Any]] = {
    id(operator.neg): lambda vm, a: unary(vm, "-", a),
    id(operator.pos): lambda vm, a: unary(vm, "+", a),
    id(operator.invert): lambda vm, a: unary(vm, "~", a),
    id(operator.inv): lambda vm, a: unary(vm, "~", a),
    id(operator.not_): lambda vm, a: not truth(vm, a),
    id(operator.truth): lambda vm, a: truth(vm, a),
}
# Builtins that are one method of their argument.
PROTOCOL = {id(abs): "__abs__", id(round): "__round__", id(divmod): "__divmod__", id(operator.abs): "__abs__"}


def unary(vm: Interpreter, symbol: str, value: Any) -> Any:
    """``-value``, ``+value``, ``~value``."""
    method = python_method(vm, value, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[symbol])
    if method is not None:
        return vm.call(method, value)
    refuse_opaque(vm, f"the operator {symbol}", value)
    if symbol == "~":
        value = specialise(value)
    made = put_off(vm, UNARY[symbol], value)
    return vm.native(UNARY[symbol], *exact(value)) if made is None else made


def contains(vm: Interpreter, obj: Any, key: Any) -> bool:
    """``key in obj``."""
    if isinstance(key, weakref.ref) and not isinstance(obj, dict):
        raise Break("membership of a weak reference", "ask for what it refers to")
    method = python_method(vm, obj, "__contains__")
    if method is not None:
        return truth(vm, vm.call(method, obj, key))
    if refuses(vm, obj, "__contains__"):
        raise UserRaised(TypeError(f"{name_in_c(type(obj))!r} object is not a container"))
    if refuses(vm, obj, "__iter__"):
        raise UserRaised(TypeError(f"argument of type {name_in_c(type(obj))!r} is not iterable"))
    record = vm.world.record_of(obj)
    if isinstance(obj, dict):
        return dict_contains(vm, obj, record, key)
    base: Any = next((b for b in (list, tuple, collections.deque) if isinstance(obj, b)), None)
    if base is not None:  # C code goes through its items, whatever its class says of them
        items = vm.world.content(record) if record is not None and base is not tuple else obj
        if items is obj and type(obj).__iter__ is not base.__iter__:
            items = [*base.__iter__(obj)]
        return next(places(vm, items, key), None) is not None
    in_python = python_method(vm, obj, "__iter__") or python_method(vm, obj, "__getitem__")
    if (in_python and not isinstance(obj, (set, frozenset, str, bytes))) or hasattr(type(obj), "__next__"):
        iterator = vm.native(iter, iterable(vm, obj))
        while (item := vm.native(next, iterator, ABSENT)) is not ABSENT:
            if _is_equal(vm, item, key):
                return True
        return False
    if isinstance(obj, (set, frozenset)) and hashed_in_python(key):
        items = _items(vm, obj)
        settle_among(vm, key, items)
        return vm.native(operator.contains, items, key)
    check_elements(vm, expose(vm, obj))
    vm.world.distinct(key)
    opaque = record is not None and not vm.world.set_orders.holds(obj)
    if isinstance(obj, frozenset) and opaque and not vm.world.fixed_key(key):
        raise Break("an object from outside is looked for in a frozenset from outside")
    if isinstance(obj, set) and record is not None:
        content = vm.world.content(record)
        vm.world.tell_apart(key, content)
        refuse_own_hash(vm, key)
        return vm.native(operator.contains, content, constant_key(key))
    refuse_opaque(vm, "a search", obj)
    refuse_opaque(vm, "membership", key)
    return vm.native(operator.contains, expose(vm, obj), constant_key(key))
