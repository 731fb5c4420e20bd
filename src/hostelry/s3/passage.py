"""Prepares the head of a request for the store: unchanged, or signed again with the store's key."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from hostelry.aws.s3_signing import OwnKey
from hostelry.aws.sigv4 import NeedsBody, Proven, Secret, Verifier
from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.peer_http import loopback_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.s3.admission import (
    DEFAULT_KEY,
    ENCRYPTION,
    KEY_ID,
    KMS,
    S3Refusal,
    Wants,
    check_can_sign,
    wants_of,
)
from hostelry.s3.head import Head, parse_head, write_head
from hostelry.s3.store_client import StoreClient, signed_head

TIMEOUT_S = 10.0
STATES: Mapping[str, tuple[str, str]] = {
    "Disabled": ("KMS.DisabledException", "{} is disabled."),
    "PendingDeletion": ("KMS.KMSInvalidStateException", "{} is pending deletion."),
}


class KmsKeys:
    """Looks up KMS keys at control, by `mounts`, over kept connections."""

    def __init__(
        self,
        config: UpConfig,
        credentials: Credentials,
        mounts: Mapping[str, httpx.AsyncBaseTransport],
    ) -> None:
        self._address = config.control_url
        self._headers = {
            INTERNAL_KEY_HEADER: credentials.internal_key,
            "X-Hostelry-Account": credentials.account_id,
            "X-Hostelry-Region": credentials.region,
            "X-Hostelry-Service": "kms",
            "X-Amz-Target": "TrentService.DescribeKey",
            "Content-Type": "application/x-amz-json-1.1",
        }
        self._client = loopback_client(TIMEOUT_S, mounts)

    async def usable_arn(self, name: str) -> str:
        """Find the ARN of an enabled key. Raises S3Refusal with S3's error if it cannot be used."""
        answer = await self._describe(name)
        if answer.status_code >= 500:
            raise away()
        found: dict[str, Any] = answer.json()
        if answer.status_code != 200:
            code = str(found.get("__type", "")).rpartition("#")[2]
            message = str(found.get("message") or found.get("Message") or "")
            raise S3Refusal(400, f"KMS.{code}", message)
        metadata = found["KeyMetadata"]
        arn = str(metadata["Arn"])
        if metadata["KeyState"] in STATES:
            code, message = STATES[metadata["KeyState"]]
            raise S3Refusal(400, code, message.format(arn))
        return arn

    async def _describe(self, name: str) -> httpx.Response:
        try:
            return await self._client.post(
                self._address, headers=self._headers, json={"KeyId": name}
            )
        except httpx.HTTPError:
            raise away() from None


def away() -> S3Refusal:
    """Build the answer while control restarts. SDKs try again."""
    return S3Refusal(503, "ServiceUnavailable", "The key service is restarting; try again.")


Passes = Callable[[Head], Awaitable[bytes]]
# S3 allows a client's clock to be wrong by this much.
MAX_SKEW_S = 900.0
# S3's status and code for each error of temporary keys.
REFUSED: Mapping[str, tuple[int, str]] = {
    "ExpiredTokenException": (400, "ExpiredToken"),
    "UnrecognizedClientException": (403, "InvalidAccessKeyId"),
    "MissingAuthenticationTokenException": (403, "AccessDenied"),
    "AccessDeniedException": (403, "AccessDenied"),
}
COPYS_KEYS = "These keys are those of a graph's copy, which may invoke endpoints and nothing else."
AGENTS_KEYS = "These keys are those of an instance's agent, which may read objects and no more."
MISMATCH = (403, "SignatureDoesNotMatch")
DEFAULT_RULE = re.compile(
    r"<SSEAlgorithm>aws:kms</SSEAlgorithm>\s*(?:<KMSMasterKeyID>([^<]*)</KMSMasterKeyID>)?"
)


