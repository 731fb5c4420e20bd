"""Objects of inputs and outputs, streamed from and to the object store."""
