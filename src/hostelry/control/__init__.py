"""Control: connects the store, the reconcilers and the internal routes."""
