"""Convolutions by oneDNN, with weights that it has put in its own order before, called from native code.

matrices.py        a graph: which convolutions are matrix products
subsampling.py     a graph: convolutions of pixels of which they read each second one
filter_order.py    a graph: filters in the order of images, for gradients
depthwise.py       a graph: gradients of depthwise convolutions for which oneDNN has no kernel
convolutions.py    an inference graph: which convolutions become torch's operator that takes such weights
packed.py          one of them in the wrapper: the weights in oneDNN's order, for as long as they are the same
trial.py           or plain ones, if these take less time
digest.py          are they? 64 bits that depend on every byte, computed at the speed of memory (digest_code.py)
calls.py           a schedule's convolutions as calls from native code
native.py          what these do without asking Python (native_code.py), and what they know: tables
question.py        what they ask
linear.py          large products of matrices, where oneDNN takes less time than MKL
linear_trial.py    may native code call oneDNN for them, and is that faster?
"""
