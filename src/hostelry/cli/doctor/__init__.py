"""`hostelry doctor`: what a machine can do, what is missing, and how to get it."""
