"""Attention as Triton kernels: a score of any form between two products, forward and backward."""
