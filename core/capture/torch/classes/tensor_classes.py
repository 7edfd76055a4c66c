"""Tensors of the program's own classes that hold data themselves: ``__torch_function__`` decides what they compute.

Such a tensor's stand-in is that of a plain one, of which the tracer knows the class (``Rules.classes``); the graph is
given, and gives, plain tensors. Torch's own ``Tensor.__torch_function__`` computes as on plain tensors and makes
results of the class; one of the program's is interpreted. Classes that switch it off, as ``nn.Parameter`` does, are
only known by their name: what is computed of their tensors is plain.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from jitney._util.ownership import trusted
from jitney.capture import metadata
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import PLAIN_TENSORS, is_stand_in
from jitney.capture.torch.classes.wrappers import HARMLESS, HINT, REFUSED_MODULES
from jitney.capture.world.guard_set import GuardSet
from jitney.guards import Source
from jitney.guards.tensor_attributes import attributes
from jitney.torch_compat import subclasses, torch_private

DEFAULT: Any = vars(torch.Tensor)["__torch_function__"].__func__
WRITE_HINT = "do it outside compiled code, or give the result another name"
METACLASSES = tuple(map(type, PLAIN_TENSORS))

# What guards, fakes and the graph's ends ask of a real tensor, as torch answers it.
METADATA = frozenset(
    "device dtype layout shape size stride storage_offset untyped_storage requires_grad is_leaf dim ndim numel data "
    "grad is_conj is_neg is_quantized is_nested is_sparse is_inference is_floating_point is_complex as_subclass "
    "grad_fn requires_grad_ data_ptr is_contiguous _is_view _base _version _is_zerotensor _backward_hooks".split()
)
# What operations on a tensor call of its class.
SPECIAL = frozenset(n for n in dir(torch.Tensor) if n.startswith("__") and n.endswith("__")) - HARMLESS - {"__hash__"}
SPECIAL |= {"__eq__", "__hash__", "__call__", "__getattr__", "__rmatmul__", "__torch_dispatch__", "__tensor_flatten__"}
SPECIAL |= {f"__{kind}{name}__" for kind in ("", "r", "i") for name in "divmod pow mod floordiv truediv matmul".split()}


def refusal(cls: type) -> str:
    """Why tensors of this class are not captured as tensors with data of their own; empty if they are."""
    kind: Any = cls
    name = f"a tensor of class {cls.__qualname__}"
    if type(cls) not in METACLASSES:
        return f"{name}, which has a metaclass of its own"
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or hasattr(cls, "__tensor_flatten__"):
        return f"{name} is not captured"
    if cls.__module__.startswith((*REFUSED_MODULES, "torch.nn.parameter")):
        return f"{name} is not captured"
    for owner in own_classes(cls):
        names = [n for n in vars(owner) if n.startswith("__") and n.endswith("__") and n not in HARMLESS]
        if names or vars(owner).get("__slots__"):
            return f"{name}, which has its own {names[0] if names else '__slots__'}"
        if hidden := sorted(METADATA & vars(owner).keys()):
            return f"{name}, which has its own {hidden[0]}"
    return ""


def guard_special(guards: GuardSet, cls: type) -> None:
    """Guard that a class comes to have nothing of its own for which it would have been refused."""
    for owner in () if subclasses.wraps(cls) else own_classes(cls):
        if not trusted(owner):
            storage = guards.const(owner).step("dict_of")
            for name in (SPECIAL | METADATA) - vars(owner).keys():
                guards.guard_disjoint(storage, name)


def check(real: Any) -> bool:
    """Have tensors of this one's class rules? Breaks at a class that is not captured, and at methods of its own."""
    cls = type(real)
    if subclasses.wraps(cls):  # what it wraps is an attribute, whatever its name
        return False
    for name in attributes(real):
        if callable(getattr(torch.Tensor, name, None)):
            raise Break(f"a tensor whose attribute {name} hides the method", "give the attribute another name")
    if cls in PLAIN_TENSORS:
        return False
    if reason := refusal(cls):
        raise Break(reason, HINT)
    return has_rules(cls)


def own_classes(cls: type) -> list[type]:
    """The classes of a tensor's class that are not torch's own."""
    return [c for c in subclasses.own_classes(cls) if c not in PLAIN_TENSORS]


def has_rules(cls: type) -> bool:
    """Does the class have a say in what is computed with its tensors?"""
    kind: Any = cls
    return kind.__torch_function__ is not torch_private.disabled_torch_function


def is_made_in_python(cls: type) -> bool:
    """Is it a tensor's class whose ``__new__`` says which tensor its instances are?"""
    new: Any = cls.__new__
    return issubclass(cls, torch.Tensor) and type(new) is types.FunctionType and has_rules(cls) and not refusal(cls)


def has_default_rules(cls: type) -> bool:
    """Are they torch's own, which keep the class?"""
    kind: Any = cls
    return getattr(kind.__torch_function__, "__func__", None) is DEFAULT


def owner_of(cls: type, name: str) -> type | None:
    """Which of a tensor's own classes has this attribute, instead of torch's."""
    if cls in PLAIN_TENSORS or subclasses.wraps(cls):
        return None
    return next((c for c in own_classes(cls) if name in vars(c)), None)


@functools.cache
def _changes_view(name: str) -> bool:
    """Does this method change which elements its tensor has, or how autograd sees it, and not what they are?"""
    packet = getattr(torch.ops.aten, name, None) if name.endswith("_") and not name.startswith("_") else None
    return packet is not None and any(torch.Tag.inplace_view in getattr(packet, n).tags for n in packet.overloads())


