"""Tools that know the core by its hooks and events: bisect, minifier, replay, report."""
