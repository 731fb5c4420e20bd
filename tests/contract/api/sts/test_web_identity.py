"""OpenID Connect providers, and AssumeRoleWithWebIdentity with tokens that they sign."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from tests.cases import case, cases
from tests.contract.api.rig import HERE, Api

from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope

ISSUER = "https://id.example/realms/a"
ARN = f"arn:aws:iam::{HERE.account}:oidc-provider/id.example/realms/a"
ROLE = f"arn:aws:iam::{HERE.account}:role/web"
PRIVATE: dict[str, Any] = {
    "one": RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}),
    "two": ECKey.generate_key("P-256", {"kid": "two"}),
    "forged": RSAKey.generate_key(2048, {"kid": "one"}),
    "shared": OctKey.generate_key(256, {"kid": "shared"}),
}
PUBLIC = [PRIVATE[it].as_dict(private=False) for it in ("one", "two")]
TAGS = "https://aws.amazon.com/tags"


def trust(**more: Any) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": ARN},
        "Action": ["sts:AssumeRoleWithWebIdentity", "sts:TagSession"],
        **more,
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def web(api: Api) -> Api:
    """An account with the provider and the role "web", which trusts it."""
    given = {"Url": ISSUER, "ClientIDList": ["app", "cli"]}
    assert (
        api.call("CreateOpenIDConnectProvider", "iam", **given)["OpenIDConnectProviderArn"] == ARN
    )
    api.call("CreateRole", "iam", RoleName="web", AssumeRolePolicyDocument=trust())
    return replace(api, provider_keys=lambda *_: PUBLIC)


def token(api: Api, key: str = "one", alg: str = "RS256", **claims: Any) -> str:
    now = int(api.clock.now())
    body = {
        "iss": ISSUER,
        "sub": "repo:team/app",
        "aud": "app",
        "iat": now,
        "exp": now + 600,
        **claims,
    }
    header = {"alg": alg, "kid": PRIVATE[key].kid}
    made: str = jwt.encode(header, body, PRIVATE[key], algorithms=[alg])
    return made


def assume(api: Api, text: str, scope: Scope = HERE, **more: Any) -> dict[str, Any]:
    given = {"RoleArn": ROLE, "RoleSessionName": "me", "WebIdentityToken": text, **more}
    return api.call_as(scope, "AssumeRoleWithWebIdentity", "sts", **given)


@cases(
    "make",
    case("RSA", lambda api: token(api)),
    case("elliptic curve", lambda api: token(api, "two", "ES256")),
    case("several audiences", lambda api: token(api, aud=["other", "app"])),
    case("an authorized party", lambda api: token(api, aud="other", azp="app")),
)
def test_a_token_of_the_provider_begins_a_session(
    web: Api, seal: TokenSeal, make: Callable[[Api], str]
) -> None:
    answer = assume(web, make(web), Scope("000000000000", "eu-west-1"))  # the caller is not known
    session = seal.open(answer["Credentials"]["SessionToken"])
    assert session is not None
    assert (session.account_id, session.role_name, session.session_name) == (
        HERE.account, "web", "me",
    )  # fmt: skip
    assert answer["SubjectFromWebIdentityToken"] == "repo:team/app"
    (named,) = web.named
    assert (named.kind, named.account, named.user_name) == (
        "WebIdentityUser", HERE.account, "repo:team/app",
    )  # fmt: skip
    assert (answer["Provider"], answer["Audience"]) == (ARN, "app")


def test_a_token_carries_tags_and_the_source_identity(web: Api, seal: TokenSeal) -> None:
    actions = ["sts:*"]
    web.call("UpdateAssumeRolePolicy", "iam", RoleName="web", PolicyDocument=trust(Action=actions))
    tags: dict[str, Any] = {
        "principal_tags": {"team": ["a"], "cost": ["7"]},
        "transitive_tag_keys": ["team"],
    }
    claims: dict[str, Any] = {TAGS: tags, "https://aws.amazon.com/source_identity": "ada"}
    answer = assume(web, token(web, **claims))
    session = seal.open(answer["Credentials"]["SessionToken"])
    assert session is not None
    assert (session.tags, session.transitive) == ({"team": "a", "cost": "7"}, ("team",))
    assert session.source_identity == answer["SourceIdentity"] == "ada"


@cases(
    "condition, allowed",
    case("the subject", {"StringEquals": {"id.example/realms/a:sub": "repo:team/app"}}, True),
    case("a pattern", {"StringLike": {"id.example/realms/a:sub": "repo:team/*"}}, True),
    case("another subject", {"StringEquals": {"id.example/realms/a:sub": "repo:eve/app"}}, False),
    case("the audience", {"StringEquals": {"id.example/realms/a:aud": "app"}}, True),
    case("another audience", {"StringEquals": {"id.example/realms/a:aud": "cli"}}, False),
    case("another provider's subject", {"StringEquals": {"b.example:sub": "repo:team/app"}}, False),
)
def test_the_trust_policy_reads_the_claims(
    web: Api, condition: dict[str, Any], allowed: bool
) -> None:
    document = trust(Condition=condition)
    web.call("UpdateAssumeRolePolicy", "iam", RoleName="web", PolicyDocument=document)
    if allowed:
        assert assume(web, token(web))["Credentials"]
        return
    with pytest.raises(ServiceError, match="Not authorized to perform sts:AssumeRoleWith") as found:
        assume(web, token(web))
    assert (found.value.code, found.value.http_status) == ("AccessDenied", 403)


INVALID = "InvalidIdentityToken"


@cases(
    "make, code, text",
    case("no token", lambda _: "none at all", INVALID, "not a valid JWT"),
    case("no claims", lambda api: token(api, sub=None), INVALID, "not a valid JWT"),
    case("no expiry", lambda api: token(api, exp=None), INVALID, "not a valid JWT"),
    case("another issuer", lambda api: token(api, iss="https://b.example"), INVALID, "No OpenID"),
    case(
        "an issuer without https",
        lambda api: token(api, iss="http://id.example/realms/a"),
        INVALID,
        "No OpenIDConnect provider",
    ),
    case("another audience", lambda api: token(api, aud="x"), INVALID, "Incorrect token audience"),
    case(
        "an authorized party that is not a client",
        lambda api: token(api, azp="x"),
        INVALID,
        "Incorrect token audience",
    ),
    case("another key", lambda api: token(api, "forged"), INVALID, "signature"),
    case("a shared key", lambda api: token(api, "shared", "HS256"), INVALID, "signature"),
    case(
        "changed claims",
        lambda api: ".".join(
            (token(api).split(".")[0], token(api, sub="x").split(".")[1], token(api).split(".")[2])
        ),
        INVALID,
        "signature",
    ),
    case(
        "no algorithm",
        lambda api: "eyJhbGciOiJub25lIn0." + token(api).split(".")[1] + ".",
        INVALID,
        "signature",
    ),
    case(
        "expired",
        lambda api: token(api, exp=int(api.clock.now())),
        "ExpiredTokenException",
        "Token expired",
    ),
    case(
        "not yet", lambda api: token(api, nbf=int(api.clock.now()) + 90), INVALID, "not valid bef"
    ),
    case(
        "issued later",
        lambda api: token(api, iat=int(api.clock.now()) + 90),
        INVALID,
        "not valid bef",
    ),
)
def test_tokens_that_are_refused(
    web: Api, make: Callable[[Api], str], code: str, text: str
) -> None:
    with pytest.raises(ServiceError, match=text) as caught:
        assume(web, make(web))
    assert (caught.value.code, caught.value.http_status) == (code, 400)


def test_a_provider_that_does_not_answer_is_named(api: Api, web: Api) -> None:
    with pytest.raises(ServiceError, match=ISSUER) as caught:
        assume(api, token(api))
    assert caught.value.code == "IDPCommunicationError"


def test_roles_of_others_are_not_assumed(web: Api) -> None:
    for arn in (f"{ROLE}-none", "arn:aws:iam::999999999999:role/web"):
        with pytest.raises(ServiceError, match=r"Not authorized|No OpenIDConnect provider"):
            assume(web, token(web), RoleArn=arn)


def test_a_provider_lives_from_create_to_delete(web: Api) -> None:
    def iam(operation: str, **params: Any) -> dict[str, Any]:
        return web.call(operation, "iam", **params)

    named = {"OpenIDConnectProviderArn": ARN}
    iam("AddClientIDToOpenIDConnectProvider", **named, ClientID="web")
    iam("AddClientIDToOpenIDConnectProvider", **named, ClientID="app")
    iam("RemoveClientIDFromOpenIDConnectProvider", **named, ClientID="cli")
    iam("UpdateOpenIDConnectProviderThumbprint", **named, ThumbprintList=["a" * 40])
    iam("TagOpenIDConnectProvider", **named, Tags=[{"Key": "k", "Value": "v"}])
    shown = iam("GetOpenIDConnectProvider", **named)
    assert (shown["Url"], shown["ClientIDList"]) == ("id.example/realms/a", ["app", "web"])
    assert shown["ThumbprintList"] == ["a" * 40]
    assert iam("ListOpenIDConnectProviderTags", **named)["Tags"] == [{"Key": "k", "Value": "v"}]
    iam("UntagOpenIDConnectProvider", **named, TagKeys=["k"])
    assert iam("ListOpenIDConnectProviders")["OpenIDConnectProviderList"] == [{"Arn": ARN}]
    iam("DeleteOpenIDConnectProvider", **named)
    with pytest.raises(ServiceError, match="OpenIDConnect Provider not found for arn"):
        iam("GetOpenIDConnectProvider", **named)
    with pytest.raises(ServiceError, match="No OpenIDConnect provider found"):
        assume(web, token(web))


@cases(
    "given, code, text",
    case("the same URL", {"Url": ISSUER}, "EntityAlreadyExists", "already exists"),
    case("http", {"Url": "http://b.example"}, "InvalidInput", "must begin with https://"),
    case("a query", {"Url": "https://b.example/?a=b"}, "InvalidInput", "no query"),
    case("a port that is none", {"Url": "https://b.example:x"}, "InvalidInput", "Invalid Open ID"),
    case(
        "a thumbprint that is none",
        {"Url": "https://b.example", "ThumbprintList": ["z" * 40]},
        "InvalidInput",
        "hexadecimal",
    ),
    case(
        "six thumbprints",
        {"Url": "https://b.example", "ThumbprintList": ["a" * 40] * 6},
        "InvalidInput",
        "at most 5",
    ),
    case(
        "too many clients",
        {"Url": "https://b.example", "ClientIDList": [f"{n}" for n in range(101)]},
        "LimitExceeded",
        "ClientIdsPerOpenIdConnectProvider: 100",
    ),
)
def test_providers_that_are_refused(web: Api, given: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(ServiceError, match=text) as caught:
        web.call("CreateOpenIDConnectProvider", "iam", **given)
    assert caught.value.code == code


def test_a_provider_on_this_machine_may_have_http(web: Api) -> None:
    made = web.call("CreateOpenIDConnectProvider", "iam", Url="http://127.0.0.1:9000/realm")
    assert made["OpenIDConnectProviderArn"].endswith(":oidc-provider/127.0.0.1:9000/realm")
