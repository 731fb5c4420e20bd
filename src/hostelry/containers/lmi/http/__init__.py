"""The routes of the server, and the state that they serve from."""
