"""Cells: whole platforms that share nothing, behind a router that knows which one has what."""
