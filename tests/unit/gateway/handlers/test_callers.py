import asyncio

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE

from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.gateway.handlers.callers import Callers, bind_principal, check_service
from hostelry.principals.source import no_principals

SECRETS = {"AKIAKNOWN": Secret(secret_access_key="secret", account_id=HERE.account)}


def callers(allow_unsigned: bool = False) -> Callers:
    return Callers(
        Verifier(SECRETS.get),
        HERE,
        "sk-key",
        allow_unsigned,
        lambda: 1_700_000_000.0,
        no_principals(HERE.account),
    )


@cases(
    "header, allow_unsigned, held",
    case("the key", "Bearer sk-key", False, True),
    case("the scheme in another case", "bearer  sk-key ", False, True),
    case("another key", "Bearer sk-other", False, False),
    case("the beginning of the key", "Bearer sk-ke", False, False),
    case("no key", "Bearer", False, False),
    case("another scheme", "Basic sk-key", False, False),
    case("characters that fit in no key", "Bearer s\xe9", False, False),
    case("no header", None, False, False),
    case("no header where signatures are off", None, True, True),
    case("a wrong key even where they are off", "Bearer sk-other", True, False),
)
def test_openai_key(header: str | None, allow_unsigned: bool, held: bool) -> None:
    headers = {} if header is None else {"authorization": header}
    request = HttpRequest("GET", "/v1/models", headers=headers)
    assert callers(allow_unsigned).holds_openai_key(request) is held


def test_unsigned_calls_pass_as_the_owner_only_where_they_may() -> None:
    request = HttpRequest("POST", "/endpoints/e/invocations", headers={"host": "door"})
    with pytest.raises(ServiceError) as refusal:
        asyncio.run(callers().identify(request))
    assert refusal.value.http_status == 403
    identity = asyncio.run(callers(allow_unsigned=True).identify(request))
    assert (identity.account_id, identity.region) == (HERE.account, HERE.region)


@cases(
    "query, headers",
    case("a broken header", "", {"authorization": "AWS4-HMAC-SHA256 nonsense"}),
    case("a broken presigned query", "X-Amz-Signature=00", {}),
    case("an empty header", "", {"authorization": ""}),
)
def test_a_signature_that_is_there_must_hold_even_where_none_is_needed(
    query: str, headers: dict[str, str]
) -> None:
    request = HttpRequest("POST", "/", query, headers)
    with pytest.raises(ServiceError) as refusal:
        asyncio.run(callers(allow_unsigned=True).identify(request))
    assert refusal.value.http_status == 403


@pytest.mark.parametrize(("service", "passes"), [("sagemaker", True), ("", True), ("s3", False)])
def test_a_signature_counts_for_its_service_only(service: str, passes: bool) -> None:
    if passes:
        check_service(service, "sagemaker")
        return
    with pytest.raises(ServiceError, match="correct service: 'sagemaker'"):
        check_service(service, "sagemaker")


@cases(
    "sender, tenant, principal",
    case("the account's own keys choose the tenant", "", "blue", None),
    case("a role is its own tenant", "role/r", "role/r", "role/r"),
    case("a user is its own tenant", "user/u", "user/u", "user/u"),
    case("a copy names none", "copy/i-1", None, "copy/i-1"),
)  # fmt: skip
def test_a_caller_is_who_signed_whatever_its_headers_say(
    sender: str, tenant: str | None, principal: str | None
) -> None:
    given = {"x-hostelry-tenant": "blue", "x-hostelry-principal": "role/other", "accept": "a"}
    headers = bind_principal(HttpRequest("POST", "/", headers=given), sender).headers
    assert headers.get("x-hostelry-tenant") == tenant
    assert headers.get("x-hostelry-principal") == principal
    assert headers["accept"] == "a"
