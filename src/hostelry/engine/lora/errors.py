"""Why an adapter is refused."""


class AdapterError(ValueError):
    """The adapter cannot be applied exactly; the message names field or tensor and value."""
