"""Requests that wait for a copy."""
