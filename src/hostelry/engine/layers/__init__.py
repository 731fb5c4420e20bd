"""Attention, norm, rope and linear layers over one explicit ForwardBatch."""
