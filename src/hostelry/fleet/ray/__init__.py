"""The fleet on a Ray cluster: every ML instance is an agent, in the care of a detached actor."""
