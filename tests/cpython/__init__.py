"""CPython's own tests of the language, method by method, plain and compiled: make cpython."""
