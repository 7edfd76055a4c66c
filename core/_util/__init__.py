"""What all parts share and that knows of no graph: callers, type checks, whose code it is."""
