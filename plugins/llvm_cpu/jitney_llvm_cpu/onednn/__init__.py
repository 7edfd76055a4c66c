"""Convolutions by oneDNN, with weights that it has put in its own order before.

convolutions.py    an inference graph: which convolutions become torch's operator that takes such weights
packed.py          one of them in the wrapper: the weights in oneDNN's order, for as long as they are the same
digest.py          are they? 64 bits that depend on every byte, computed at the speed of memory
"""
