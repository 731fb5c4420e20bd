"""HTTP: client connections with their limits, and connections to copies."""
