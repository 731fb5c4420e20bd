"""Decisions of jobs. PURE."""
