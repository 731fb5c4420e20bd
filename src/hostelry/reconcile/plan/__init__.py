"""The plan of one endpoint: pure functions from its state to what should be recorded."""
