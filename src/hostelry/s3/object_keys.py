"""KMS keys of objects: keys of requests and of buckets, and the decisions on reads under a key."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import httpx

from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.peer_http import loopback_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.principals.decisions import is_unlimited
from hostelry.principals.source import PrincipalSource
from hostelry.principals.table import KmsKeyRow
from hostelry.s3.admission import DEFAULT_KEY, KEY_ID, S3Refusal
from hostelry.s3.answers import StoreAnswer
from hostelry.s3.head import query_names
from hostelry.s3.permits import AskedOfStore, ObjectPermits, split_path
from hostelry.s3.store_client import StoreClient

TIMEOUT_S = 10.0
MAX_BUCKETS = 4096
STATES: Mapping[str, tuple[str, str]] = {
    "Disabled": ("KMS.DisabledException", "{} is disabled."),
    "PendingDeletion": ("KMS.KMSInvalidStateException", "{} is pending deletion."),
}
DEFAULT_RULE = re.compile(
    r"<SSEAlgorithm>aws:kms</SSEAlgorithm>\s*(?:<KMSMasterKeyID>([^<]*)</KMSMasterKeyID>)?"
)
NO_DEFAULT = "ServerSideEncryptionConfigurationNotFound"
Guard = Callable[[StoreAnswer], Awaitable[S3Refusal | None]]
"""Sees the head of an answer, and returns the refusal that takes its place, or None."""


class KmsKeys:
    """Looks up KMS keys in the published table, and at control, by `mounts`."""

    def __init__(
        self,
        config: UpConfig,
        credentials: Credentials,
        principals: PrincipalSource,
        mounts: Mapping[str, httpx.AsyncBaseTransport],
    ) -> None:
        self._address = config.control_url
        self._headers = {
            INTERNAL_KEY_HEADER: credentials.internal_key,
            "X-Hostelry-Region": credentials.region,
            "X-Hostelry-Service": "kms",
            "Content-Type": "application/x-amz-json-1.1",
        }
        self._principals = principals
        self._client = loopback_client(TIMEOUT_S, mounts)

    async def find_usable(self, account: str, name: str) -> str:
        """The ARN of an enabled key of an account. Raises S3Refusal if it cannot be used.

        The ARN of another account's key is returned as it is.
        """
        if get_account(name) not in ("", account):
            return name
        metadata = await self._describe(account, name)
        arn = str(metadata["Arn"])
        check_state(arn, str(metadata["KeyState"]))
        return arn

    async def find_row(self, arn: str) -> KmsKeyRow | None:
        """The key with an ARN, as published or, if it is new, as control knows it."""
        row = self._principals.principals.table.kms_keys.get(arn)
        if row is not None:
            return row
        account = get_account(arn)
        try:
            metadata = await self._describe(account, arn)
        except S3Refusal as refusal:
            if refusal.status >= 500:
                raise
            return None
        policy = await self._call("GetKeyPolicy", account, {"KeyId": arn})
        return KmsKeyRow(
            state=str(metadata["KeyState"]),
            policy=str(policy.get("Policy", "")),
            is_managed=metadata["KeyManager"] == "AWS",
        )

    async def _describe(self, account: str, name: str) -> dict[str, Any]:
        found = await self._call("DescribeKey", account, {"KeyId": name})
        metadata: dict[str, Any] = found["KeyMetadata"]
        return metadata

    async def _call(self, operation: str, account: str, params: Mapping[str, str]) -> Any:
        """The answer to an operation of KMS. Raises S3Refusal."""
        headers = {
            **self._headers,
            "X-Amz-Target": f"TrentService.{operation}",
            "X-Hostelry-Account": account,
        }
        try:
            answer = await self._client.post(self._address, headers=headers, json=params)
        except httpx.HTTPError:
            raise away() from None
        if answer.status_code >= 500:
            raise away()
        found: dict[str, Any] = answer.json()
        if answer.status_code != 200:
            code = str(found.get("__type", "")).rpartition("#")[2]
            message = str(found.get("message") or found.get("Message") or "")
            raise S3Refusal(400, f"KMS.{code}", message)
        return found


class BucketKeys:
    """The KMS key of each bucket's default encryption, as the store has it, kept until a change."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._kept: dict[str, str] = {}
        self._changes = 0

    async def find(self, bucket: str) -> str:
        """The key's name. Empty if the default is not KMS."""
        known = self._kept.get(bucket)
        if known is not None:
            return known
        changes = self._changes
        answer = await self._store.ask("GET", f"/{quote(bucket, safe='')}?encryption=")
        if answer is None or (answer.status_code != 200 and NO_DEFAULT not in answer.text):
            return ""  # the store answers the request itself
        found = DEFAULT_RULE.search(answer.text)
        name = (found.group(1) or DEFAULT_KEY) if found else ""
        if changes == self._changes:
            if len(self._kept) >= MAX_BUCKETS:
                self._kept.clear()
            self._kept[bucket] = name
        return name

    def note_change(self, bucket: str) -> None:
        """Forget a bucket whose default may change, or has changed."""
        self._changes += 1
        self._kept.pop(bucket, None)


