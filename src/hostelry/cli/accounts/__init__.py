"""Commands on accounts, users and their keys."""
