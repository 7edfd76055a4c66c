"""What a graph computes of nothing: it is known while the graph is compiled."""
