"""What moves through memory: what is computed again instead, and what is written where it belongs at once."""
