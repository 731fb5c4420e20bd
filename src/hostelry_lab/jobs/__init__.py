"""The drill of requests and batches that outlive their client: nothing lost, nothing doubled."""
