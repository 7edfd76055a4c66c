"""Comparisons of numbers that the graph reads out of tensors, computed before it runs: of tensors that the host has.

So are branches on such tensors themselves (``if t > 0``, ``if (grid[1:] > grid[:-1]).all()``), of few elements each.

An optimizer's step counter is a tensor of one number on the CPU, and some optimizers do something else once they have
counted far enough. What the graph computes of such tensors, given before the frame begins, is computed here of copies,
while capturing and as a guard at each call: the branch is taken that eager would take. Few numbers come often (all
parameters have the same counter), so answers are remembered.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney._util import negative_powers
from jitney.capture import metadata
from jitney.capture.kinds import is_stand_in
from jitney.capture.numpy.constants import constant_of
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.guards import Source
from jitney.guards.host_tensors import Apart, HostComparison
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

MOST = 64  # operations of one comparison
FEW = 64  # elements of a tensor that a branch is computed of
# Operations of tensors of one number, by name: as methods, functions, and functions of lists.
COMPUTED = frozenset(
    "add sub mul div pow neg abs sqrt exp log maximum minimum clamp_min clamp_max reciprocal "
    "eq ne lt le gt ge logical_not remainder".split()
)
MADE = frozenset({torch.tensor, torch.zeros, torch.ones, torch.full})
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
# Of those, where a number comes first: Python asks the tensor's reflected method.
REFLECTED: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow,
}  # fmt: skip
# Operations that branches on tensors are made of besides these, as methods, functions and operators; none is in place,
# and none is one that autocast computes in another dtype (``prod``): it is on in other places than where guards run.
TESTS = frozenset(
    """and_ or_ xor invert __and__ __or__ __xor__ __invert__ bitwise_and bitwise_or bitwise_not
    logical_and logical_or logical_xor isfinite isnan isinf all any sum amin amax min max where
    floordiv truediv mod floor_divide floor ceil round index_select gather flip sign clamp clip
    to type_as clone contiguous bool int long float double""".split()
)
VIEWS = frozenset("getitem select narrow unbind reshape view flatten squeeze unsqueeze expand".split())
READS = frozenset({"item", "to", "type_as", "clone", "copy_", "where"})  # what else may be done to such a tensor


def host_comparison(vm: Interpreter, symbol: str, a: Any, b: Any) -> bool | None:
    """What a comparison of such numbers gives, which is guarded; None where only the running graph knows."""
    try:
        found = _Copy(vm)
        graph_args = (found.number(a), found.number(b))
    except _Unknown:
        return None
    return _guarded(vm, found, found.graph.call_function(COMPARISONS[symbol], graph_args))


def host_truth(vm: Interpreter, tensor: Any) -> bool | None:
    """What ``if tensor:`` comes to, which is guarded; None where only the running graph knows."""
    tracer = vm.tracer
    if not vm.foresees or tracer is not vm.world.tracer or tracer.region is not None:
        return None
    if type(tensor) is not torch_private.FakeTensor or not _is_of_few(tensor, 1):
        return None
    if constant_of(tracer, tensor) is not None or not (id(tensor) in tracer.nodes or id(tensor) in tracer.adopted):
        return None
    try:
        found = _Copy(vm, FEW, tests=True)
        truth = found.tensor(tracer.node_of(tensor))
    except _Unknown:
        return None
    return _guarded(vm, found, found.graph.call_method("item", (truth,)))


@special(torch.Tensor.item)
def _item(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    number = host_number(vm, args[0]) if len(args) == 1 and not kwargs else None
    return vm.native(torch.Tensor.item, *args, **kwargs) if number is None else number


def host_number(vm: Interpreter, tensor: Any) -> Any:
    """The integer that a tensor of the host from outside holds, or one that the frame has computed of such integers.

    One from outside is a number from outside, like an attribute's; a computed one is a constant, which is guarded. None
    where it has been written to, or may have been, and where too many forms have been compiled for such numbers.
    """
    tracer = vm.tracer
    if not vm.foresees or tracer is not vm.world.tracer or tracer.region is not None:
        return None
    if type(tensor) is not torch_private.FakeTensor or tensor.is_floating_point() or not _is_of_few(tensor, 1):
        return None
    if id(tensor) not in tracer.adopted:
        known = constant_of(tracer, tensor) is not None or id(tensor) not in tracer.nodes
        return None if known or _is_read_in_the_graph(vm) else _computed_number(vm, tracer.nodes[id(tensor)])
    real, source = tracer.adopted[id(tensor)]
    if type(real) is not torch.Tensor or metadata.version_of(tensor) != tracer.versions[id(tensor)]:
        return None
    if _is_read_in_the_graph(vm):
        return None
    found = _Copy(vm)
    if not found.is_as_it_was(tensor) or not (found.quiet or _are_apart(vm, [real])):
        return None
    with torch_private.without_modes():
        number = real.item()
    return vm.world.wrap(number, source.attr("item").step("call"))


def _is_read_in_the_graph(vm: Interpreter) -> bool:
    """Will a number in the graph do, as far as anybody knows?"""
    if not vm.tracer.symbols.reads_numbers or vm.reads_ahead:
        return False
    vm.may_read_ahead = True
    return True


def _computed_number(vm: Interpreter, node: fx.Node) -> Any:
    """What a tensor of one integer comes to, computed of such tensors of the host; the guard is that it does again."""
    try:
        found = _Copy(vm, 1, tests=True)
        item = found.graph.call_method("item", (found.tensor(node),))
    except _Unknown:
        return None
    output = found.graph.output(item)
    run = fx.GraphModule(torch.nn.Module(), in_order(found.graph)).forward
    try:
        with torch_private.without_modes(), torch.no_grad():
            number = run(*(real for real, _ in found.given.values()))
    except Exception:  # the running graph raises, where the program may catch it
        return None
    found.graph.erase_node(output)
    equal = found.graph.call_function(operator.eq, (item, number))
    return number if _guarded(vm, found, equal) else None


def _guarded(vm: Interpreter, found: _Copy, result: fx.Node) -> bool | None:
    found.graph.output(result)
    module = fx.GraphModule(torch.nn.Module(), in_order(found.graph))
    asked = HostComparison(module.forward, module.code)
    given = list(found.given.values())
    tensors = [real for real, _ in given if isinstance(real, torch.Tensor)]
    if tensors and not found.quiet and not _are_apart(vm, tensors):
        return None
    with torch_private.without_modes():
        answer = asked(*(real for real, _ in given))
    if answer is None:
        return None
    for _, source in given:
        source.wanted = True
    if given:
        vm.world.comparisons.append((asked, tuple(source for _, source in given), answer))
    return answer


def _are_apart(vm: Interpreter, asked: list[torch.Tensor]) -> bool:
    """Guard that nothing that the frame has written to shares memory with these; False if it does, or nobody knows."""
    tracer, comparisons = vm.tracer, vm.world.comparisons
    unseen = any(node.args[1] == "data" for node in tracer.graph.find_nodes(op="call_function", target=getattr))
    if not comparisons or not isinstance(comparisons[0][0], Apart):
        comparisons.insert(0, (Apart(), (), True))
    known: Any = comparisons[0][0]
    apart = known.copy()
    ids = set(map(id, asked))
    for fake in tracer.outside():
        own = id(tracer.adopted[id(fake)][0]) in ids
        written = unseen or metadata.version_of(fake) != tracer.versions[id(fake)]
        if written and type(fake) is not torch_private.FakeTensor:
            return False
        if (own or written) and fake.device.type == "cpu":
            apart.add(fake, own, written)
    found = [tracer.adopted[id(fake)] for fake in apart.fakes]
    with torch_private.without_modes():
        if not apart(*(real for real, _ in found)):
            return False
    for _, source in found:
        source.wanted = True
    comparisons[0] = apart, tuple(source for _, source in found), True
    return True


def in_order(graph: fx.Graph) -> fx.Graph:
    """The graph with its placeholders first, as they must be."""
    first = next(iter(graph.nodes))
    for node in reversed(graph.find_nodes(op="placeholder")):
        first.prepend(node)
        first = node
    return graph


def _is_of_few(made: Any, most: int) -> bool:
    """Is it a tensor of the host with no more elements than that?"""
    if not is_stand_in(made) or made.device.type != "cpu" or made.dtype.is_complex:
        return False
    count = made.numel()
    return type(count) is int and (count == 1 or 0 < count <= most)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("example_value"), torch.Tensor)


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_view(node: fx.Node) -> bool:
    first = node.args[0] if node.args else None
    of_a_list = isinstance(first, fx.Node) and _name(first).startswith("_foreach_")
    return _name(node) in VIEWS and not of_a_list


def _is_constant(value: Any) -> bool:
    plain = value is None or type(value) in (int, float, bool, torch.dtype, torch.device, torch.Size, str)
    return plain or (type(value) is tuple and all(map(_is_constant, value)))


def _only_computes(user: fx.Node, node: fx.Node) -> bool:
    """Does an operation leave a tensor as it was, or write to it as its own node tells?

    Other writes, such as those to items, statistics of a norm, or by operators of the program's, are not seen here.
    """
    if user.op == "output":
        return True
    name = _name(user)
    if "out" in user.kwargs:
        return False
    if name in READS:
        return not name.endswith("_") or user.args[0] is not node
    given = (*user.args, *user.kwargs.values())
    lists = [a for a in given if isinstance(a, (list, tuple))]
    if name.startswith("_foreach_"):
        once = all(sum(a is node for a in many) <= 1 for many in lists)
        places = {at for many in lists for at, a in enumerate(many) if a is node}
        # Where it is written to at one place, what another place has read of it is either before or after.
        alone = not name.endswith("_") or (len(places) <= 1 and (not places or all(a is not node for a in given)))
        return once and alone and name.removeprefix("_foreach_").removesuffix("_") in COMPUTED
    return not lists and (name.removesuffix("_") in COMPUTED or name in TESTS)


def _nothing_is_written(tracer: Any, memory: set[Any]) -> bool:
    """Are all tensors from outside as they were when the frame began? ``memory``: where it has written."""
    before = [(metadata.version_of(fake), tracer.versions[id(fake)]) for fake in tracer.outside()]
    same = all(0 <= now == then for now, then in before)
    inside = memory.isdisjoint(metadata.storage(fake) for fake in tracer.outside() if is_stand_in(fake))
    return same and inside and not tracer.data_writes and not tracer.writes_statistics()


def _written_memory(tracer: Any) -> set[Any]:
    """Where the frame has written, by any tensor."""
    known = [fake for fake in tracer.known() if is_stand_in(fake)]
    return {metadata.storage(f) for f in known if metadata.version_of(f) != tracer.versions.get(id(f), 0)}


def _is_torchs(node: fx.Node) -> bool:
    """Is it what torch or Python has by that name, rather than a function of the program's?"""
    name = _name(node)
    return node.op == "call_method" or any(
        getattr(owner, name, None) == node.target for owner in (torch, operator, builtins)
    )


