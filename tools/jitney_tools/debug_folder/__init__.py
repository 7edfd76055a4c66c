"""The debug folder: what is compiled, as files to read."""
