"""One script a claim: each prints a table and writes JSON with commit, hardware, seed, command."""
