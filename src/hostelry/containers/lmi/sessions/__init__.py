"""Stateful sessions: opened, named by requests, closed, expired."""
