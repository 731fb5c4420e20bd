"""The engine: add and abort requests, the step loop."""
