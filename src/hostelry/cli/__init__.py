"""The commands: read arguments, call a running platform's public APIs, and print."""
