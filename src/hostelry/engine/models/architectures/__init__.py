"""One file per architecture: its config.json, and the norms of its layers."""
