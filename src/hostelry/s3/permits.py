"""Decides on requests to the S3 port by the owner of the bucket and the caller's policies."""

from collections.abc import Callable, Iterable
from urllib.parse import unquote

import msgspec

from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.permissions.needs.object_calls import (
    ObjectRequest,
    deletes_several,
    needed_for_key,
    needed_for_object_call,
)
from hostelry.permissions.needs.object_place import UnclearRequestError, read_path
from hostelry.principals.caller import Caller, build_key_policy, request_keys
from hostelry.principals.decisions import Decisions, is_unlimited
from hostelry.principals.source import PrincipalSource
from hostelry.principals.table import KmsKeyRow
from hostelry.s3.admission import S3Refusal
from hostelry.s3.head import Head, query_names

# In requests of the platform's own processes, by the key of the first account: the account, and a
# role in it, in whose name an object is read or written.
ON_BEHALF = "x-hostelry-for"
CLAIM_S = 60.0
READS = ("GET", "HEAD")
DENIED = "Access Denied"
TAKEN = (
    "The requested bucket name is not available. The bucket namespace is shared by all accounts of"
    " the platform. Select a different name and try again."
)


class AskedOfStore(msgspec.Struct, frozen=True, kw_only=True):
    """A request by `caller` from the address `source_ip`.

    `body` is set if it names objects.
    """

    caller: Caller
    head: Head
    source_ip: str
    body: bytes | None = None


