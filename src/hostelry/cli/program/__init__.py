"""`hostelry exec`: the proxy between a program and AWS, and the report of the program's calls."""
