"""Adapter files: parsing, validation, weights."""
