"""Turns a plan's integers into one ForwardBatch and runs the model; owns the cache tensors."""
