"""Sampling of token ids from logits. Each row depends on its own request alone."""
