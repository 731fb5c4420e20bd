"""The errors every part shares.

HostelryError
├── ServiceError       the caller's fault, or a modelled AWS error. `aws` writes it to the client
├── RetryableError     try again later: requeue with backoff, or answer 429/503
│   ├── CapacityError  no instance can hold the copy
│   │   └── InstanceLostError  the machine of an instance is gone, and its copies with it
│   ├── Conflict       a record changed since it was read
│   └── Fenced         this control does not lead any more. The next leader can do it
└── TerminalError      trying again cannot help. It becomes a FailureReason
    └── UsageError     a command got invalid arguments

Anything else that is raised is a defect of ours: 500 with a request id, traceback in the log.
"""

from collections.abc import Mapping
from typing import Any

INTERRUPTED = 130  # a shell's exit code for SIGINT


class HostelryError(Exception):
    """Base of every error this project raises on purpose."""


class ServiceError(HostelryError):
    """An error answer in AWS's form.

    Args:
        code: the AWS error code, for example ``ValidationException``.
        message: names the thing, the value and the limit.
        http_status: status of the answer, 400 to 599.
        members: further members of the modelled error shape, by AWS name.
    """

    def __init__(
        self,
        code: str,
        message: str,
        http_status: int = 400,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status
        self.members = dict(members or {})


class RetryableError(HostelryError):
    """The same request may succeed later."""


class CapacityError(RetryableError):
    """No instance can hold the copy. The message has the needed and the free resources."""


class InstanceLostError(CapacityError):
    """The machine of an instance is gone, with its copies: they are to be placed elsewhere."""


class Conflict(RetryableError):  # noqa: N818 - the Store seam's own word
    """A record changed since it was read, or exists although it should not."""


class Fenced(RetryableError):  # noqa: N818 - reads as a sentence
    """Refused: another control leads, with a newer epoch. Final for the process that meets it."""


class TerminalError(HostelryError):
    """Retrying cannot help. The message becomes the resource's FailureReason."""


class UsageError(TerminalError):
    """The arguments of a command are invalid. The message names the option, value and limit."""


def validation_error(message: str) -> ServiceError:
    """The control plane's answer to a request that asks for something impossible (HTTP 400)."""
    return ServiceError("ValidationException", message)
