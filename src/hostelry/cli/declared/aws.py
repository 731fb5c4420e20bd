"""AWS's APIs as `apply` and `export` call them: an operation by its name, and uploads."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError
from s3transfer.manager import TransferManager

from hostelry.base.errors import HostelryError
from hostelry.server.aws_client import aws_client
from hostelry.server.home import Credentials, UpConfig

TRIES = 4
CONFLICTS = ("Cannot create already existing", "Cannot update in-progress", "Could not find")
CONFLICT_CODES = (
    "ConcurrentUpdateException", "ConflictException", "ObjectNotFoundException", "ResourceInUse",
    "ResourceLimitExceeded", "ResourceNotFound", "ResourceNotFoundException", "ThrottlingException",
)  # fmt: skip


class AwsError(HostelryError):
    """A call that was refused, or had no answer.

    `is_conflict`: what is there has changed since it was observed, so that a new plan may do.
    """

    def __init__(self, code: str, message: str, *, is_conflict: bool) -> None:
        self.code, self.is_conflict = code, is_conflict
        super().__init__(message)

    @property
    def is_absence(self) -> bool:
        """Whether there is nothing of the name."""
        return str(self).startswith("Could not find") or self.code in (
            "404", "NoSuchKey", "NoSuchBucket", "ResourceNotFound", "ResourceNotFoundException",
            "ObjectNotFoundException",
        )  # fmt: skip


class Aws(Protocol):
    """Calls by service and operation; raises AwsError."""

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one operation."""

    def upload(self, path: str, bucket: str, key: str) -> None:
        """Make an object of a file."""


class AwsAtPlatform:
    """The APIs of a running platform; may be called from several threads."""

    def __init__(self, config: UpConfig, credentials: Credentials) -> None:
        self._config, self._credentials = config, credentials
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()

    def _client(self, service: str) -> Any:
        with self._making:
            if service not in self._clients:
                self._clients[service] = aws_client(
                    service, self._config, self._credentials, tries=TRIES, read_timeout_s=60.0
                )
            return self._clients[service]

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one operation."""
        return call_client(self._client(service), operation, params)

    def upload(self, path: str, bucket: str, key: str) -> None:
        """Make an object of a file, in parts where it is large."""
        try:
            with TransferManager(self._client("s3")) as transfers:
                transfers.upload(path, bucket, key).result()
        except (BotoCoreError, ClientError) as error:
            raise refusal_of(error) from None


def call_client(client: Any, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a botocore client's operation; raises AwsError."""
    try:
        found: dict[str, Any] = getattr(client, xform_name(operation))(**params)
    except (BotoCoreError, ClientError) as error:
        raise refusal_of(error) from None
    return found


def refusal_of(error: Exception) -> AwsError:
    """The refusal that botocore's error is."""
    if not isinstance(error, ClientError):
        return AwsError("", f"the platform did not answer: {error}", is_conflict=False)
    found = error.response["Error"]
    code, message = str(found.get("Code", "")), str(found.get("Message", error))
    is_conflict = message.startswith(CONFLICTS) or code in CONFLICT_CODES
    return AwsError(code, message, is_conflict=is_conflict)


def pages(
    aws: Aws, service: str, operation: str, member: str, params: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Every item of a list, page after page."""
    token: dict[str, Any] = {}
    while True:
        page = aws.call(service, operation, {**params, **token})
        yield from page.get(member, ())
        if not page.get("NextToken"):
            return
        token = {"NextToken": page["NextToken"]}
