"""What a program computes of nothing on the host and then uses on a device is computed once, while it is compiled.

``torch.zeros(n).to(device)``, positions, frequencies, windows of a filter: eager copies them at each call, for which
the host waits, and no recording of a device's work can hold such a copy.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import fx

from jitney.aot.constants.values import ancestors, compute
from jitney.aot.partition.cost import EMPTY, bytes_of, has_effect
from jitney.torch_compat import torch_private

aten = torch.ops.aten
HOST = "cpu"
COMPUTED = 1 << 26  # bytes that are computed for the constants of one graph, at most
KEPT = 1 << 20  # bytes of constants of one graph: with more, no later process finds it on disk
NUMBERS = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
     torch.float16, torch.bfloat16, torch.float32, torch.float64}
)  # fmt: skip
FILLS = frozenset({aten.fill.Tensor, aten.copy.default, aten.masked_fill.Tensor})


def fold_host_constants(graph: fx.Graph, constants: dict[str, torch.Tensor]) -> None:
    """Put constants in the place of what is computed of nothing on the host and copied to a device, or read there.

    Of what is read there, only single numbers: ``x[0] = 0.5`` fills a part of ``x`` with a tensor of the host.

    Args:
        graph: functional, with an output node; changed. ``full`` stands for one number everywhere, else a constant.
        constants: the graph's attributes; added to.

    What would take more than ``KEPT`` bytes stays as it is.
    """
    candidates = [node for node in graph.nodes if _leaves_the_host(node)]
    readers = [(node, number) for node in graph.nodes for number in _host_numbers(node)]
    folder = _Folder(graph, constants) if candidates or readers else None
    if folder is None or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    copies = [node for node in candidates if node.args[0] in folder.known]
    # No memory, or an operator that raises: the call will tell.
    with contextlib.suppress(RuntimeError), torch_private.without_modes(), torch.inference_mode(False), torch.no_grad():
        for node in copies:
            folder.fold(node)
        for node, number in readers:
            if number in folder.known:
                folder.replace(node, number)


def _leaves_the_host(node: fx.Node) -> bool:
    """Is it a copy to a device?"""
    if node.target is not aten._to_copy.default or not isinstance(node.args[0], fx.Node):
        return False
    value: torch.Tensor = node.meta["val"]
    from_host = node.args[0].meta["val"].device.type == HOST
    return from_host and value.device.type != HOST and value.layout is torch.strided and value.dtype in NUMBERS


def _host_numbers(node: fx.Node) -> list[fx.Node]:
    """Single numbers of the host that an operator reads which computes element by element on a device."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device.type == HOST or node.target is aten._to_copy.default:
        return []
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()) and node.target not in FILLS:
        return []
    given = [(n, n.meta.get("val")) for n in node.all_input_nodes]
    return [
        n for n, v in given
        if isinstance(v, torch.Tensor) and v.device.type == HOST and not v.dim() and v.dtype in NUMBERS
    ]  # fmt: skip


class HostValues:
    """What a graph computes of nothing on the host.

    Args:
        graph: functional.
        constants: its attributes.
    """

    def __init__(self, graph: fx.Graph, constants: dict[str, torch.Tensor]) -> None:
        self.graph = graph
        self.constants = constants
        self.known: set[fx.Node] = set()  # values of the host that depend on no input
        self._values: dict[fx.Node, torch.Tensor] = {}
        computed = 0
        for node in graph.nodes:
            if self._is_known(node) and computed + bytes_of(node) <= COMPUTED:
                computed += bytes_of(node)
                self.known.add(node)

    def _is_known(self, node: fx.Node) -> bool:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.device.type != HOST or value.layout is not torch.strided:
            return False
        if any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride())):
            return False
        if node.op == "get_attr":
            return True
        computes = isinstance(node.target, torch_private.OPERATOR_CLASSES) and node.target not in EMPTY
        return computes and not has_effect(node) and all(n in self.known for n in node.all_input_nodes)

    def value(self, node: fx.Node) -> torch.Tensor:
        """What is computed of nothing; so is all that it is computed of."""
        if node not in self._values:
            compute(ancestors(node), self.constants, self._values)
        return self._values[node]

    def erase(self, node: fx.Node) -> None:
        """Erase what nobody reads any more."""
        for each in (waiting := [node]):
            if not each.users:
                waiting += [n for n in each.all_input_nodes if n in self.known and n not in waiting]
                self.graph.erase_node(each)


class _Folder(HostValues):
    left = KEPT

    def fold(self, node: fx.Node) -> None:
        """Put a constant in the place of a copy, if it is small enough."""
        like: torch.Tensor = node.meta["val"]
        source = self.value(node.args[0])  # type: ignore[arg-type] # a node
        value = aten._to_copy.default(source, **{**node.kwargs, "device": torch.device(HOST)})
        if value.stride() != like.stride() or not _in_range(source, value.dtype):
            return
        with self.graph.inserting_before(node):
            if value.is_contiguous() and (number := _number(value)) is not None:
                kinds: dict[str, Any] = {"dtype": like.dtype, "device": like.device, "pin_memory": False}
                made = self.graph.call_function(aten.full.default, ([*like.shape], number), kinds)
            elif value.nbytes <= self.left:
                self.left -= value.nbytes
                name = f"_host_constant{len(self.constants)}"
                self.constants[name] = moved(value, like.device)
                read = self.graph.create_node("get_attr", name)
                read.meta = dict(node.meta)
                # The copy may be a result, which the program may write to.
                made = self.graph.call_function(aten.clone.default, (read,))
            else:
                return
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        self.erase(node)

    def replace(self, node: fx.Node, number: fx.Node) -> None:
        """Give an operator the number where it computes: both take part in the choice of a dtype alike.

        Not where eager's kernels would round it there only: they compute with a number of the host as it is.
        """
        value, device = self.value(number), node.meta["val"].device
        others = [n.meta["val"].dtype for n in node.all_input_nodes if n is not number]
        if node.target not in FILLS and not all(_is_exact(value, dtype) for dtype in others):
            return
        kinds: dict[str, Any] = {"dtype": value.dtype, "device": device, "pin_memory": False}
        with self.graph.inserting_before(node):
            made = self.graph.call_function(aten.full.default, ([], value.item()), kinds)
        with torch_private.without_modes():
            made.meta = {**number.meta, "val": number.meta["val"].to(device)}
        node.replace_input_with(number, made)
        self.erase(number)


def _is_exact(value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Is a number not rounded where it meets this dtype? Of integers and floats the float's is the result's."""
    if not dtype.is_floating_point or not value.dtype.is_floating_point:
        return True
    return bool((value.to(dtype).double() == value.double()).all()) or bool(value.isnan())


def _in_range(value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Does it become the same numbers of a type on every device? Floats beyond an integer's range do not."""
    if dtype.is_floating_point or dtype is torch.bool or not value.is_floating_point():
        return True
    ends, wide = torch.iinfo(dtype), value.double()
    return bool(((wide > ends.min - 1.0) & (wide < ends.max + 1.0)).all())


def moved(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same elements on a device."""
    return value.to(device)


def _number(value: torch.Tensor) -> Any:
    """The number that all elements are, to the bit; None if there is none."""
    if not value.numel():
        return None
    data = value.reshape(-1).view(torch.uint8).view(-1, value.element_size())
    return value.reshape(-1)[0].item() if bool((data == data[0]).all()) else None
