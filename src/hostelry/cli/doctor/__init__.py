"""`hostelry doctor`: what a machine supports, what is missing, and the remedies."""
