"""One file an architecture: its config.json, and the norms of its layers."""
