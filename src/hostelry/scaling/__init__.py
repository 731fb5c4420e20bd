"""Scaling: `decide` (pure) says what capacity should be, `loop` reads, decides and acts."""
