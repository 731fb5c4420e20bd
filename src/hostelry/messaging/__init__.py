"""Topics and queues: who gets a message, and its durable delivery."""
