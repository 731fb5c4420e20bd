"""`hostelry apply` and `export`: make resources match documents, and write documents of them."""
