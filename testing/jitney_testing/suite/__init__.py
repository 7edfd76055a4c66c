"""The conformance suite: what every backend must do, a file for each group of checks, ``table.py`` lists them."""
