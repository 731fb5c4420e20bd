"""Errors of EventBridge Scheduler, whose message member is `Message`."""

from hostelry.base.errors import ServiceError


def absent(message: str) -> ServiceError:
    """The error for a schedule or group that is not there."""
    return ServiceError("ResourceNotFoundException", message, 404)


def conflict(message: str) -> ServiceError:
    """The error for a name that is taken."""
    return ServiceError("ConflictException", message, 409)


def invalid(message: str) -> ServiceError:
    """The error for a value that is refused."""
    return ServiceError("ValidationException", message, 400)
