"""Temporary keys: botocore signs with them, and any verifier with the same seal believes them."""

import base64
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.aws.temporary_keys import (
    FOR_OBJECTS,
    MAX_LIFETIME_S,
    AgentSeal,
    Session,
    TemporaryKeys,
    TokenSeal,
    agents_key,
    parse_session_header,
    session_header,
)
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

ORDINARY = Secret(secret_access_key="secret", account_id="111122223333")
NOW = datetime.now(UTC).timestamp()  # noqa: TID251 - botocore signs with the real time
EXPIRES_AT = int(NOW) + 3600
# botocore takes the time of signing, which may be long after this module was loaded.
VERIFIED_SKEW_S = 7200.0
SESSION = Session(
    access_key_id="ASIAEXAMPLE",
    account_id="111122223333",
    expires_at=EXPIRES_AT,
    role_name="r",
    role_id="AROA1",
    session_name="s",
)
INVALID = ("UnrecognizedClientException", "The security token included in the request is invalid.")
EXPIRED = ("ExpiredTokenException", "The security token included in the request is expired")


def verifier(home_key: str = "home") -> Verifier:
    return Verifier({"AKIAORDINARY": ORDINARY}.get, VERIFIED_SKEW_S, seal=TokenSeal(home_key))


def signed(
    keys: TemporaryKeys,
    service: str = "sagemaker",
    signer: type[SigV4Auth] = SigV4Auth,
    **changed: str | None,
) -> HttpRequest:
    """A request signed with `keys`, whose members may be changed."""
    given: dict[str, Any] = {
        "access_key": keys.access_key_id,
        "secret_key": keys.secret_access_key,
        "token": keys.session_token,
        **changed,
    }
    presigned = signer is SigV4QueryAuth
    more, (method, body) = ({"expires": 7000}, ("GET", b"")) if presigned else ({}, ("POST", b"{}"))
    request = AWSRequest(method, "http://h:1/", data=body)
    signer(Credentials(**given), service, "us-east-1", **more).add_auth(request)
    parts = urlsplit(request.url)
    headers = {"host": "h:1", **{name.lower(): it for name, it in request.headers.items()}}
    return HttpRequest(method, parts.path, parts.query, headers, body)


def refusal(request: HttpRequest, now: float, by: Verifier) -> tuple[str, str]:
    with pytest.raises(ServiceError) as caught:
        by.verify(request, now)
    assert caught.value.http_status == 403
    return caught.value.code, caught.value.message


def altered(token: str) -> str:
    """The token with one character of its claims changed: another role."""
    content = base64.urlsafe_b64decode(token)
    return base64.urlsafe_b64encode(content.replace(b'"r"', b'"x"')).decode()


@pytest.mark.parametrize("signer", [SigV4Auth, SigV4QueryAuth])
def test_each_worker_knows_whose_keys_they_are(signer: type[SigV4Auth]) -> None:
    keys = TokenSeal("home").issue(SESSION)
    for by in (verifier(), verifier()):
        for _ in range(2):
            identity = by.verify(signed(keys, signer=signer), NOW)
            assert (identity.account_id, identity.session) == ("111122223333", SESSION)


@cases(
    "changed, service, late_s, home_key, answer",
    case("expired", {}, "sagemaker", 3600, "home", EXPIRED),
    case("expired in query", {}, "iam", 3600, "home", ("ExpiredToken", EXPIRED[1])),
    case("no token", {"token": None}, "sagemaker", 0, "home", INVALID),
    case("too short a token", {"token": "AAAA"}, "sagemaker", 0, "home", INVALID),
    case("not base64", {"token": "\u00e9"}, "sagemaker", 0, "home", INVALID),
    case("a huge token", {"token": "A" * 5000}, "sagemaker", 0, "home", INVALID),
    case("sealed by another home", {}, "sagemaker", 0, "other", INVALID),
    case("another key's token", {"access_key": "ASIAOTHER"}, "sagemaker", 0, "home", INVALID),
)
def test_keys_that_are_not_good_are_refused(
    changed: dict[str, str | None],
    service: str,
    late_s: float,
    home_key: str,
    answer: tuple[str, str],
) -> None:
    by = verifier(home_key)
    keys = TokenSeal("home").issue(SESSION)
    request = signed(keys, service, SigV4QueryAuth if late_s else SigV4Auth, **changed)
    if late_s:
        by.verify(request, NOW + late_s - 5)  # remembered keys expire too
    assert refusal(request, NOW + late_s, by) == answer


COPYS = replace(SESSION, role_name="", role_id="", session_name="i-1")


@cases(
    "session, believed",
    case("a copy's", COPYS, True),
    case("its own, to read objects", replace(COPYS, purpose=FOR_OBJECTS), True),
    case("the account's", replace(COPYS, session_name=""), False),
    case("a role's", SESSION, False),
)
def test_an_agents_key_makes_no_key_of_a_principal(session: Session, believed: bool) -> None:
    request = signed(AgentSeal(agents_key("home")).issue(session))
    if believed:
        assert verifier().verify(request, NOW).session == session
    else:
        assert refusal(request, NOW, verifier()) == INVALID
    assert refusal(request, NOW, verifier("other")) == INVALID


@pytest.mark.parametrize("seal", [TokenSeal("home"), AgentSeal(agents_key("home"))])
def test_no_keys_last_longer_than_any_that_are_issued(seal: TokenSeal | AgentSeal) -> None:
    ten_years = seal.issue(replace(COPYS, expires_at=int(NOW) + 10 * 365 * 86400))
    assert refusal(signed(ten_years), NOW, verifier()) == INVALID
    longest = seal.issue(replace(COPYS, expires_at=int(NOW) + MAX_LIFETIME_S))
    assert verifier().verify(signed(longest), NOW).session is not None


def test_a_token_of_an_earlier_version_is_believed() -> None:
    """Its claims have no purpose, and its secret is of these very bytes."""
    keys = TokenSeal("home").issue(SESSION)
    assert b"purpose" not in base64.urlsafe_b64decode(keys.session_token)
    assert verifier().verify(signed(keys), NOW).session == SESSION


def test_an_altered_token_is_refused() -> None:
    keys = TokenSeal("home").issue(SESSION)
    token = altered(keys.session_token)
    assert token != keys.session_token
    assert refusal(signed(keys, token=token), NOW, verifier()) == INVALID


def test_the_secret_is_needed_besides_the_token() -> None:
    keys = TokenSeal("home").issue(SESSION)
    answer = refusal(signed(keys, secret_key="guessed"), NOW, verifier())
    assert answer[0] == "InvalidSignatureException"


def test_ordinary_keys_have_no_session() -> None:
    keys = TemporaryKeys(
        access_key_id="AKIAORDINARY", secret_access_key="secret", session_token="", expires_at=0
    )
    assert verifier().verify(signed(keys, token=None), NOW).session is None


def test_a_session_travels_in_a_header() -> None:
    assert parse_session_header(session_header(SESSION)) == SESSION
