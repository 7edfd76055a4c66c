"""Programs as people write them by hand, by topic."""
