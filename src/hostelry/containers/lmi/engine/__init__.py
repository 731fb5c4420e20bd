"""The engine process, and the interface through which the server uses it."""
