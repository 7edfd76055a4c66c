"""What all parts share and that knows of no graph: callers, copies, type checks, whose code it is."""
