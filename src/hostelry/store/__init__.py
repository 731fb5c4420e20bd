"""Versioned records with compare-and-set, list and watch."""
