"""Index arithmetic: a small language of integers over loop variables and sizes."""
