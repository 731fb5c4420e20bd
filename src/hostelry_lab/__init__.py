"""Drills: faults injected into a running platform under load, and the measured recovery.

A separate package (`lab/pyproject.toml`). `hostelry chaos` runs the drills if it is installed.
"""
