"""EventBridge: rules on the default bus."""
