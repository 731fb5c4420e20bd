"""Runs the schema revisions on the connection that `schema.migrate` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