def _writes(name: str) -> bool:
    """Does a method of this name write to its tensor?"""
    in_place = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__", "__iter__")
    return in_place or name == "__setitem__" or (name.endswith("_") and name[:2] != "__" and name != "requires_grad_")


def flat(values: Any) -> list[Any]:
    """The tensors among arguments, as deep as torch looks for them."""
    found = []
    for value in values:
        if is_stand_in(value):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += flat(value)
        elif isinstance(value, dict):
            found += flat(value.values())
    return found


def nobody(func: Any, classes: Any, args: Any, kwargs: Any) -> Any:
    """Where no program's code is asked."""
    return NotImplemented


class Rules:
    """Who has a say in what is computed: the classes of tensors, and torch function modes that the frame has entered.

    Args:
        guards: get that torch asks classes at all.
        by_program: what they make of an operation, see ``torch_function.py``.
    """

    def __init__(self, guards: GuardSet, by_program: Callable[..., Any]) -> None:
        self.guards = guards
        self.by_program = by_program
        self.classes: dict[int, type] = {}  # id(stand-in) -> its class
        self.asked = torch_private.asks_classes()  # where the frame is called
        self.is_plain = int(not self.asked)  # how often all tensors are to be plain ones meanwhile
        self.open_unasked: list[int] = []  # the steps at which the program has said so
        self.modes: list[tuple[Any, int]] = []  # and those at which it has entered modes

    def know(self, fake: Any, cls: type) -> None:
        """A stand-in is of a class with rules."""
        asks = torch_private.asks_classes
        self.guards.guard(self.guards.const(asks), "true", f"{{v}}() is {self.asked}")
        guard_special(self.guards, cls)
        self.classes[id(fake)] = cls

    def plain_source(self, fake: Any, source: Source) -> Source:
        """Where code finds the plain tensor for a stand-in from outside."""
        return source.step("plain") if id(fake) in self.classes else source

    def among(self, *values: Any) -> list[type]:
        """The classes among arguments that have rules now, in the order in which torch asks them."""
        found: list[type] = []
        for value in flat(values) if self.classes and not self.is_plain else ():
            cls = self.classes.get(id(value))
            if cls is not None and cls not in found:
                at = next((i for i, other in enumerate(found) if issubclass(cls, other)), len(found))
                found.insert(at, cls)
        return found

    def have_a_say(self, *values: Any) -> bool:
        """Is it for the program to say what an operation on these does, or of which class its result is?"""
        return bool(self.modes or self.among(*values))

    def is_watched(self, fake: Any) -> bool:
        """Does the program's own code see which operation it is that is done to the stand-in?"""
        cls = None if self.is_plain else self.classes.get(id(fake))
        return bool(self.modes) or (cls is not None and not has_default_rules(cls))

    def refuse(self, fake: Any) -> None:
        """Break at a tensor of a class that has not been asked."""
        cls = None if self.is_plain else self.classes.get(id(fake))
        if cls is not None:
            raise Break(f"a tensor of class {cls.__qualname__} in what does not ask its class", HINT)

    def refuse_writes(self, tracer: Any, func: Any, args: Any, kwargs: Any) -> None:
        """Break before what changes more of a tensor from outside than the data that the graph's plain one shares."""
        if not self.classes:
            return
        name = str(getattr(func, "__name__", "")).partition(".")[0]
        out = flat([kwargs.get("out")])
        for value in [*(args[:1] if _changes_view(name) else ()), *out]:
            if id(value) in self.classes and id(value) in tracer.adopted:
                raise Break(f"{name}() changes a {self.classes[id(value)].__qualname__} from outside", WRITE_HINT)
        written = {metadata.storage(t) for t in [*(flat(args[:1]) if _writes(name) else ()), *out]}
        for leaf in self._leaves(tracer) if written else ():
            if metadata.storage(leaf) in written:
                self._refuse_leaf(leaf)

    def refuse_written_leaves(self, tracer: Any) -> None:
        """The same at a write that nobody has foreseen."""
        for leaf in self._leaves(tracer):
            if metadata.version_of(leaf) != tracer.versions[id(leaf)]:
                self._refuse_leaf(leaf)

    def _leaves(self, tracer: Any) -> list[Any]:
        """Leaves from outside that a graph may not write to where autograd runs on it, and not on one for gradients.

        The graph's plain tensor is a view of it. One of a view of what needs no gradients, as most such leaves are, no
        longer leads back to the leaf once it has been written to.
        """
        known = () if tracer.dense_gradients else [key for key in self.classes if key in tracer.adopted]
        leaves = [tracer.stand_ins[id(tracer.adopted[key][0])] for key in known]
        with torch_private.DisableTorchFunction():
            return [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf]

    def _refuse_leaf(self, leaf: Any) -> None:
        raise Break(f"a leaf of class {self.classes[id(leaf)].__qualname__} is written to", WRITE_HINT)

    @contextlib.contextmanager
    def as_plain(self) -> Iterator[None]:
        """All tensors are plain ones meanwhile."""
        self.is_plain += 1
        try:
            yield
        finally:
            self.is_plain -= 1

    def ask(self, tracer: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        """What the program makes of an operation of torch's, called as torch does: without the tracer's own mode."""
        modes = torch_private.function_modes()
        torch_private.set_function_modes([mode for mode in modes if mode is not tracer])
        try:
            return self.by_program(func, (), args, kwargs)
        finally:
            torch_private.set_function_modes(modes)
