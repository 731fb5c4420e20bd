"""Responses: generated tokens in the form of each schema."""
