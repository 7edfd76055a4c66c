"""Classes of the program's that take part in torch's operations: of tensors, around tensors, and other objects."""
