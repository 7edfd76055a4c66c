"""Functional ATen graphs, the joint graph, the cut between forward and backward, and the glue around them."""

from jitney.aot.compiler import AotRequest, compile_graph
from jitney.aot.signals import NotSplit

__all__ = ["AotRequest", "NotSplit", "compile_graph"]
