"""The agent of one instance, and each copy that it hosts."""
