"""From a gateway worker to the mirror: turns, messages, both ends of the line."""
