"""Which copy of which destination gets a request."""
