"""Fixtures and settings of every test."""

import signal

from hypothesis import settings

# Machines are shared: how long a case takes says nothing of the code.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

# A shell has its background jobs ignore Ctrl-C, and so all that tests start, and press it for.
signal.signal(signal.SIGINT, signal.default_int_handler)
