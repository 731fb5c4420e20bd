"""Routing decisions: pure functions of routes, loads, assignments and one random draw."""
