"""Prepares the head of a request for the store: unchanged, or signed again with the store's key."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote, unquote

import msgspec

from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.aws.s3_signing import OwnKey
from hostelry.aws.sigv4 import NeedsBody, Proven, Secret, Verifier
from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.home.home import Credentials
from hostelry.principals.caller import Caller
from hostelry.principals.source import PrincipalSource, build_key_lookup
from hostelry.s3.admission import (
    ENCRYPTION,
    KEY_ID,
    KMS,
    S3Refusal,
    Wants,
    check_can_sign,
    token_of,
    wants_of,
)
from hostelry.s3.head import Head, parse_head, write_head
from hostelry.s3.object_keys import Guard, ObjectKeys
from hostelry.s3.permits import (
    ON_BEHALF,
    AskedOfStore,
    ObjectPermits,
    check_path,
    needs_body,
    split_path,
)
from hostelry.s3.store_client import StoreClient, signed_head

ReadBody = Callable[[], Awaitable[bytes]]
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


class PassedHead(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the store: its head, and its body if it was read. `guard` sees the answer."""

    raw: bytes
    body: bytes | None = None
    guard: Guard | None = None


Passes = Callable[[Head, str, ReadBody], Awaitable[PassedHead]]
"""Prepares a request by its head, the client's address and a reader of its body."""


