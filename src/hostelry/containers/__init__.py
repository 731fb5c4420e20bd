"""Model servers that implement the container contract: /ping, /invocations, adapter routes."""
