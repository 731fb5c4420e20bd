"""The server's routes, and the state that they read."""
