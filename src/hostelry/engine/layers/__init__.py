"""Attention, norm, rope and linear layers over one ForwardBatch."""
