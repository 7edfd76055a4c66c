"""The Python around compiled halves: autograd functions, writes to inputs, the backward at its first call."""
