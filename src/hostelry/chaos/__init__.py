"""Drills: faults done on purpose to a running platform, under load, and the measured recovery."""
