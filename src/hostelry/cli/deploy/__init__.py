"""`hostelry deploy`: a source to a served model, over the public APIs."""
