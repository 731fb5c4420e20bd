"""A model author's code, in separate processes that the kernel confines. For all model servers."""
