"""From generated tokens to the answer of each schema."""
