"""AssumeRole and GetSessionToken: the callers that get keys, their lifetime, and refusals."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.errors import ServiceError

Call = Callable[..., dict[str, Any]]
ACCOUNT = "123456789012"
ROOT = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
NOT_AUTHORIZED = "is not authorized to perform: sts:AssumeRole on resource: arn:aws:iam::"


def trust(principal: Any = ROOT, **more: Any) -> str:
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def role(api: Api) -> Callable[..., str]:
    """`role(trust, **more)`: the ARN of the new role "r"."""

    def made(document: str = trust(), **more: Any) -> str:
        given = {"RoleName": "r", "AssumeRolePolicyDocument": document, **more}
        arn: str = api.call("CreateRole", "iam", **given)["Role"]["Arn"]
        return arn

    return made


def assume(call: Call, arn: str, **more: Any) -> dict[str, Any]:
    return call("AssumeRole", "sts", RoleArn=arn, RoleSessionName="me", **more)


def session_of(seal: TokenSeal, answer: dict[str, Any]) -> Session:
    session = seal.open(answer["Credentials"]["SessionToken"])
    assert session is not None
    return session


def test_the_keys_of_a_role_say_who_has_them(
    api: Api, seal: TokenSeal, role: Callable[..., str]
) -> None:
    call = lambda name, *service, **params: api.call_as(api.scope, name, *service, **params)  # noqa: E731
    answer = assume(call, role())
    session = session_of(seal, answer)
    assert answer["Credentials"]["AccessKeyId"] == session.access_key_id
    assert session.access_key_id.startswith("ASIA")
    assert answer["Credentials"]["Expiration"] == session.expires_at == int(api.clock.now()) + 3600
    identity = api.call_as(api.scope, "GetCallerIdentity", "sts", session)
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/r/me"
    assert answer["AssumedRoleUser"]["Arn"] == identity["Arn"] == arn
    assert answer["AssumedRoleUser"]["AssumedRoleId"] == identity["UserId"]
    assert identity["UserId"].startswith("AROA")


def test_sessions_end_with_their_role(api: Api, seal: TokenSeal, role: Callable[..., str]) -> None:
    session = session_of(seal, assume(api.call, role()))
    api.call_as(api.scope, "ListModels", "sagemaker", session)
    api.call("DeleteRole", "iam", RoleName="r")
    for made_again in (False, True):
        if made_again:
            role()
        with pytest.raises(ServiceError, match="security token") as caught:
            api.call_as(api.scope, "ListModels", "sagemaker", session)
        assert (caught.value.code, caught.value.http_status) == ("UnrecognizedClientException", 403)


@cases(
    "document, trusted",
    case("the account", trust(), True),
    case("the account's number", trust({"AWS": ACCOUNT}), True),
    case("everyone", trust("*"), True),
    case(
        "the caller's role",
        trust({"AWS": f"arn:aws:iam::{ACCOUNT}:role/HostelryExecutionRole"}),
        True,
    ),
    case(
        "the caller's session",
        trust({"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/HostelryExecutionRole/hostelry"}),
        True,
    ),
    case("another account", trust({"AWS": "999999999999"}), False),
    case("another role", trust({"AWS": f"arn:aws:iam::{ACCOUNT}:role/o"}), False),
    case("a service", trust({"Service": "sagemaker.amazonaws.com"}), False),
    case("denied", trust(Effect="Deny"), False),
    case("its external id", trust(Condition={"StringEquals": {"sts:ExternalId": "xx"}}), True),
    case("another external id", trust(Condition={"StringEquals": {"sts:ExternalId": "yy"}}), False),
)
def test_the_trust_policy_decides_who_assumes_a_role(
    api: Api, role: Callable[..., str], document: str, trusted: bool
) -> None:
    arn = role(document)
    if trusted:
        assert assume(api.call, arn, ExternalId="xx")["Credentials"]
        return
    with pytest.raises(ServiceError, match=NOT_AUTHORIZED) as caught:
        assume(api.call, arn, ExternalId="xx")
    assert (caught.value.code, caught.value.http_status) == ("AccessDenied", 403)


@cases(
    "more, code, text",
    case("too long", {"DurationSeconds": 7201}, "ValidationError", "MaxSessionDuration set"),
    case("a policy", {"Policy": "{}"}, "ValidationError", "Policy is not supp"),
    case("an MFA device", {"SerialNumber": "123456789"}, "ValidationError", "no MFA devices"),
    case(
        "a role that is not there",
        {"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/none"},
        "AccessDenied",
        NOT_AUTHORIZED,
    ),
    case(
        "a role of another account",
        {"RoleArn": "arn:aws:iam::999999999999:role/r"},
        "AccessDenied",
        NOT_AUTHORIZED,
    ),
    case(
        "no role at all",
        {"RoleArn": f"arn:aws:iam::{ACCOUNT}:user/root/r"},
        "AccessDenied",
        NOT_AUTHORIZED,
    ),
)
def test_what_assume_role_refuses(
    api: Api, role: Callable[..., str], more: dict[str, Any], code: str, text: str
) -> None:
    given = {"RoleArn": role(MaxSessionDuration=7200), "RoleSessionName": "me", **more}
    with pytest.raises(ServiceError, match=text) as caught:
        api.call("AssumeRole", "sts", **given)
    assert caught.value.code == code


def test_a_session_assumes_a_role_for_an_hour_at_most(
    api: Api, seal: TokenSeal, role: Callable[..., str]
) -> None:
    arn = role(MaxSessionDuration=7200)
    session = session_of(seal, assume(api.call, arn, DurationSeconds=7200))
    given = {"RoleArn": arn, "RoleSessionName": "again"}
    assert api.call_as(api.scope, "AssumeRole", "sts", session, **given)["Credentials"]
    with pytest.raises(ServiceError, match="1 hour session limit"):
        api.call_as(api.scope, "AssumeRole", "sts", session, **given, DurationSeconds=3601)


def test_a_session_token_is_the_account_itself(api: Api, seal: TokenSeal) -> None:
    session = session_of(seal, api.call("GetSessionToken", "sts"))
    assert session.expires_at == int(api.clock.now()) + 43_200
    here = api.call("GetCallerIdentity", "sts")
    assert api.call_as(api.scope, "GetCallerIdentity", "sts", session) == here
    with pytest.raises(ServiceError, match="Cannot call GetSessionToken with session"):
        api.call_as(api.scope, "GetSessionToken", "sts", session)
    assert session == replace(session, role_name="")


def test_federation_is_refused_by_name(api: Api) -> None:
    with pytest.raises(ServiceError, match="there is no identity provider"):
        api.call(
            "AssumeRoleWithWebIdentity",
            "sts",
            RoleArn=f"arn:aws:iam::{ACCOUNT}:role/r",
            RoleSessionName="me",
            WebIdentityToken="token",
        )
