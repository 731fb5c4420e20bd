"""A model author's code in processes of its own, confined by the kernel; of every model server."""
