"""Account and resources that a request names, by its head and small JSON bodies alone. Pure.

Nothing is verified here: the cell that gets the request verifies its signature, so a
client that names the key of another reaches a cell that refuses it.
"""

import hashlib
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from hostelry.aws.temporary_keys import claimed_account
from hostelry.base.http import HttpRequest

MAX_READ_BYTES = 1024 * 1024  # of a JSON body that is looked at
MAX_FIELDS = 200
SIGNED = re.compile(r"AWS4-HMAC-SHA256\s.*?\bCredential=([^/,\s]{1,128})/")
ARN_OR_ID = re.compile(
    r"(?:arn:[^/]*:)?(endpoint|inference-component|endpoint-config|model)/([^/]+)"
)


class NamedKind(StrEnum):
    """The kinds of resources that a request can name."""

    ENDPOINT = "endpoint"
    COMPONENT = "component"
    CONFIGURATION = "configuration"
    MODEL = "model"


# Members of a JSON call that decide its target, in order of priority.
MEMBERS = {
    "EndpointName": NamedKind.ENDPOINT,
    "InferenceComponentName": NamedKind.COMPONENT,
    "EndpointConfigName": NamedKind.CONFIGURATION,
    "ModelName": NamedKind.MODEL,
}
RESOURCE_MEMBERS = ("ResourceId", "ResourceArn")
RESOURCE_KINDS = {
    "endpoint": NamedKind.ENDPOINT,
    "inference-component": NamedKind.COMPONENT,
    "endpoint-config": NamedKind.CONFIGURATION,
    "model": NamedKind.MODEL,
}


class NamedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource by its kind and name."""

    kind: NamedKind
    name: str


class RequestClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The account that a request claims, and the resources that it names. Unverified.

    `bearer_sha256` is the digest of an OpenAI client's key, in hexadecimal digits.
    """

    access_key_id: str | None = None
    account_id: str | None = None  # claimed by a session token
    bearer_sha256: str | None = None
    names: tuple[NamedResource, ...] = ()

    @property
    def is_anonymous(self) -> bool:
        """Whether the request shows no key of any kind."""
        return self.access_key_id is None and self.bearer_sha256 is None


def read_claims(request: HttpRequest) -> RequestClaims:
    """Read the claims of a request."""
    headers = request.headers
    query = query_fields(request.query) if "X-Amz-" in request.query else {}
    authorization = headers.get("authorization", "")
    token = headers.get("x-amz-security-token") or first(query, "X-Amz-Security-Token")
    scheme, _, bearer = authorization.partition(" ")
    is_bearer = scheme.lower() == "bearer"
    return RequestClaims(
        access_key_id=None if is_bearer else key_id(authorization, query),
        account_id=claimed_account(token) if token else None,
        bearer_sha256=hashlib.sha256(bearer.strip().encode()).hexdigest() if is_bearer else None,
        names=tuple(find_names(request)),
    )


def query_fields(query: str) -> dict[str, list[str]]:
    """Parse the members of a query. Empty if there are more than any client of AWS sends."""
    try:
        return parse_qs(query, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}


def key_id(authorization: str, query: dict[str, list[str]]) -> str | None:
    """The access key of a signed or presigned request."""
    found = SIGNED.match(authorization)
    if found is not None:
        return found[1]
    given = first(query, "X-Amz-Credential")
    return given.partition("/")[0] if given else None


def first(query: dict[str, list[str]], name: str) -> str | None:
    """The first value of a query's member."""
    values = query.get(name)
    return values[0] if values else None


def find_names(request: HttpRequest) -> Iterator[NamedResource]:
    """Find the resources that a request names. Those that decide its target come first."""
    parts = request.path.split("/", 3)
    if len(parts) > 2 and parts[1] == "endpoints":
        yield NamedResource(kind=NamedKind.ENDPOINT, name=unquote(parts[2]))
        return
    if request.path.startswith("/v1/models/"):
        yield openai_model(unquote(request.path.removeprefix("/v1/models/")))
        return
    document = json_document(request)
    if request.path.startswith("/v1/"):
        model = document.get("model")
        if isinstance(model, str):
            yield openai_model(model)
        return
    for member, kind in MEMBERS.items():
        value = document.get(member)
        if isinstance(value, str):
            yield NamedResource(kind=kind, name=value)
    for member in RESOURCE_MEMBERS:
        value = document.get(member)
        found = ARN_OR_ID.match(value) if isinstance(value, str) else None
        if found is not None:
            yield NamedResource(kind=RESOURCE_KINDS[found[1]], name=found[2])


def openai_model(name: str) -> NamedResource:
    """The component that an OpenAI client's `model` names: COMPONENT, or COMPONENT:ADAPTER."""
    return NamedResource(kind=NamedKind.COMPONENT, name=name.partition(":")[0])


def json_document(request: HttpRequest) -> dict[str, Any]:
    """Parse the JSON object in a call's body. Empty if the body is another value or too large."""
    is_call = "x-amz-target" in request.headers or request.path.startswith("/v1/")
    if not is_call or not 0 < len(request.body) <= MAX_READ_BYTES:
        return {}
    try:
        found = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
