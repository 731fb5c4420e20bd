"""The durable queue of asynchronous requests, and the outbox of their notifications."""
