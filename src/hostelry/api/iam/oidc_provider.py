"""OpenID Connect providers, whose tokens AssumeRoleWithWebIdentity takes."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    already_exists,
    answer_tag_page,
    describe_tags,
    invalid_input,
    limit_exceeded,
    merge_tags,
    no_such_entity,
    parse_tags,
    remove_tags,
)
from hostelry.api.record_kind import RecordKind
from hostelry.api.refusals import refuse_fields
from hostelry.domain.principal import OidcProvider
from hostelry.home.ports import is_loopback
from hostelry.store.records import Versioned

MAX_PROVIDERS = 100
MAX_CLIENT_IDS = 100
MAX_THUMBPRINTS = 5
THUMBPRINT_CHARACTERS = 40
HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
ARN = "OpenIDConnectProviderArn"
UNSUPPORTED = ("ContextProvider", "IdentityCenterInstanceArn")
PROVIDERS = RecordKind[OidcProvider](
    records=lambda state: state.oidc_providers,
    not_found=lambda _, arn: no_such_entity(f"OpenIDConnect Provider not found for arn {arn}"),
    is_account_wide=True,
)


def create_open_id_connect_provider(context: CallContext, params: Params) -> Result:
    """CreateOpenIDConnectProvider. The provider is asked once a token comes."""
    refuse_fields(params, UNSUPPORTED)
    issuer = params["Url"]
    name = _parse_issuer(issuer)
    if PROVIDERS.get(context, name) is not None:
        raise already_exists(f"Provider with url {issuer} already exists.")
    if len(PROVIDERS.all(context)) >= MAX_PROVIDERS:
        raise limit_exceeded(f"Cannot exceed quota for OpenIDConnectProviders: {MAX_PROVIDERS}")
    provider = OidcProvider(
        account=context.scope.account,
        name=name,
        issuer=issuer,
        created_at=context.now,
        client_ids=_check_client_ids(tuple(dict.fromkeys(params.get("ClientIDList") or ()))),
        thumbprints=_check_thumbprints(params.get("ThumbprintList") or ()),
        tags=parse_tags(params.get("Tags")),
    )
    PROVIDERS.put(context, provider)
    return {ARN: provider.arn, "Tags": describe_tags(provider.tags)}


def get_open_id_connect_provider(context: CallContext, params: Params) -> Result:
    """GetOpenIDConnectProvider."""
    provider = _find_provider(context, params).value
    return {
        "Url": provider.name,
        "ClientIDList": list(provider.client_ids),
        "ThumbprintList": list(provider.thumbprints),
        "CreateDate": provider.created_at,
        "Tags": describe_tags(provider.tags),
    }


def list_open_id_connect_providers(context: CallContext, _: Params) -> Result:
    """ListOpenIDConnectProviders. AWS lists them on one page."""
    return {"OpenIDConnectProviderList": [{"Arn": it.arn} for it in PROVIDERS.values(context)]}


def delete_open_id_connect_provider(context: CallContext, params: Params) -> Result:
    """DeleteOpenIDConnectProvider. Sessions that it began stay until they expire."""
    PROVIDERS.delete(context, _find_provider(context, params))
    return {}


def add_client_id(context: CallContext, params: Params) -> Result:
    """AddClientIDToOpenIDConnectProvider. A client id that is there already is ignored."""
    stored = _find_provider(context, params)
    ids = tuple(dict.fromkeys((*stored.value.client_ids, params["ClientID"])))
    return _change(context, stored, client_ids=_check_client_ids(ids))


def remove_client_id(context: CallContext, params: Params) -> Result:
    """RemoveClientIDFromOpenIDConnectProvider. A missing client id is ignored."""
    stored = _find_provider(context, params)
    ids = tuple(it for it in stored.value.client_ids if it != params["ClientID"])
    return _change(context, stored, client_ids=ids)


def update_thumbprint(context: CallContext, params: Params) -> Result:
    """UpdateOpenIDConnectProviderThumbprint: replaces the whole list."""
    thumbprints = _check_thumbprints(params["ThumbprintList"])
    return _change(context, _find_provider(context, params), thumbprints=thumbprints)


def tag_open_id_connect_provider(context: CallContext, params: Params) -> Result:
    """TagOpenIDConnectProvider: adds or overwrites."""
    stored = _find_provider(context, params)
    return _change(context, stored, tags=merge_tags(stored.value.tags, params))


def untag_open_id_connect_provider(context: CallContext, params: Params) -> Result:
    """UntagOpenIDConnectProvider. Missing keys are ignored."""
    stored = _find_provider(context, params)
    return _change(context, stored, tags=remove_tags(stored.value.tags, params))


def list_open_id_connect_provider_tags(context: CallContext, params: Params) -> Result:
    """ListOpenIDConnectProviderTags."""
    return answer_tag_page(_find_provider(context, params).value.tags, params)


def _parse_issuer(issuer: str) -> str:
    """The URL without its scheme. Raises InvalidInput for a URL that no provider may have."""
    try:
        url = urlsplit(issuer)
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise invalid_input(f"Invalid Open ID Connect Provider URL: {issuer}") from None
    if url.query or url.fragment or url.username is not None or not host or issuer.endswith("/"):
        raise invalid_input(
            f"Invalid Open ID Connect Provider URL: {issuer} must have a host, no query, no user"
            " and no slash at the end."
        )
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(host)):
        raise invalid_input(
            f"Invalid Open ID Connect Provider URL: {issuer} must begin with https://. Only a"
            " provider on this machine's loopback address may have http://."
        )
    return issuer.partition("://")[2]


def _check_client_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(ids) > MAX_CLIENT_IDS:
        raise limit_exceeded(
            f"Cannot exceed quota for ClientIdsPerOpenIdConnectProvider: {MAX_CLIENT_IDS}"
        )
    return ids


def _check_thumbprints(thumbprints: Sequence[str]) -> tuple[str, ...]:
    if len(thumbprints) > MAX_THUMBPRINTS:
        raise invalid_input(f"Thumbprint list must contain at most {MAX_THUMBPRINTS} entries.")
    for thumbprint in thumbprints:
        if len(thumbprint) != THUMBPRINT_CHARACTERS or not set(thumbprint) <= HEXADECIMAL:
            raise invalid_input(
                f"Thumbprint {thumbprint} is not a SHA-1 of {THUMBPRINT_CHARACTERS} hexadecimal"
                " digits."
            )
    return tuple(thumbprints)


def _find_provider(context: CallContext, params: Params) -> Versioned[OidcProvider]:
    arn = params[ARN]
    stored = PROVIDERS.get(context, arn.partition(":oidc-provider/")[2])
    if stored is None or stored.value.arn != arn:
        raise PROVIDERS.not_found(context, arn)
    return stored


def _change(context: CallContext, stored: Versioned[OidcProvider], **changes: Any) -> Result:
    PROVIDERS.put(context, replace(stored.value, **changes), stored)
    return {}


OPERATIONS = {
    "CreateOpenIDConnectProvider": create_open_id_connect_provider,
    "GetOpenIDConnectProvider": get_open_id_connect_provider,
    "ListOpenIDConnectProviders": list_open_id_connect_providers,
    "DeleteOpenIDConnectProvider": delete_open_id_connect_provider,
    "AddClientIDToOpenIDConnectProvider": add_client_id,
    "RemoveClientIDFromOpenIDConnectProvider": remove_client_id,
    "UpdateOpenIDConnectProviderThumbprint": update_thumbprint,
    "TagOpenIDConnectProvider": tag_open_id_connect_provider,
    "UntagOpenIDConnectProvider": untag_open_id_connect_provider,
    "ListOpenIDConnectProviderTags": list_open_id_connect_provider_tags,
}
