"""Each kernel beside its plain-torch twin, which defines the result."""