class ObjectPermits:
    """Decides on requests.

    Args:
        owner: the platform's first account.
        source: principals, and the accounts of buckets.
        now: seconds since the epoch.
        shared: buckets that every account may read.
        is_secure: whether clients come by TLS.
    """

    def __init__(
        self,
        owner: str,
        source: PrincipalSource,
        now: Callable[[], float],
        shared: frozenset[str] = frozenset(),
        *,
        is_secure: bool = False,
    ) -> None:
        self._decisions = Decisions()
        self._shared = shared
        self._owner = owner
        self._source = source
        self._now = now
        self._is_secure = is_secure
        self._claims: dict[str, tuple[str, float]] = {}

    def note_claim(self, bucket: str, account: str) -> None:
        """Note the account of a bucket that was made or deleted just now."""
        now = self._now()
        self._claims = {name: it for name, it in self._claims.items() if it[1] > now}
        self._claims[bucket] = (account, now + CLAIM_S)

    def resolve(self, identity: Identity, on_behalf: str) -> Caller:
        """The principal that a verified request is for. Raises ServiceError 403.

        `on_behalf` counts only with the key of the first account.
        """
        principals = self._source.principals
        caller = principals.resolve(identity)
        is_operator = identity.session is None and not identity.user
        if on_behalf and is_operator and caller.account == self._owner:
            account, _, role = on_behalf.partition("/")
            session = Session(
                access_key_id=identity.access_key_id,
                account_id=account,
                expires_at=0,
                session_name="SageMaker",
                bounded_by=role,
            )
            return principals.resolve_agent(identity, session)
        if not (caller.grants.is_root or self._source.is_trusted):
            raise ServiceError(
                "AccessDeniedException",
                "Control has not answered for too long: the key may have been revoked.",
                403,
            )
        return caller

    def build_owner(self, access_key_id: str) -> Caller:
        """The root of the first account."""
        identity = Identity(
            access_key_id=access_key_id, account_id=self._owner, region="", service="s3"
        )
        return self._source.principals.resolve(identity)

    def find_owner(self, bucket: str) -> str:
        """The account that a bucket belongs to."""
        account, until = self._claims.get(bucket, ("", 0.0))
        if account and until > self._now():
            return account
        return self._source.principals.table.buckets.get(bucket, self._owner)

    @property
    def has_buckets_of_others(self) -> bool:
        """Whether an account besides the first one has buckets."""
        return bool(self._source.principals.table.buckets or self._claims)

    def check_owner(self, account: str, head: Head) -> None:
        """Raise S3Refusal if the request reads or writes a bucket of another account."""
        own, source = split_path(head)[0], find_copy_source(head)
        for bucket in (own, source):
            is_shared = bucket in self._shared and (bucket != own or head.method in READS)
            if not bucket or is_shared or self.find_owner(bucket) == account:
                continue
            if head.method == "PUT" and head.target.count("/") == 1 and "?" not in head.target:
                raise S3Refusal(409, "BucketAlreadyExists", TAKEN)
            raise S3Refusal(403, "AccessDenied", DENIED)

    def _check_served(self, head: Head) -> None:
        """Refuse requests that the store would carry out for the wrong account or object."""
        bucket, key = split_path(head)
        names = query_names(head)
        if not bucket and head.method != "GET":
            raise S3Refusal(405, "MethodNotAllowed", "A request without a bucket lists buckets.")
        if head.method == "POST" and key and "delete" in names:
            raise S3Refusal(400, "InvalidRequest", "DeleteObjects takes no key in its path.")

    def check(self, asked: AskedOfStore, *, makes_bucket: bool = False) -> None:
        """Raise S3Refusal unless the caller may do this in its account's buckets."""
        caller, head = asked.caller, asked.head
        self._check_served(head)
        if not makes_bucket:
            self.check_owner(caller.account, head)
        if is_unlimited(caller):
            return
        path, _, query = head.target.partition("?")
        request = ObjectRequest(
            method=head.method,
            path=path,
            query=query,
            headers=head.headers,
            body=asked.body,
        )
        try:
            needed = needed_for_object_call(request)
        except UnclearRequestError as error:
            raise S3Refusal(400, "InvalidRequest", f"{error}.") from None
        refusal = self._decisions.find_refusal(caller, needed, self._request_keys(asked))
        if refusal is not None:
            raise S3Refusal(403, "AccessDenied", refusal)

    def check_key(
        self,
        asked: AskedOfStore,
        actions: Iterable[str],
        arn: str,
        row: KmsKeyRow | None,
        place: str = "",
    ) -> None:
        """Raise S3Refusal unless the caller may use a KMS key for the object at `place`.

        `place` is BUCKET/KEY, by default the object that the request names. The owner of a managed
        key may use it. A missing key of another account, without a row, is as a forbidden one.
        """
        caller, account = asked.caller, arn.split(":")[4]
        if row is not None and row.is_managed and account == caller.account:
            return
        place = place or "/".join(split_path(asked.head))
        needed = needed_for_key(actions, arn, f"arn:aws:s3:::{place}")
        keys = self._request_keys(asked) | {"kms:calleraccount": (caller.account,)}
        document = "" if row is None or row.is_managed else row.policy
        policy = build_key_policy(account, arn, document)
        refusal = self._decisions.find_refusal(caller, needed, keys, lambda _: policy)
        if refusal is not None:
            raise S3Refusal(403, "AccessDenied", refusal)

    def _request_keys(self, asked: AskedOfStore) -> dict[str, tuple[str, ...]]:
        keys = request_keys(
            now=self._now(),
            region="",
            source_ip=asked.source_ip,
            user_agent=asked.head.values.get("user-agent", ""),
            is_secure=self._is_secure,
        )
        del keys["aws:requestedregion"]
        return keys


def needs_body(caller: Caller, head: Head) -> bool:
    """True if only the body says which objects a limited caller's request deletes."""
    path, _, query = head.target.partition("?")
    return not is_unlimited(caller) and deletes_several(head.method, path, query)


def check_path(head: Head) -> None:
    """Raise S3Refusal for a path that the store might read as another bucket's."""
    path = head.target.partition("?")[0]
    try:
        read_path(path)
    except UnclearRequestError as error:
        raise S3Refusal(400, "InvalidRequest", f"{error}.") from None


def split_path(head: Head) -> tuple[str, str]:
    """The bucket and the key in the path. Each may be empty."""
    bucket, _, key = unquote(head.target.partition("?")[0])[1:].partition("/")
    return bucket, key


def find_copy_source(head: Head) -> str:
    """The bucket that a copy or a renaming reads from, or an empty text."""
    values = head.values
    source = values.get("x-amz-copy-source") or values.get("x-amz-rename-source", "")
    return unquote(source).lstrip("/").partition("/")[0]
