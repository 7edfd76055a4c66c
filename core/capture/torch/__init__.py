"""Tensors while capturing: stand-ins, symbols, and what torch has that is more than an operation."""
