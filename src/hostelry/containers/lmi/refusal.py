"""Refusals of requests, and their status on each surface.

cause                                 -> status
bad request                           -> 424 on ASYNC, else configured (400)
unknown adapter                       -> 404 on OPENAI, else 424
prompt too long                       -> 424 on ASYNC and LEGACY, else configured (400)
queue full, not ready, timeout, engine -> configured (503, 503, 400, 500)
others                                -> FIXED
"""

import math
from collections.abc import Mapping
from enum import Enum

import msgspec

from hostelry.base.errors import HostelryError


class Surface(Enum):
    """Family of routes, which decides the form of errors."""

    ASYNC = "async"  # LMI's current handler on /invocations
    LEGACY = "legacy"  # LMI's rolling batch on /invocations
    OPENAI = "openai"  # the /v1 routes
    FRONT_END = "front_end"  # the server around the handlers: sizes, queue, adapters


class Cause(Enum):
    """Cause of a refusal."""

    BAD_REQUEST = "bad_request"
    TOO_LONG = "too_long"
    UNKNOWN_ADAPTER = "unknown_adapter"
    UNKNOWN_MODEL = "unknown_model"
    TOO_LARGE = "too_large"
    QUEUE_FULL = "queue_full"
    QUOTA = "quota"
    DEADLINE = "deadline"
    NOT_READY = "not_ready"
    TIMEOUT = "timeout"
    ENGINE = "engine"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    DEPENDENCY = "dependency"
    NO_MEMORY = "no_memory"


class StatusCodes(msgspec.Struct, frozen=True, kw_only=True):
    """The statuses that LMI lets a deployment configure."""

    bad_request: int = 400
    queue_full: int = 503
    not_ready: int = 503
    timeout: int = 400
    server_error: int = 500


FIXED: Mapping[Cause, int] = {
    Cause.UNKNOWN_ADAPTER: 424,
    Cause.UNKNOWN_MODEL: 404,
    Cause.TOO_LARGE: 413,
    Cause.QUOTA: 429,
    Cause.DEADLINE: 503,
    Cause.NOT_FOUND: 404,
    Cause.CONFLICT: 409,
    Cause.DEPENDENCY: 424,
    Cause.NO_MEMORY: 507,
}
HANDLER_FAILED = 424  # the status of LMI's async handler for nearly every bad request

EXCEPTION_NAMES: Mapping[int, str] = {
    400: "BadRequestException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    405: "MethodNotAllowedException",
    409: "ConflictStatusException",
    413: "PayloadTooLargeException",
    424: "DependencyFailedException",
    429: "ServiceUnavailableException",
    503: "ServiceUnavailableException",
    507: "InsufficientMemoryException",
}
OPENAI_TYPES: Mapping[int, str] = {
    400: "BadRequestError",
    404: "NotFoundError",
    413: "BadRequestError",
    424: "FailedDependencyError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


class Refusal(HostelryError):  # noqa: N818 - an answer to the client, most often not our error
    """A request that is not carried out. The message is for the client.

    `param` names the offending field of the body, if any. After `retry_after_s` a retry may
    succeed.
    """

    def __init__(
        self,
        cause: Cause,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response: Retry-After in whole seconds, if known."""
        if self.retry_after_s is None:
            return {}
        return {"retry-after": str(max(1, math.ceil(self.retry_after_s)))}


def bad_request(message: str, param: str | None = None) -> Refusal:
    """The refusal of an invalid request. The message names the field and its limits."""
    return Refusal(Cause.BAD_REQUEST, message, param)


def get_status(cause: Cause, surface: Surface, codes: StatusCodes) -> int:
    """The HTTP status of `cause` on `surface`."""
    if cause is Cause.BAD_REQUEST:
        return HANDLER_FAILED if surface is Surface.ASYNC else codes.bad_request
    if cause is Cause.TOO_LONG:
        of_lmi = surface in (Surface.ASYNC, Surface.LEGACY)
        return HANDLER_FAILED if of_lmi else codes.bad_request
    if cause is Cause.UNKNOWN_ADAPTER and surface is Surface.OPENAI:
        return 404
    configured = {
        Cause.QUEUE_FULL: codes.queue_full,
        Cause.NOT_READY: codes.not_ready,
        Cause.TIMEOUT: codes.timeout,
        Cause.ENGINE: codes.server_error,
    }
    return configured.get(cause) or FIXED[cause]
