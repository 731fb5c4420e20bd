"""`hostelry fit` of the running deployment: its records, and texts."""
