"""From an ATen graph to a program: one walk that asks each operator's rule."""
