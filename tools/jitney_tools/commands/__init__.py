"""Commands of ``jitney`` for who looks for a fault."""
