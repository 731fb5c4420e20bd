"""`hostelry deploy`: make a served model of a source, over the public APIs."""
