"""How fast programs are that nobody tuned for: models of many families, and programs as people write them."""
