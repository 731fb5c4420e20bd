"""`hostelry apply` and `export`: steps from observed resources to desired documents, and back."""
