"""IAM policies: documents parsed and checked, and their decisions. Pure."""
