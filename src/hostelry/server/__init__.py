"""Composition roots: the only place that wires classes together and reads the environment."""
