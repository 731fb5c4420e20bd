"""Reads and writes objects of the object store as streams."""
