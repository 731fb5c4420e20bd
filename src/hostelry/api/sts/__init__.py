"""STS: who calls, and temporary keys."""
