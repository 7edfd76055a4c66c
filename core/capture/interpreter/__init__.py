"""The interpreter of bytecode: frames, instructions, generators, breaks and what goes on after them."""
