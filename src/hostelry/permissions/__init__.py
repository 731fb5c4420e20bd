"""IAM policies: documents parsed and checked, and what they decide. Pure."""