class _Unknown(Exception):
    """Only the running graph knows."""


class _Copy:
    """A graph of its own for what a number is computed of, of tensors with ``most`` elements.

    Args:
        tests: may it be computed by what branches on tensors are made of, too?
    """

    def __init__(self, vm: Interpreter, most: int = 1, *, tests: bool = False) -> None:
        self.vm = vm
        self.most = most
        self.tests = tests
        self.written = _written_memory(vm.tracer)
        self.quiet = _nothing_is_written(vm.tracer, self.written)
        self.graph = fx.Graph()
        self.given: dict[fx.Node, tuple[Any, Source]] = {}  # a placeholder of it -> the tensor or number
        self.copies: dict[fx.Node, fx.Node] = {}

    def number(self, value: Any) -> Any:
        """A number, or the node that computes it."""
        if type(value) is torch.SymInt or type(value) is torch.SymFloat:
            return self._symbol(value)
        return value

    def _symbol(self, value: Any) -> Any:
        symbols = self.vm.symbols
        expr = value.node.expr
        found = symbols.scalars.definitions.get(expr)
        if found is not None:
            arguments = tuple([self.number(a) for a in found.args])
            return self.graph.call_function(negative_powers.as_a_call(found.target, arguments), arguments)
        (tensor,) = symbols.read_by(expr) or (None,)
        if not isinstance(tensor, fx.Node):
            raise _Unknown
        return self.graph.call_method("item", (self.tensor(tensor),))

    def tensor(self, node: fx.Node) -> fx.Node:
        """The copy of a tensor's node, after those of all that it is computed of, in the order of the graph."""
        if node in self.copies:
            return self.copies[node]
        if len(self.copies) > MOST:
            raise _Unknown
        made: Any = node.meta.get("example_value")
        if type(made) in (torch.SymInt, torch.SymFloat):
            self.copies[node] = self._number_from_outside(node, made)
            return self.copies[node]
        if type(made) in (tuple, list) and node.target == "unbind":
            self.copies[node] = self._test(node, "unbind")
            return self.copies[node]
        if not _is_of_few(made, self.most):
            raise _Unknown
        self.copies[node] = self._input(node, made) if node.op == "placeholder" else self._operation(node)
        if not self._is_as_made(made):
            if _is_view(node) or not all(_only_computes(user, node) for user in node.users):
                raise _Unknown
        return self.copies[node]

    def _is_as_made(self, made: Any) -> bool:
        """Has nobody written to its memory?"""
        return self.quiet and metadata.version_of(made) >= 0 and metadata.storage(made) not in self.written

    def is_as_it_was(self, given: Any) -> bool:
        """Has the frame left a tensor from outside alone?"""
        node = self.vm.tracer.nodes.get(id(given))
        if node is None:
            return self.quiet or not self.is_shared(given)
        try:
            self.tensor(node)
        except _Unknown:
            return False
        return True

    def _number_from_outside(self, node: fx.Node, made: Any) -> fx.Node:
        """A size, or a number like one, or what the graph computes of them."""
        if self.vm.symbols.scalars.is_unknown(made):
            raise _Unknown
        if node.op != "placeholder":
            if getattr(operator, _name(node), None) is not node.target or node.kwargs:
                raise _Unknown
            return self.graph.call_function(node.target, tuple(map(self._argument, node.args)))
        source = next(given.source for given in self.vm.tracer.inputs if given.node is node)
        placed = self.graph.placeholder(f"t{len(self.given)}")
        self.given[placed] = made.node.hint, source
        return placed

    def _input(self, node: fx.Node, made: Any) -> fx.Node:
        real, source = self.vm.tracer.adopted.get(id(made), (None, None))
        if real is None or source is None or type(real) is not torch.Tensor:
            raise _Unknown
        if not self.quiet and self.is_shared(made):
            raise _Unknown
        placed = self.graph.placeholder(f"t{len(self.given)}")
        self.given[placed] = real, source
        return placed

    def is_shared(self, made: Any) -> bool:
        """Is there another tensor in its memory, by which the program may have written to it?"""
        known = [other for other in self.vm.tracer.known() if type(other) is torch_private.FakeTensor]
        with torch_private.DisableTorchFunction():
            place = metadata.storage(made)
            return any(other is not made and metadata.storage(other) == place for other in known)

    def _operation(self, node: fx.Node) -> fx.Node:
        """One operation; of an operation on lists that on the tensors at one place."""
        name = _name(node)
        args, kwargs = list(node.args), dict(node.kwargs)
        if node.target is operator.getitem:
            many, at = node.args
            name = _name(many) if isinstance(many, fx.Node) else ""
            if not name.startswith("_foreach_") or type(at) is not int or not isinstance(many, fx.Node):
                return self._test(node, "getitem")
            if not _is_torchs(many):
                raise _Unknown
            name = name.removeprefix("_foreach_")
            args = [a[at] if isinstance(a, (list, tuple)) else a for a in many.args]
            kwargs = {k: v[at] if isinstance(v, (list, tuple)) else v for k, v in many.kwargs.items()}
        elif node.target in MADE:
            named = {key: self._number_given(value) for key, value in kwargs.items()}
            return self.graph.call_function(node.target, tuple(map(self._number_given, args)), named)
        plain = name.removesuffix("_")
        if plain not in COMPUTED:
            return self._test(node, name)
        if "out" in kwargs or not _is_torchs(node):
            raise _Unknown
        if not args:  # its tensor is a named argument
            raise _Unknown
        arguments = tuple(map(self._argument, args)), {k: self._argument(v) for k, v in kwargs.items()}
        if not _is_tensor(args[0]):
            if plain not in REFLECTED or len(args) != 2 or kwargs or name != plain:
                raise _Unknown
            return self.graph.call_function(negative_powers.as_a_call(REFLECTED[plain], arguments[0]), arguments[0])
        if name == plain:
            return self.graph.call_method(plain, *arguments)
        written = self.graph.call_function(getattr(torch, plain), *arguments)
        return self.graph.call_method("type_as", (written, arguments[0][0]))

    def _test(self, node: fx.Node, name: str) -> fx.Node:
        """An operation as it is."""
        if not self.tests or name not in TESTS | VIEWS or "out" in node.kwargs or not _is_torchs(node):
            raise _Unknown
        kwargs = {key: self._part(value) for key, value in node.kwargs.items()}
        return self.graph.create_node(node.op, node.target, tuple(map(self._part, node.args)), kwargs)

    def _part(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.tensor(value)
        if type(value) in (tuple, list):
            return type(value)(map(self._part, value))
        ends = (value.start, value.stop, value.step) if type(value) is slice else (value,)
        if value is not Ellipsis and not all(map(_is_constant, ends)):
            raise _Unknown
        return value

    def _number_given(self, value: Any) -> Any:
        """An argument of what makes a tensor of numbers alone."""
        if isinstance(value, fx.Node) and not _is_tensor(value):
            return self.tensor(value)
        if not _is_constant(value):
            raise _Unknown
        return value

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.tensor(value)
        if type(value) not in (int, float, bool):
            raise _Unknown
        return value
