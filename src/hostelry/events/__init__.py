"""EventBridge's bus: which rules an event matches, and the calls that follow."""
