"""What backends may change in the whole functional graph, before it is cut: parts of their ``joint_pass``."""
