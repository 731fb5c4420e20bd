"""Authentication of callers: by signature, or by the OpenAI key."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import NoReturn

import msgspec

from hostelry.aws.sigv4 import Identity, NeedsBody, Proven, Verifier
from hostelry.base.errors import ServiceError
from hostelry.base.guards import has_key
from hostelry.base.http import HttpRequest
from hostelry.dataplane.invocation_head import PRINCIPAL, build_principal_headers
from hostelry.dataplane.tracing.call_trace import TENANT
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.permits import Permits
from hostelry.principals.caller import Caller
from hostelry.principals.source import TRUSTED_S, PrincipalSource

# Hashing takes about 0.6 ms per megabyte. A thread hashes large bodies, or streams would stall.
HASH_APART_BYTES = 512 * 1024


class BearerCaller(msgspec.Struct, frozen=True, kw_only=True):
    """A caller with an OpenAI key, and the models that the key may call. Empty: any model."""

    caller: Caller
    models: tuple[str, ...] = ()


class Callers:
    """Identifies callers.

    Args:
        verifier: verifies signatures by the access keys.
        owner: account and region of this platform, which callers with the OpenAI key act as.
        openai_key: the bearer key of the OpenAI routes.
        allow_unsigned: accept AWS calls without a signature as the owner's calls. Signatures are
            verified all the same.
        now: seconds since the epoch.
        principals: the users, roles and accounts that keys belong to.
        is_secure: whether clients of other machines come by TLS.
    """

    def __init__(
        self,
        verifier: Verifier,
        owner: Scope,
        openai_key: str,
        allow_unsigned: bool,
        now: Callable[[], float],
        principals: PrincipalSource,
        *,
        is_secure: bool = False,
    ) -> None:
        self.owner = owner
        self.is_secure = is_secure
        self.permits = Permits(principals, now, is_secure=is_secure)
        self._principals = principals
        self._verifier = verifier
        self._openai_key = openai_key
        self._allow_unsigned = allow_unsigned
        self._now = now

    async def identify(self, request: HttpRequest, *, invokes: bool = False) -> Identity:
        """Find the signer of `request`. Raises ServiceError 403 if the signature is not valid.

        The identity of an accepted request without a signature has an empty `service`. A copy's
        keys are refused unless the request `invokes` a model.
        """
        if len(request.body) < HASH_APART_BYTES:
            identity = self._identify(request)
        else:
            identity = await asyncio.to_thread(self._identify, request)
        if not invokes:
            refuse_copy_identity(identity)
        return identity

    def resolve(self, identity: Identity) -> Caller:
        """The principal of a signer. Raises ServiceError 403 if its keys are not valid any more.

        Users and roles are refused with 503 while control has not answered for too long.
        """
        caller = self._principals.principals.resolve(identity)
        self._check_trusted(caller)
        return caller

    def find_bearer(self, request: HttpRequest) -> BearerCaller:
        """The caller with an OpenAI key. Raises ServiceError 401 without a valid one."""
        if self.holds_openai_key(request):
            return BearerCaller(caller=self.resolve(self._owner_unsigned()))
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        principals = self._principals.principals
        digest = hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest()
        row = principals.table.openai_keys.get(digest)
        if row is None or scheme.lower() != "bearer":
            _refuse_bearer("Incorrect API key provided.")
        if row.expires_at is not None and row.expires_at <= self._now():
            _refuse_bearer(f"The API key {row.id} has expired.")
        caller = principals.find_user(row.account, row.user, row.id)
        self._check_trusted(caller)
        return BearerCaller(caller=caller, models=row.models)

    def _check_trusted(self, caller: Caller) -> None:
        if not (caller.grants.is_root or self._principals.is_trusted):
            raise ServiceError(
                "ServiceUnavailable",
                "This gateway has had no answer of control for more than"
                f" {TRUSTED_S / 3600:g} hours, so that keys may have been revoked. It serves the"
                " keys of an account's root alone until control answers.",
                503,
            )

    def admit(self, request: HttpRequest) -> Proven | NeedsBody:
        """Check the signature of the head. Raises ServiceError 403 if it is wrong.

        If requests without a signature are accepted, they count as the owner's.
        """
        if self._allow_unsigned and is_unsigned(request):
            return Proven(self._owner_unsigned())
        return self._verifier.verify_head(request, self._now())

    def admits_to(self, service: str, request: HttpRequest) -> bool:
        """True if the head proves who signed for `service`. Raises ServiceError as `admit` does."""
        found = self.admit(request)
        if not isinstance(found, Proven):
            return False
        check_service(found.identity.service, service)
        return True

    def _identify(self, request: HttpRequest) -> Identity:
        if self._allow_unsigned and is_unsigned(request):
            return self._owner_unsigned()
        return self._verifier.verify(request, self._now())

    def _owner_unsigned(self) -> Identity:
        return Identity(
            access_key_id="",
            account_id=self.owner.account,
            region=self.owner.region,
            service="",
        )

    def holds_openai_key(self, request: HttpRequest) -> bool:
        """True if the request carries the bearer key, which is compared in constant time."""
        if self._allow_unsigned and "authorization" not in request.headers:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return has_key(self._openai_key, [key.strip()]) and scheme.lower() == "bearer"


def _refuse_bearer(reason: str) -> NoReturn:
    raise ServiceError(
        "invalid_api_key",
        f"{reason} Send `Authorization: Bearer KEY` with the key that `hostelry env` prints as"
        " OPENAI_API_KEY, or with a user's key (`hostelry keys`).",
        401,
    )


def bind_principal(request: HttpRequest, principal: str) -> HttpRequest:
    """Set the headers of the verified principal, and drop the ones that the client sent.

    Only the root of an account, whose `principal` is empty, can name a tenant. A user or a role is
    a tenant itself, and a copy has no tenant.
    """
    if not principal and PRINCIPAL not in request.headers:
        return request
    dropped = {PRINCIPAL, TENANT} if principal else {PRINCIPAL}
    headers = {name: it for name, it in request.headers.items() if name not in dropped}
    headers |= {name.lower(): it for name, it in build_principal_headers(principal).items()}
    return msgspec.structs.replace(request, headers=headers)


def is_unsigned(request: HttpRequest) -> bool:
    """True if the request has no signature at all."""
    return "authorization" not in request.headers and "X-Amz-Signature=" not in request.query


def is_copy_identity(identity: Identity) -> bool:
    """True if the keys belong to a copy of a graph."""
    return identity.session is not None and identity.session.is_agents


def refuse_copy_identity(identity: Identity) -> None:
    """Raise ServiceError 403 if the keys belong to a copy, which may only invoke."""
    if is_copy_identity(identity):
        raise ServiceError(
            "AccessDeniedException",
            "These keys are those of a graph's copy, which may invoke endpoints and nothing else.",
            403,
        )


def check_service(signed_for: str, service: str) -> None:
    """Raise ServiceError 403 if the signature was made for another service (signing name)."""
    if signed_for not in ("", service):
        raise ServiceError(
            "InvalidSignatureException",
            f"Credential should be scoped to correct service: '{service}', "
            f"but it is scoped to '{signed_for}'.",
            403,
        )
