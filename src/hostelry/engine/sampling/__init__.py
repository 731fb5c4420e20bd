"""Sampling of token ids from logits; each row depends on its own request alone."""
