"""NumPy arrays while capturing: stand-ins around tensors, and NumPy's functions in terms of torch's."""
