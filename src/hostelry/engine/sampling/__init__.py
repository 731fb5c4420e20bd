"""Logits in, token ids out; each row depends on its own request alone."""
