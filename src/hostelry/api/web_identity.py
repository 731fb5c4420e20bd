"""AssumeRoleWithWebIdentity: keys for the holder of an ID token of an OpenID Connect provider.

The call has no signature. It proves its sender by the token, so nothing here uses the context's
caller or account. The role's account is the account in its ARN.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.role_session import (
    TrustedParty,
    begin_session,
    build_session_claims,
    find_trusting_role,
)
from hostelry.audit.caller import name_web_identity
from hostelry.base.errors import ServiceError
from hostelry.base.json import decode
from hostelry.domain.principal import OidcProvider
from hostelry.domain.scope import ALL_REGIONS, Scope

ACTION = "sts:AssumeRoleWithWebIdentity"
ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
KEY_TYPES = frozenset({"RSA", "EC"})
LEEWAY_S = 60.0  # how far a provider's clock may be ahead
MAX_HEADER_BYTES = 8192
NO_JWT = "The ID Token provided is not a valid JWT. You may have sent an access token."
Texts = str | tuple[str, ...]


class TagClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The session tags that a provider puts into a token. A tag has a list of one value."""

    principal_tags: Mapping[str, Texts] = msgspec.field(default_factory=dict)
    transitive_tag_keys: tuple[str, ...] = ()


class IdToken(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of an ID token that count. Times are in seconds since the epoch."""

    iss: str
    sub: str
    aud: Texts
    exp: float
    iat: float
    nbf: float = 0.0
    azp: str = ""
    amr: Texts = ()
    source_identity: str = msgspec.field(default="", name="https://aws.amazon.com/source_identity")
    tags: TagClaim = msgspec.field(default_factory=TagClaim, name="https://aws.amazon.com/tags")

    @property
    def audiences(self) -> tuple[str, ...]:
        """The client ids that it was issued for: the authorized party, or else the audience."""
        return (self.azp,) if self.azp else _list_texts(self.aud)


def assume_role_with_web_identity(context: CallContext, params: Params) -> Result:
    """AssumeRoleWithWebIdentity."""
    if params.get("ProviderId") is not None:
        raise ServiceError(
            "ValidationError",
            "ProviderId is not supported by Hostelry: it is for OAuth 2.0 access tokens.",
        )
    arn = params["RoleArn"]
    account = arn.split(":")[4] if arn.count(":") >= 5 else ""
    provider, token, audience = verify_token(context, account, params["WebIdentityToken"])
    context.name_caller(name_web_identity(account, provider.arn, audience, token.sub))
    party = _build_party(provider, token, audience)
    tags = {key: _list_texts(it)[0] for key, it in token.tags.principal_tags.items() if it}
    asked = {**params, "SourceIdentity": token.source_identity or None}
    claims = build_session_claims(asked, tags, token.tags.transitive_tag_keys, party)
    role = find_trusting_role(context, params, party, claims)
    return {
        **begin_session(context, params, role, party, claims),
        "SubjectFromWebIdentityToken": token.sub,
        "Provider": provider.arn,
        "Audience": audience,
    }


def _build_party(provider: OidcProvider, token: IdToken, audience: str) -> TrustedParty:
    issuer = provider.name.lower()
    keys: dict[str, Sequence[str]] = {
        f"{issuer}:sub": (token.sub,),
        f"{issuer}:aud": (audience,),
        "aws:federatedprovider": (provider.arn,),
    }
    if token.azp:
        keys[f"{issuer}:oaud"] = _list_texts(token.aud)
    if token.amr:
        keys[f"{issuer}:amr"] = _list_texts(token.amr)
    who = frozenset({f"Federated:{provider.arn}"})
    return TrustedParty(who=who, arn="", action=ACTION, keys=keys)


def verify_token(
    context: CallContext, account: str, text: str
) -> tuple[OidcProvider, IdToken, str]:
    """The provider of a token in an account, the verified claims, and the audience.

    Raises InvalidIdentityToken, ExpiredTokenException or IDPCommunicationError.
    """
    # Imported here, because few calls need it.
    from joserfc import jws
    from joserfc.errors import JoseError

    registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    registry.max_header_length = MAX_HEADER_BYTES
    try:
        signed = jws.extract_compact(text.encode(), registry=registry)
        token = decode(signed.payload, IdToken)
    except (JoseError, msgspec.MsgspecError, ValueError) as error:
        raise _invalid(f"{NO_JWT} ({error})") from None
    provider = _find_provider(context, account, token.iss)
    audience = next((it for it in token.audiences if it in provider.client_ids), None)
    if audience is None:
        raise _invalid("Incorrect token audience")
    key_id = str(signed.headers().get("kid", ""))
    keys = context.find_provider_keys(provider.issuer, key_id)
    if not any(_is_signed_by(signed, it, registry) for it in _choose_keys(keys, key_id)):
        raise _invalid("The signature of the ID Token is not valid for any key of its provider.")
    _check_times(token, context.now)
    return provider, token, audience


def _find_provider(context: CallContext, account: str, issuer: str) -> OidcProvider:
    name = issuer.partition("://")[2]
    stored = context.state.oidc_providers.get(Scope(account, ALL_REGIONS), name)
    if stored is None or stored.value.issuer != issuer:
        raise _invalid(f"No OpenIDConnect provider found in your account for {issuer:.255}")
    return stored.value


def _choose_keys(keys: Sequence[Mapping[str, Any]], key_id: str) -> list[Mapping[str, Any]]:
    """The keys that may have signed: the named one, or the only one if no key is named."""
    signing = [it for it in keys if it.get("kty") in KEY_TYPES and it.get("use", "sig") == "sig"]
    if not key_id:
        return signing if len(signing) == 1 else []
    return [it for it in signing if it.get("kid") == key_id]


def _is_signed_by(signed: Any, key: Mapping[str, Any], registry: Any) -> bool:
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        public = import_key({name: it for name, it in key.items() if name != "d"})
        return jws.validate_compact(signed, public, registry=registry)
    except (JoseError, ValueError, TypeError, KeyError):
        return False


def _check_times(token: IdToken, now: float) -> None:
    if token.exp <= now:
        raise ServiceError(
            "ExpiredTokenException",
            f"Token expired: current date/time {now:.0f} must be before the expiration date/time"
            f" {token.exp:.0f}",
        )
    if max(token.nbf, token.iat) > now + LEEWAY_S:
        raise _invalid(
            f"The ID Token is not valid before {max(token.nbf, token.iat):.0f}; it is {now:.0f}."
        )


def _list_texts(given: Texts) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _invalid(message: str) -> ServiceError:
    return ServiceError("InvalidIdentityToken", message)
