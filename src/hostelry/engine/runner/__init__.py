"""Builds a step's tensors and runs the model."""
