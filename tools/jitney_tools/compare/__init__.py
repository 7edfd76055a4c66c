"""Two runs beside each other: what differs, and whether that is a fault or a rounding."""
