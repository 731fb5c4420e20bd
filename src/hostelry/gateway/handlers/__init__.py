"""One handler an API: it verifies the caller, serves the call, and words its errors."""
