"""Counts and times of the server's requests, and the page of them for Prometheus."""
