"""What an instruction needs of Python's semantics: attributes, calls, containers, operators, builtins, C code."""
