"""Acts of the operator: restarts and drains, planned and recorded. Pure."""
