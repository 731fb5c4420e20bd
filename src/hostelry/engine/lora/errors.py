"""Why an adapter is refused."""


class AdapterError(ValueError):
    """The adapter cannot be applied exactly; the message names field or tensor and value."""


class AdapterTooLargeError(AdapterError):
    """Host memory or the pool could never hold it; the message names sizes and setting."""
