"""Pure: which instance holds which copy, or why none can."""
