"""One file an architecture, and how a Hugging Face folder is read."""
