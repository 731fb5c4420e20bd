"""Authentication of callers: by signature, or by the OpenAI key."""

import asyncio
from collections.abc import Callable

import msgspec

from hostelry.aws.sigv4 import Identity, NeedsBody, Proven, Verifier
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.base.guards import has_key
from hostelry.base.http import HttpRequest
from hostelry.dataplane.invocation_head import PRINCIPAL, ROLE, build_principal_headers
from hostelry.dataplane.tracing.call_trace import TENANT
from hostelry.domain.scope import Scope

# Hashing takes about 0.6 ms per megabyte. A thread hashes large bodies, or streams would stall.
HASH_APART_BYTES = 512 * 1024


class Callers:
    """Identifies callers.

    Args:
        verifier: verifies signatures by the access keys.
        owner: account and region of this platform, which callers with the OpenAI key act as.
        openai_key: the bearer key of the OpenAI routes.
        allow_unsigned: accept AWS calls without a signature as the owner's calls. Signatures are
            verified all the same.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        verifier: Verifier,
        owner: Scope,
        openai_key: str,
        allow_unsigned: bool,
        now: Callable[[], float],
    ) -> None:
        self.owner = owner
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


def get_principal(session: Session | None) -> str:
    """Name the caller that requests count for: `role/NAME`, `copy/INSTANCE`, "" for the account."""
    if session is None or not (session.role_name or session.session_name):
        return ""
    is_role = bool(session.role_name)
    return f"{ROLE}{session.role_name}" if is_role else f"copy/{session.session_name}"


def bind_principal(request: HttpRequest, session: Session | None) -> HttpRequest:
    """Set the headers of the verified principal, and drop the ones that the client sent.

    Only a caller with the account's keys can name a tenant. A role is a tenant itself, and a copy
    has no tenant.
    """
    principal = get_principal(session)
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
