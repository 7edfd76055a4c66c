"""Rows of few elements: written out, or gone through in blocks, so that vectors go along the rows."""
