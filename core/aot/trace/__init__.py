"""A captured graph run once more below functionalization and autograd: the joint ATen graph."""
