"""Alembic's environment; `schema.migrate` runs it when a store is opened.

Controls of two versions use one database while a platform is upgraded, so each revision says which
programs can still use it: `USABLE_FROM` is the oldest revision that these were made for.

1. Expand. A release may add tables and indexes, and columns that are nullable or have a default of
   the server: programs of the release before neither read nor write them. `USABLE_FROM` stays.
2. Contract. What no program of the release before reads or writes may be removed, or become
   required. `USABLE_FROM` is the revision that the release before had, and never a later one.

A column is retyped or renamed by both: it is added under a new name, written beside the old one in
one release, read in the next one, and the old one is removed in the third.
"""