class ObjectKeys:
    """Decides who may use the KMS key of an object.

    `keys` finds keys, `permits` decides, and `store` knows the keys of objects.
    """

    def __init__(self, keys: KmsKeys, permits: ObjectPermits, store: StoreClient) -> None:
        self._keys = keys
        self._permits = permits
        self._store = store
        self.defaults = BucketKeys(store)

    async def find_write_key(self, asked: AskedOfStore, name: str) -> str:
        """The ARN of the key `name`, with which the caller may encrypt. Raises S3Refusal."""
        account = asked.caller.account
        arn = await self._keys.find_usable(account, name)
        is_others = get_account(arn) != account
        if name == DEFAULT_KEY or not (is_others or not is_unlimited(asked.caller)):
            return arn
        row = await self._keys.find_row(arn)
        is_multipart = "uploads" in query_names(asked.head)
        actions = ("GenerateDataKey", "Decrypt") if is_multipart else ("GenerateDataKey",)
        self._permits.check_key(asked, actions, arn, row)
        if is_others and row is not None:
            check_state(arn, row.state)
        return arn

    async def check_source(self, asked: AskedOfStore, source: str) -> None:
        """Raise S3Refusal unless the caller may read the object that the request copies."""
        path = "/" + source.lstrip("/")
        arn = await self._find_object_key(path)
        if arn:
            await self._check_read(asked, arn, unquote(path.partition("?")[0])[1:])

    def build_guard(self, asked: AskedOfStore) -> Guard | None:
        """The check of the answer to a request: of reads, and of changes of a bucket's default."""
        head = asked.head
        bucket, key = split_path(head)
        if not key:
            if head.method not in ("PUT", "DELETE") or not bucket:
                return None
            self.defaults.note_change(bucket)

            async def note(_: StoreAnswer) -> None:
                self.defaults.note_change(bucket)

            return note
        if head.method != "GET":
            return None

        async def check(answer: StoreAnswer) -> S3Refusal | None:
            arn = answer.headers.get(KEY_ID, "")
            if answer.status >= 500:  # the key may be the cause, which the store does not say
                arn = await self._find_object_key(head.target.partition("?")[0])
            try:
                if arn:
                    await self._check_read(asked, arn, f"{bucket}/{key}")
            except S3Refusal as refusal:
                return refusal
            return None

        return check

    async def _check_read(self, asked: AskedOfStore, arn: str, place: str) -> None:
        row = await self._keys.find_row(arn)
        if get_account(arn) != asked.caller.account or not is_unlimited(asked.caller):
            self._permits.check_key(asked, ("Decrypt",), arn, row, place)
        if row is None:
            raise S3Refusal(400, "KMS.NotFoundException", f"Key '{arn}' does not exist")
        check_state(arn, row.state)

    async def _find_object_key(self, path: str) -> str:
        answer = await self._store.ask("HEAD", path)
        return "" if answer is None else str(answer.headers.get(KEY_ID, ""))


def get_account(arn: str) -> str:
    """The account of a KMS ARN. Empty for another name of a key."""
    parts = arn.split(":", 5)
    return parts[4] if len(parts) == 6 else ""


def check_state(arn: str, state: str) -> None:
    """Raise S3Refusal for a key that cannot be used."""
    if state in STATES:
        code, message = STATES[state]
        raise S3Refusal(400, code, message.format(arn))


def away() -> S3Refusal:
    """Build the answer while control restarts. SDKs try again."""
    return S3Refusal(503, "ServiceUnavailable", "The key service is restarting; try again.")
