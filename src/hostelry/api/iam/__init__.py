"""IAM: roles, policies and instance profiles, stored and simulated but not enforced."""
