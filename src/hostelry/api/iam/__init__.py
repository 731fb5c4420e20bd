"""IAM: roles, policies and instance profiles are kept and simulated; calls are not held to them."""
