"""Topics and queues: the receivers of a message, and its durable delivery."""
