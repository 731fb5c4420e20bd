"""The place of a store: a path is a file of SQLite, a URL a database of PostgreSQL."""

SCHEMES = ("postgresql://", "postgres://")
