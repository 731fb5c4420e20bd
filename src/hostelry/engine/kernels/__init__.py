"""Each kernel's plain-torch form, which defines its result."""