class Passage:
    """Decides how requests reach `store`. `keys` looks up KMS keys at control."""

    def __init__(
        self, credentials: Credentials, keys: KmsKeys, store: StoreClient, clock: Clock
    ) -> None:
        self._own = own_key(credentials)
        secret = Secret(
            secret_access_key=credentials.secret_access_key, account_id=credentials.account_id
        )
        known = {credentials.access_key_id: secret}
        seal = TokenSeal(credentials.internal_key)
        self._verifier = Verifier(known.get, MAX_SKEW_S, seal, is_s3=True)
        self._keys = keys
        self._clock = clock
        self._store = store

    async def passed(self, head: Head) -> bytes:
        """Return the head's bytes for the store. Raises S3Refusal if the proxy answers itself."""
        wants = wants_of(head)
        if head.body_bytes is None:
            head = closing(head)
        if wants.nothing or not self._holds(head, wants):
            return head.raw  # the store refuses a request that none of its keys signed
        added = await self._added(head, wants)
        if not added and not wants.token:
            return head.raw
        check_can_sign(head)
        return signed_head(head, self._own, self._clock.now(), added)

    def check_signed(self, head: Head) -> None:
        """Raise S3Refusal unless the head proves that the client holds a key that may use S3."""
        try:
            found = self._verified(head)
        except ServiceError as error:
            raise S3Refusal(*REFUSED.get(error.code, MISMATCH), error.message) from None
        if not isinstance(found, Proven):
            message = "Missing required header for this request: x-amz-content-sha256"
            raise S3Refusal(400, "InvalidRequest", message)

    def _holds(self, head: Head, wants: Wants) -> bool:
        """True if the client's signature is valid. Raises S3Refusal for invalid temporary keys."""
        try:
            return isinstance(self._verified(head), Proven)
        except ServiceError as error:
            if wants.token:
                raise S3Refusal(*REFUSED.get(error.code, MISMATCH), error.message) from None
            return False

    def _verified(self, head: Head) -> Proven | NeedsBody:
        """Verify the head's signature.

        Raises ServiceError for a wrong signature, for a copy's keys and for a write by an agent.
        """
        found = self._verifier.verify_head(head.request, self._clock.now())
        session = found.identity.session if isinstance(found, Proven) else None
        if session is not None and session.is_agents:
            if not session.reads_objects_only:
                raise ServiceError("AccessDeniedException", COPYS_KEYS, 403)
            if head.method not in ("GET", "HEAD"):
                raise ServiceError("AccessDeniedException", AGENTS_KEYS, 403)
        return found

    async def _added(self, head: Head, wants: Wants) -> dict[str, str]:
        """Find the encryption headers that the request leaves to its bucket or to KMS's default."""
        if wants.key:
            arn = await self._keys.usable_arn(wants.key)
            return {KEY_ID: arn} if wants.adds_key else {}
        name = await self._bucket_key(head) if wants.starts_upload else ""
        if not name:
            return {}
        return {ENCRYPTION: KMS, KEY_ID: await self._keys.usable_arn(name)}

    async def _bucket_key(self, head: Head) -> str:
        """Find the KMS key of the bucket's default encryption. Empty if the default is not KMS."""
        bucket = head.request.path.lstrip("/").partition("/")[0]
        answer = await self._store.ask("GET", f"/{bucket}?encryption=")
        if answer is None or answer.status_code != 200:
            return ""  # the store answers the request itself
        found = DEFAULT_RULE.search(answer.text)
        return (found.group(1) or DEFAULT_KEY) if found else ""


def own_key(credentials: Credentials) -> OwnKey:
    """Build the key pair that the store accepts."""
    return OwnKey(
        access_key_id=credentials.access_key_id,
        secret_access_key=credentials.secret_access_key,
        region=credentials.region,
    )


def closing(head: Head) -> Head:
    """Build the head with ``Connection: close``: its request is the last one of its connection."""
    headers = [(name, it) for name, it in head.headers if name.lower() != "connection"]
    headers.append(("Connection", "close"))
    return parse_head(write_head(head.method, head.target, headers))
