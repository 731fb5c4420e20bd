"""Bytes and connections: clients' requests in, answers out, and connections to copies."""