class Passage:
    """Decides how requests reach `store`.

    `keys` decides on KMS keys of objects, `principals` are the owners of all other access keys than
    the first account's, and `permits` decides on the requests of these.
    """

    def __init__(
        self,
        credentials: Credentials,
        keys: ObjectKeys,
        store: StoreClient,
        clock: Clock,
        principals: PrincipalSource,
        permits: ObjectPermits,
    ) -> None:
        self._own = own_key(credentials)
        self._owner = credentials.account_id
        self._principals = principals
        self.permits = permits
        secret = Secret(
            secret_access_key=credentials.secret_access_key, account_id=credentials.account_id
        )
        known = {credentials.access_key_id: secret}
        seal = TokenSeal(credentials.internal_key)
        secrets = AccessKeySecrets(credentials.internal_key)
        look_up = build_key_lookup(principals, known, secrets)
        self._verifier = Verifier(look_up, MAX_SKEW_S, seal, is_s3=True)
        self.keys = keys
        self._clock = clock
        self._store = store

    async def passed(self, head: Head, source_ip: str, read_body: ReadBody) -> PassedHead:
        """Prepare a request for the store.

        The store itself decides on requests with the first account's key, and on unsigned ones.
        Raises S3Refusal if the proxy answers itself.
        """
        wants = wants_of(head)
        if head.body_bytes is None:
            head = closing(head)
        if self.is_for_store(head):
            self.permits.check_owner(self._owner, head)
            caller = self.permits.build_owner(self._own.access_key_id)
            asked = AskedOfStore(caller=caller, head=head, source_ip=source_ip)
            guard = self.keys.build_guard(asked)
            if (wants.nothing and not wants.source) or not self._holds(head):
                # the store refuses what none of its keys signed
                return PassedHead(raw=head.raw, guard=guard)
            added = await self._find_keys(asked, wants)
            if not added:
                return PassedHead(raw=head.raw, guard=guard)
        else:
            asked = await self._check(head, source_ip, read_body)
            guard = self.keys.build_guard(asked)
            # The store resolves names in the first account.
            added = await self._find_keys(asked, wants, names_key=True)
        check_can_sign(head)
        signed = signed_head(without_behalf(head), self._own, self._clock.now(), added)
        return PassedHead(raw=signed, body=asked.body, guard=guard)

    async def _check(self, head: Head, source_ip: str, read_body: ReadBody) -> AskedOfStore:
        """The request, which the caller may make. Raises S3Refusal."""
        caller = self.find_caller(head)
        body = await read_body() if needs_body(caller, head) else None
        if body is not None:
            check_hash(head, body)
        await self._check_exists(caller.account, head)
        asked = AskedOfStore(caller=caller, head=head, source_ip=source_ip, body=body)
        self.permits.check(asked)
        return asked

    def is_for_store(self, head: Head) -> bool:
        """True if the store decides: no other key than the first account's is claimed.

        Raises S3Refusal for a path that could be read as the path of another account's bucket.
        """
        key, known = find_claimed_key(head), self._principals.principals.table.access_keys
        is_others = bool(token_of(head) or ON_BEHALF in head.values or key in known)
        if is_others or self.permits.has_buckets_of_others:
            check_path(head)
        return not is_others

    def check_permitted(self, head: Head, source_ip: str, *, makes_bucket: bool = False) -> Caller:
        """The caller of a request with another key. Raises S3Refusal unless it may do this."""
        check_path(head)
        caller = self.find_caller(head)
        asked = AskedOfStore(caller=caller, head=head, source_ip=source_ip)
        self.permits.check(asked, makes_bucket=makes_bucket)
        return caller

    def find_caller(self, head: Head) -> Caller:
        """The caller whose key signed the head. Raises S3Refusal without a valid signature."""
        try:
            found = self._verified(head)
            if isinstance(found, Proven):
                return self.permits.resolve(found.identity, head.values.get(ON_BEHALF, ""))
        except ServiceError as error:
            raise S3Refusal(*REFUSED.get(error.code, MISMATCH), error.message) from None
        message = "Missing required header for this request: x-amz-content-sha256"
        raise S3Refusal(400, "InvalidRequest", message)

    def _holds(self, head: Head) -> bool:
        """True if the signature by the first account's key is valid."""
        try:
            return isinstance(self._verified(head), Proven)
        except ServiceError:
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

    async def _check_exists(self, account: str, head: Head) -> None:
        """Raise S3Refusal NoSuchBucket (404) for a further account's request to no bucket at all.

        SDKs make their bucket after this answer.
        """
        bucket, _ = split_path(head)
        if account == self._owner or not bucket or self.permits.find_owner(bucket) != self._owner:
            return
        found = await self._store.ask("HEAD", f"/{quote(bucket, safe='')}")
        if found is not None and found.status_code == 404:
            raise S3Refusal(404, "NoSuchBucket", "The specified bucket does not exist")

    async def _find_keys(
        self, asked: AskedOfStore, wants: Wants, *, names_key: bool = False
    ) -> dict[str, str]:
        """Find the encryption headers that the request leaves to its bucket or to KMS's default.

        With `names_key` keys are named by their ARNs, also the key of the bucket's default. Raises
        S3Refusal unless the caller may use the keys.
        """
        if wants.source:
            await self.keys.check_source(asked, wants.source)
        if wants.key:
            arn = await self.keys.find_write_key(asked, wants.key)
            is_named = names_key and arn != wants.key
            return {KEY_ID: arn} if wants.adds_key or is_named else {}
        name = ""
        if wants.starts_upload or (names_key and wants.takes_default):
            name = await self.keys.defaults.find(split_path(asked.head)[0])
        if not name:
            return {}
        return {ENCRYPTION: KMS, KEY_ID: await self.keys.find_write_key(asked, name)}


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


def without_behalf(head: Head) -> Head:
    """The head without the name of the account that it is for, which the store does not know."""
    if ON_BEHALF not in head.values:
        return head
    headers = [(name, it) for name, it in head.headers if name.lower() != ON_BEHALF]
    return parse_head(write_head(head.method, head.target, headers))


def find_claimed_key(head: Head) -> str | None:
    """The access key id that a request claims, by any kind of signature. None without one."""
    text = head.values.get("authorization", "")
    if text.startswith("AWS "):  # Signature Version 2
        return text[4:].partition(":")[0]
    _, found, claimed = text.partition("Credential=")
    if found:
        return claimed.partition("/")[0].strip()
    for pair in head.target.partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        if name.lower() in ("x-amz-credential", "awsaccesskeyid"):
            return unquote(value).partition("/")[0]
    return None


def check_hash(head: Head, body: bytes) -> None:
    """Raise S3Refusal if the body is not the signed body."""
    stated = head.values.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    if stated == "UNSIGNED-PAYLOAD":
        return
    if not hmac.compare_digest(stated, hashlib.sha256(body).hexdigest()):
        raise S3Refusal(
            400,
            "XAmzContentSHA256Mismatch",
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        )
