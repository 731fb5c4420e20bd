"""Filter patterns: which log events a search finds. Pure."""
