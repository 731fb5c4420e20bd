"""Statuses and bodies of errors, as Triton's SageMaker endpoint has them. Pure."""

import msgspec

# Words of backends that have no memory: the endpoint answers 507, so that another model leaves.
NO_MEMORY = ("out of memory", "out_of_memory", "outofmemory", "memoryerror", "oom:", "oom)",
             "cublas_status_alloc_failed", "failed to allocate memory",
             "no space left on device")  # fmt: skip
INSUFFICIENT, REFUSED = 507, 400


def status_of(words: str) -> int:
    """The status for an error of Triton's: 507 for want of memory, 400 for every other."""
    lowered = words.lower()
    return INSUFFICIENT if any(it in lowered for it in NO_MEMORY) else REFUSED


def error_body(words: str) -> bytes:
    """The body of an error."""
    return msgspec.json.encode({"error": words})
