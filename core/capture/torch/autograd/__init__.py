"""What torch.autograd and torch.func do to functions: custom functions, hooks, transforms, checkpoints."""
