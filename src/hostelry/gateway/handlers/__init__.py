"""Handlers, one an API: verify the caller, serve the call, format errors."""
