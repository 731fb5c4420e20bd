"""A module for each schema revision, oldest first by name."""
