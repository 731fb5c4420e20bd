"""Alembic's environment. `schema.migrate` runs it when a store is opened.

While a platform is upgraded, controls of two versions use one database. So each revision states
which programs can still use it: `USABLE_FROM` is the oldest revision whose programs can.

1. Expand. A release may add tables and indexes, and columns that are nullable or have a default of
   the server. Programs of the release before neither read nor write them. `USABLE_FROM` stays.
2. Contract. Tables and columns that no program of the release before uses may be removed, or become
   required. `USABLE_FROM` is the revision of the release before, and never a later one.

To change the type or name of a column, do both: add a column under a new name, write both columns
in one release, read the new column in the next release, and remove the old column in the third.
"""
