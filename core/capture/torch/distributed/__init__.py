"""Several processes: what they send each other, and gradients that they share."""
