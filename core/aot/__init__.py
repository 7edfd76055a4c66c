"""Functional ATen graphs, the joint graph, the cut between forward and backward, and the glue around them."""
