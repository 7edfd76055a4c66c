"""The optional toolkit for backends that make kernels: index arithmetic, loops, fusion, memory plan."""
