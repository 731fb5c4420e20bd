"""Fixtures and settings of every test."""

from hypothesis import settings

# Machines are shared: how long a case takes says nothing of the code.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
