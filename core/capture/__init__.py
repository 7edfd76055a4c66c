"""Python bytecode to FX graphs and the Python around them."""
