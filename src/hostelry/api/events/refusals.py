"""Errors of EventBridge, whose message member is `message`."""

from hostelry.base.errors import ServiceError


def absent(message: str) -> ServiceError:
    """The error for a rule or bus that is not there."""
    return ServiceError("ResourceNotFoundException", message, 400)


def invalid(message: str) -> ServiceError:
    """The error for a value that is refused."""
    return ServiceError("ValidationException", message, 400)
