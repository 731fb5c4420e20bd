"""AssumeRole and GetSessionToken: the callers that get keys, their lifetime, and refusals."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import HERE, Api

from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.errors import ServiceError
from hostelry.domain.principal import Account
from hostelry.domain.scope import Scope

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
    api.call_as(api.scope, "GetCallerIdentity", "sts", session)
    api.call("DeleteRole", "iam", RoleName="r")
    for made_again in (False, True):
        if made_again:
            role()
        with pytest.raises(ServiceError, match="security token") as caught:
            api.call_as(api.scope, "GetCallerIdentity", "sts", session)
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
    case("a policy that is none", {"Policy": "{}"}, "MalformedPolicyDocument", "Syntax errors"),
    case("a long policy", {"Policy": " " * 2049}, "ValidationError", "less than or equal to 2048"),
    case(
        "a policy that there is not",
        {"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/None"}]},
        "ValidationError",
        "does not exist or is not attachable",
    ),
    case(
        "too many tags",
        {"Tags": [{"Key": f"{n}" * 60, "Value": "v" * 100} for n in range(10, 50)]},
        "PackedPolicyTooLarge",
        "of allotted space",
    ),
    case(
        "a transitive tag that is not there",
        {"TransitiveTagKeys": ["team"]},
        "ValidationError",
        "team is not among the tags",
    ),
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
    attach(api, "r", ASSUME)
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


TAGGED = ["sts:AssumeRole", "sts:TagSession", "sts:SetSourceIdentity"]
LIMITS = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}],
    }
)
READ_ONLY = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"


def test_policies_tags_and_the_source_are_claims_of_the_session(
    api: Api, seal: TokenSeal, role: Callable[..., str]
) -> None:
    answer = assume(
        api.call,
        role(trust(Action=TAGGED)),
        Policy=LIMITS,
        PolicyArns=[{"arn": READ_ONLY}],
        Tags=[{"Key": "team", "Value": "a"}, {"Key": "cost", "Value": "7"}],
        TransitiveTagKeys=["team"],
        SourceIdentity="ada",
    )
    session = session_of(seal, answer)
    assert (session.policies, session.policy_arns) == ((LIMITS,), (READ_ONLY,))
    assert (session.tags, session.transitive) == ({"team": "a", "cost": "7"}, ("team",))
    assert (session.source_identity, session.issued_at) == ("ada", int(api.clock.now()))
    assert 0 < answer["PackedPolicySize"] < 20
    assert answer["SourceIdentity"] == "ada"


def test_transitive_tags_and_the_source_pass_on_to_the_next_role(
    api: Api, seal: TokenSeal, role: Callable[..., str]
) -> None:
    arn = role(trust(Action=TAGGED))
    attach(api, "r", "*")
    tags = [{"Key": "team", "Value": "a"}, {"Key": "cost", "Value": "7"}]
    given = {"Tags": tags, "TransitiveTagKeys": ["team"], "SourceIdentity": "ada"}
    session = session_of(seal, assume(api.call, arn, **given))
    as_session = partial(api.call_as, api.scope, "AssumeRole", "sts", session)
    chained = {"RoleArn": arn, "RoleSessionName": "next"}
    second = session_of(seal, as_session(**chained))
    assert (second.tags, second.transitive) == ({"team": "a"}, ("team",))
    assert second.source_identity == "ada"
    with pytest.raises(ServiceError, match="tag Team of the session cannot be replaced"):
        as_session(**chained, Tags=[{"Key": "Team", "Value": "b"}])
    with pytest.raises(ServiceError, match=r"The SourceIdentity .* cannot be changed"):
        as_session(**chained, SourceIdentity="eve")


@cases(
    "actions, given, lacks",
    case("tags", ["sts:AssumeRole"], {"Tags": [{"Key": "a", "Value": "b"}]}, "sts:TagSession"),
    case("source", ["sts:AssumeRole"], {"SourceIdentity": "ada"}, "sts:SetSourceIdentity"),
)
def test_the_trust_policy_has_to_allow_tags_and_a_source(
    api: Api, role: Callable[..., str], actions: list[str], given: dict[str, Any], lacks: str
) -> None:
    arn = role(trust(Action=actions))
    with pytest.raises(ServiceError, match=f"to perform: {lacks} on resource: {arn}"):
        assume(api.call, arn, **given)


def attach(api: Api, role_name: str, action: str) -> None:
    """Give a role a policy that allows an action."""
    statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    api.call("PutRolePolicy", "iam", RoleName=role_name, PolicyName="p", PolicyDocument=document)


ASSUME = "sts:AssumeRole"
OTHER = Scope("999999999999", "us-west-2")


def add_user(api: Api, scope: Scope, action: str = "") -> str:
    """Make the user "ada" with an access key, which may perform an action. Returns its ARN."""
    if scope != api.scope:
        account = Account(id=scope.account, name="other", created_at=0.0)
        api.state.accounts.put(scope.account_wide, scope.account, account, expect=None)
    arn: str = api.call_as(scope, "CreateUser", "iam", UserName="ada")["User"]["Arn"]
    api.call_as(scope, "CreateAccessKey", "iam", UserName="ada")
    if action:
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        given = {"UserName": "ada", "PolicyName": "p", "PolicyDocument": document}
        api.call_as(scope, "PutUserPolicy", "iam", **given)
    return arn


@cases(
    "scope, principal, action, allowed",
    case("a user that the role names", HERE, "user/ada", "", True),
    case("an account and the user's policy", HERE, "root", ASSUME, True),
    case("an account alone", HERE, "root", "", False),
    case("another account and the user's policy", OTHER, "root", ASSUME, True),
    case("another account's user and its policy", OTHER, "user/ada", ASSUME, True),
    case("another account's user without a policy", OTHER, "user/ada", "", False),
    case("another user", HERE, "user/eve", ASSUME, False),
)
def test_users_assume_roles_of_their_account_and_of_others(
    api: Api, seal: TokenSeal, role: Callable[..., str], scope: Scope, principal: str,
    action: str, allowed: bool,
) -> None:  # fmt: skip
    add_user(api, scope, action)
    arn = role(trust({"AWS": f"arn:aws:iam::{scope.account}:{principal}"}))
    given = {"RoleArn": arn, "RoleSessionName": "me"}
    ask = partial(api.call_as, scope, "AssumeRole", "sts", None, "ada")
    if not allowed:
        with pytest.raises(ServiceError, match=r"perform: sts:AssumeRole on resource") as caught:
            ask(**given)
        assert caught.value.http_status == 403
        return
    session = session_of(seal, ask(**given))
    assert (session.account_id, session.role_name) == (ACCOUNT, "r")


def test_a_deny_by_the_tags_of_a_role_holds(api: Api, role: Callable[..., str]) -> None:
    add_user(api, HERE, ASSUME)
    statement = {
        "Effect": "Deny",
        "Action": ASSUME,
        "Resource": "*",
        "Condition": {"StringEquals": {"aws:ResourceTag/stage": "production"}},
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    given = {"UserName": "ada", "PolicyName": "deny", "PolicyDocument": document}
    api.call("PutUserPolicy", "iam", **given)
    arn = role(trust({"AWS": ACCOUNT}), Tags=[{"Key": "stage", "Value": "production"}])
    ask = partial(api.call_as, HERE, "AssumeRole", "sts", None, "ada")
    with pytest.raises(ServiceError, match="explicit deny in an identity-based policy"):
        ask(RoleArn=arn, RoleSessionName="me")
    api.call("UntagRole", "iam", RoleName="r", TagKeys=["stage"])
    assert ask(RoleArn=arn, RoleSessionName="me")["Credentials"]


def test_a_closed_accounts_roles_and_keys_are_refused(
    api: Api, seal: TokenSeal, role: Callable[..., str]
) -> None:
    add_user(api, OTHER, "*")
    document = trust({"AWS": [ACCOUNT, OTHER.account]})
    given = {"RoleName": "r", "AssumeRolePolicyDocument": document}
    arn = api.call_as(OTHER, "CreateRole", "iam", **given)["Role"]["Arn"]
    session = session_of(seal, assume(api.call, arn))
    key = session_of(seal, api.call_as(OTHER, "GetSessionToken", "sts", None, "ada"))
    stored = api.state.accounts.get(OTHER.account_wide, OTHER.account)
    assert stored is not None
    closed = replace(stored.value, is_closed=True)
    api.state.accounts.put(OTHER.account_wide, OTHER.account, closed, expect=stored.version)
    with pytest.raises(ServiceError, match=NOT_AUTHORIZED):
        assume(api.call, arn)
    for held in (session, key):
        with pytest.raises(ServiceError, match="security token"):
            api.call_as(OTHER, "ListModels", "sagemaker", held)


def test_users_have_identities_and_session_tokens(api: Api, seal: TokenSeal) -> None:
    arn = add_user(api, HERE)
    identity = api.call_as(HERE, "GetCallerIdentity", "sts", None, "ada")
    assert (identity["Arn"], identity["Account"]) == (arn, ACCOUNT)
    assert identity["UserId"].startswith("AIDA")
    session = session_of(seal, api.call_as(HERE, "GetSessionToken", "sts", None, "ada"))
    assert api.call_as(HERE, "GetCallerIdentity", "sts", session) == identity
    info = api.call("GetAccessKeyInfo", "sts", AccessKeyId=session.access_key_id)
    assert info == {"Account": ACCOUNT}
    (key,) = api.call("ListAccessKeys", "iam", UserName="ada")["AccessKeyMetadata"]
    api.call("DeleteAccessKey", "iam", UserName="ada", AccessKeyId=key["AccessKeyId"])
    api.call("DeleteUser", "iam", UserName="ada")
    with pytest.raises(ServiceError, match="security token"):
        api.call_as(HERE, "GetCallerIdentity", "sts", session)


@pytest.mark.parametrize("key_id", ["ASIA" + "A" * 16, "AKIA" + "7" * 16, "AKIA1234567890123456"])
def test_an_access_key_of_no_account_here_is_refused(api: Api, key_id: str) -> None:
    with pytest.raises(ServiceError, match=f"Invalid access key id {key_id}"):
        api.call("GetAccessKeyInfo", "sts", AccessKeyId=key_id)
