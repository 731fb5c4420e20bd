"""Load balancing: destinations, copies, sessions, adapters."""
