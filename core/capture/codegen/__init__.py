"""What a capture becomes: the text of one Python function."""
