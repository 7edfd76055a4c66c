"""Private names of torch.distributed and of ``DistributedDataParallel``."""
