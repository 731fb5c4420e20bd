"""Where adapters' files come from."""
