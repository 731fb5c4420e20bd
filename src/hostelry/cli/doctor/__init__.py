"""`hostelry doctor`: abilities of a machine, missing parts, and the remedies."""
