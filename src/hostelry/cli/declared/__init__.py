"""`hostelry apply` and `export`: documents of what is there; desired, observed -> steps."""
