"""Metric queries: math, SEARCH and labels over a store."""
