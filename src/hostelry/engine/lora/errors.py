"""Refusals of adapters."""


class AdapterError(ValueError):
    """An adapter that cannot be applied exactly. The message names field or tensor and value."""


class AdapterTooLargeError(AdapterError):
    """An adapter too large for host memory or the pool. The message names sizes and setting."""


class UnknownAdapterError(ValueError):
    """No adapter of that name is registered. The base model never answers in its place."""
