"""Measurements of every request, and their reports to control."""
