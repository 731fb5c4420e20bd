"""The gateway: the APIs that clients call, admission, waiting requests, and shadows."""
