"""Backups of a home: taken while it runs, verified, restored into an empty home."""
