"""Where buffers lie: places in an arena, memory of their own, and what may be written over what."""
