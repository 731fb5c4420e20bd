"""Parsers: the bytes of a request to an invocation."""
