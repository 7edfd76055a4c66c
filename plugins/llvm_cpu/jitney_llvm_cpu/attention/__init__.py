"""Attention on CPUs, block by block: products of some queries with all keys, a kernel for their score, products."""
