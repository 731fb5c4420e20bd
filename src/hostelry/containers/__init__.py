"""Model servers that keep the container contract: /ping, /invocations and the adapter routes."""
