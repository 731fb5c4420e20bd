"""AWS's APIs as `apply` and `export` call them: operations by name, and uploads."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.errors import HostelryError
from hostelry.cli.artifacts.files import Advance
from hostelry.cli.artifacts.upload import make_bucket, upload
from hostelry.cli.declared.resource import UploadedFile
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig

TRIES = 4
CONFLICTS = (
    "Cannot create already existing",
    "Cannot update in-progress",
    "Could not find",
    "in status Creating",
    "in status Updating",
    "in status Deleting",
)
"""Parts of messages; what a name or an expression has of them only means another plan."""
CONFLICT_CODES = (
    "ConcurrentUpdateException", "ConflictException", "ObjectNotFoundException", "ResourceInUse",
    "ResourceLimitExceeded", "ResourceNotFound", "ResourceNotFoundException", "ThrottlingException",
)  # fmt: skip


class AwsError(HostelryError):
    """A call that was refused, or was not answered.

    `is_conflict` is true if resources have changed since they were observed. Then a new plan may
    succeed.
    """

    def __init__(self, code: str, message: str, *, is_conflict: bool) -> None:
        self.code, self.is_conflict = code, is_conflict
        super().__init__(message)

    @property
    def is_absence(self) -> bool:
        """Whether the named resource does not exist."""
        return str(self).startswith("Could not find") or self.code in (
            "404", "NoSuchKey", "NoSuchBucket", "ResourceNotFound", "ResourceNotFoundException",
            "ObjectNotFoundException",
        )  # fmt: skip


class Aws(Protocol):
    """Calls by service and operation. Raises AwsError."""

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one operation."""

    def upload(self, file: UploadedFile, advance: Advance) -> None:
        """Upload objects, and create their bucket if needed.

        `advance` is called with numbers of bytes.
        """


class AwsAtPlatform:
    """The APIs of a running platform. Safe to call from several threads."""

    def __init__(self, config: UpConfig, credentials: Credentials) -> None:
        self._config, self._credentials = config, credentials
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()
        self._buckets: set[str] = set()  # that exist

    def client(self, service: str) -> Any:
        """The client of a service."""
        with self._making:
            if service not in self._clients:
                self._clients[service] = aws_client(
                    service, self._config, self._credentials, tries=TRIES, read_timeout_s=60.0
                )
            return self._clients[service]

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one operation."""
        return call_client(self.client(service), operation, params)

    def upload(self, file: UploadedFile, advance: Advance) -> None:
        """Upload objects, and create their bucket if needed.

        `advance` is called with numbers of bytes.
        """
        s3 = self.client("s3")
        try:
            if file.bucket not in self._buckets:
                make_bucket(s3, file.bucket)
                self._buckets.add(file.bucket)
            upload(s3, file.bucket, file.orders, advance)
        except (BotoCoreError, ClientError) as error:
            raise to_aws_error(error) from None


def call_client(client: Any, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a botocore client's operation. Raises AwsError."""
    try:
        found: dict[str, Any] = getattr(client, xform_name(operation))(**params)
    except (BotoCoreError, ClientError) as error:
        raise to_aws_error(error) from None
    return found


def to_aws_error(error: Exception) -> AwsError:
    """Convert an error of botocore."""
    if not isinstance(error, ClientError):
        advice = "start it with `hostelry up`, or see `hostelry status`"
        message = f"the platform did not answer ({error}): {advice}"
        return AwsError("", message, is_conflict=False)
    found = error.response["Error"]
    code, message = str(found.get("Code", "")), str(found.get("Message", error))
    is_conflict = code in CONFLICT_CODES or any(it in message for it in CONFLICTS)
    return AwsError(code, message, is_conflict=is_conflict)


def pages(
    aws: Aws, service: str, operation: str, member: str, params: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Every item of a list, from all pages."""
    token: dict[str, Any] = {}
    while True:
        page = aws.call(service, operation, {**params, **token})
        yield from page.get(member, ())
        if not page.get("NextToken"):
            return
        token = {"NextToken": page["NextToken"]}
