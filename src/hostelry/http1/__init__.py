"""HTTP/1.1 of all processes: the heads of messages, and the client that keeps connections."""
