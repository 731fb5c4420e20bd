"""Acts of the operator: what each would do, and the record that asks for it. Pure."""
