"""Equal blocks of a graph are lowered, fused and made kernels once."""
