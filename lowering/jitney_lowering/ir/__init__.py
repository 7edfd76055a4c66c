"""What a graph is lowered to: values, loop nests, kernels."""
