"""The fleet on a Ray cluster: every ML instance is an agent that a detached actor manages."""
