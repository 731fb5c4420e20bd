"""Load tests through the gateway, and their results."""
