"""Decisions of scaling: alarms and policies as pure functions of values and `now`."""
