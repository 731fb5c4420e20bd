"""What a copy may be given, from plain values: its image's rule, variables, limits, user."""
