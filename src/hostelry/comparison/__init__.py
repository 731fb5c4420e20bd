"""Comparison of a new version with an old one, from counts of their requests. Pure."""
