"""Control: its wiring over the store and the reconcilers, and its internal routes."""
