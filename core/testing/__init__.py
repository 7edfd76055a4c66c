"""Comparing a compiled program with eager: for jitney's own tests, and for those of backends.

Needs ``pip install jitney[testing]``.
"""
