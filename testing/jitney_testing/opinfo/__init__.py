"""torch's OpInfo database as a test of backends."""
