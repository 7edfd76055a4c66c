"""A captured graph on its way to the backend: cut into subgraphs, split by AOT, compiled."""
