"""Arguments to config; talks to a running hostelry through its public APIs; prints."""
