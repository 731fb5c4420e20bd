"""Metrics on disk: a journal, snapshots, and how both are read again."""
