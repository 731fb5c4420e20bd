"""`hostelry doctor`: a machine's abilities, missing parts and their remedies."""
