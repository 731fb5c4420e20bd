"""Alembic's environment; `schema.migrate` runs it when a store is opened."""
