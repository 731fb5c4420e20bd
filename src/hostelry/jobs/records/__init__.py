"""Splits, batches, filters and joins records of transform jobs. PURE."""
