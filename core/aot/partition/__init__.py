"""The joint graph cut in two: what the forward keeps for the backward."""
