"""Each script checks a claim, prints a table and writes JSON with commit, hardware and seed."""
