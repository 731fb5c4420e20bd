"""Programs under `hostelry exec`: the proxy between them and AWS, and the report of their calls."""
