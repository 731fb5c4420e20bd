"""KMS: symmetric keys, aliases, and encryption under them."""
