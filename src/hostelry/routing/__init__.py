"""Pure: which copy gets this request."""
