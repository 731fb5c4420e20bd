"""Routing decisions: pure functions of routes, loads, resident adapters and one random number."""
