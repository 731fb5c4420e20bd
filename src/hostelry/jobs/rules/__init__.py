"""Decisions of jobs: plain values in, decisions out. PURE."""
