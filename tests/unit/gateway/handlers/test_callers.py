import asyncio

import pytest
from tests.unit.dataplane.routes_sample import HERE

from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.gateway.handlers.callers import Callers, bind_principal, check_service

SECRETS = {"AKIAKNOWN": Secret(secret_access_key="secret", account_id=HERE.account)}


def callers(allow_unsigned: bool = False) -> Callers:
    return Callers(Verifier(SECRETS.get), HERE, "sk-key", allow_unsigned, lambda: 1_700_000_000.0)


@pytest.mark.parametrize(
    ("header", "allow_unsigned", "held"),
    [
        pytest.param("Bearer sk-key", False, True, id="the key"),
        pytest.param("bearer  sk-key ", False, True, id="the scheme in another case"),
        pytest.param("Bearer sk-other", False, False, id="another key"),
        pytest.param("Bearer sk-ke", False, False, id="the beginning of the key"),
        pytest.param("Bearer", False, False, id="no key"),
        pytest.param("Basic sk-key", False, False, id="another scheme"),
        pytest.param("Bearer s\xe9", False, False, id="characters that fit in no key"),
        pytest.param(None, False, False, id="no header"),
        pytest.param(None, True, True, id="no header where signatures are off"),
        pytest.param("Bearer sk-other", True, False, id="a wrong key even where they are off"),
    ],
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


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        pytest.param("", {"authorization": "AWS4-HMAC-SHA256 nonsense"}, id="a broken header"),
        pytest.param("X-Amz-Signature=00", {}, id="a broken presigned query"),
        pytest.param("", {"authorization": ""}, id="an empty header"),
    ],
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


def session(**claims: str) -> Session:
    return Session(access_key_id="ASIA1", account_id=HERE.account, expires_at=1, **claims)


@pytest.mark.parametrize(
    ("sender", "tenant", "principal"),
    [
        pytest.param(None, "blue", None, id="the account's own keys choose the tenant"),
        pytest.param(session(), "blue", None, id="so do temporary keys of the account itself"),
        pytest.param(
            session(role_name="r", session_name="s"), "role/r", "role/r",
            id="a role is its own tenant",
        ),
        pytest.param(session(session_name="i-1"), None, "copy/i-1", id="a copy names none"),
    ],
)  # fmt: skip
def test_a_caller_is_who_signed_whatever_its_headers_say(
    sender: Session | None, tenant: str | None, principal: str | None
) -> None:
    given = {"x-hostelry-tenant": "blue", "x-hostelry-principal": "role/other", "accept": "a"}
    headers = bind_principal(HttpRequest("POST", "/", headers=given), sender).headers
    assert headers.get("x-hostelry-tenant") == tenant
    assert headers.get("x-hostelry-principal") == principal
    assert headers["accept"] == "a"
