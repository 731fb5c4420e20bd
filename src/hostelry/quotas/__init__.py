"""Quotas: those that select a call, the decision about it, and its charge. Pure."""
