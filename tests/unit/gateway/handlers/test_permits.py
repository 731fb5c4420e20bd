"""Invocations are held to the policies of their callers, and OpenAI keys to their users."""

import hashlib
import json

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.aws.sigv4 import Identity, Verifier
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.handlers.permits import Permits
from hostelry.permissions.needs.invocation import STREAMED, WHOLE, InvokedTarget
from hostelry.principals.caller import Principals
from hostelry.principals.source import FixedPrincipals
from hostelry.principals.table import (
    KeyRow,
    OpenAiKeyRow,
    PolicyRow,
    PrincipalRow,
    PrincipalTable,
)

ACCOUNT = "111122223333"
HERE = Scope(ACCOUNT, "us-west-2")
NOW = 1_700_000_000.0
ENDPOINT = HERE.arn("endpoint", "chat")


def document(*statements: dict[str, object]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(resource: str, **condition: object) -> dict[str, object]:
    found: dict[str, object] = {
        "Effect": "Allow",
        "Action": "sagemaker:InvokeEndpoint",
        "Resource": resource,
    }
    return found | ({"Condition": condition} if condition else {})


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def table(policy: str, **more: object) -> PrincipalTable:
    user = f"{ACCOUNT}/ann"
    found = PrincipalTable(
        users={
            user: PrincipalRow(
                account=ACCOUNT,
                name="ann",
                id="AIDA",
                arn=f"arn:aws:iam::{ACCOUNT}:user/ann",
                policies=("own",),
            )
        },
        access_keys={"AKIAANN": KeyRow(account=ACCOUNT, user=user)},
        openai_keys={
            digest("sk-ann"): OpenAiKeyRow(account=ACCOUNT, user=user, id="k1", models=("chat",)),
            digest("sk-old"): OpenAiKeyRow(account=ACCOUNT, user=user, id="k2", expires_at=NOW),
        },
        policies={"own": PolicyRow(id="own", type="user", document=policy)},
    )
    return replace(found, **more)


def callers(given: PrincipalTable, *, is_trusted: bool = True) -> Callers:
    source = FixedPrincipals(Principals(given, ACCOUNT))
    source.is_trusted = is_trusted
    return Callers(Verifier(lambda _: None), HERE, "sk-own", False, lambda: NOW, source)


def signer(user: str = "ann") -> Identity:
    key = "AKIAANN" if user else "AKIAOWN"
    return Identity(
        access_key_id=key, account_id=ACCOUNT, region=HERE.region, service="sagemaker", user=user
    )


def exchange_of(address: str = "10.0.0.1", **headers: str) -> Exchange:
    request = HttpRequest("POST", "/", "", headers)
    received = Received(request, True, True)
    return Exchange(WrittenAnswer(), received, b"", address=address)


def refusal(
    given: PrincipalTable,
    target: InvokedTarget,
    *,
    user: str = "ann",
    operation: str = WHOLE,
    address: str = "10.0.0.1",
) -> str:
    found = callers(given)
    caller = found.resolve(signer(user))
    return found.permits.find_refusal(caller, exchange_of(address), HERE, operation, target) or ""


CHAT, ON_COMPONENT = InvokedTarget(endpoint="chat"), InvokedTarget(endpoint="chat", component="c")
FROM_HERE = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
TAGGED = {"StringEquals": {"aws:ResourceTag/team": "red"}}
DENY: dict[str, object] = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "sagemaker:InvokeEndpoint",
    "Resource": "*",
}


@cases(
    "given, target, text",
    case("the endpoint is allowed", table(document(allow(ENDPOINT))), CHAT, ""),
    case("another endpoint", table(document(allow(ENDPOINT))), InvokedTarget(endpoint="other"),
        "because no identity-based policy allows the sagemaker:InvokeEndpoint action"),
    case("a component that no statement names", table(document(allow(ENDPOINT))), ON_COMPONENT,
        "inference-component/c"),
    case("the client's address fits", table(document(allow("*", **FROM_HERE))), CHAT, ""),
    case("a tag that the endpoint has",
        table(document(allow("*", **TAGGED)), tags={ENDPOINT: {"team": "red"}}), CHAT, ""),
    case("a tag that the endpoint lacks", table(document(allow("*", **TAGGED))), CHAT,
        "no identity-based policy"),
    case("the endpoint's policy denies it",
        table(document(allow("*")), endpoint_policies={ENDPOINT: document(DENY)}), CHAT,
        "explicit deny in a resource-based policy"),
    case("an endpoint's policy that cannot be read denies it",
        table(document(allow("*")), endpoint_policies={ENDPOINT: "{"}), CHAT,
        "explicit deny in a resource-based policy"),
)  # fmt: skip
def test_policies_decide_on_an_invocation(
    given: PrincipalTable, target: InvokedTarget, text: str
) -> None:
    found = refusal(given, target)
    assert text in found
    assert bool(found) == bool(text)


def test_the_root_is_held_to_the_endpoints_policy_alone() -> None:
    assert refusal(table(document()), CHAT, user="") == ""
    denied = table(document(), endpoint_policies={ENDPOINT: document(DENY)})
    assert "explicit deny" in refusal(denied, CHAT, user="")


def test_a_stream_needs_the_action_of_streams() -> None:
    assert "InvokeEndpointWithResponseStream" in refusal(
        table(document(allow("*"))), CHAT, operation=STREAMED
    )


def test_another_address_is_another_decision() -> None:
    given = table(document(allow("*", **FROM_HERE)))
    found = callers(given)
    caller = found.resolve(signer())
    for address, is_refused in (("10.1.1.1", False), ("192.0.2.1", True), ("10.1.1.1", False)):
        refused = found.permits.find_refusal(caller, exchange_of(address), HERE, WHOLE, CHAT)
        assert (refused is not None) == is_refused


def test_a_call_that_was_allowed_is_noted_again_until_the_principals_change() -> None:
    found = callers(table(document(allow(ENDPOINT))))
    caller = found.resolve(signer())
    for _ in range(2):
        exchange = exchange_of()
        assert found.permits.find_refusal(caller, exchange, HERE, WHOLE, CHAT) is None
        assert exchange.decision is not None
        assert exchange.decision.is_allowed
        assert found.permits.find_refusal(caller, exchange, HERE, STREAMED, CHAT) is not None
    source = FixedPrincipals(Principals(table(document()), ACCOUNT))
    permits = Permits(source, lambda: NOW)
    for given, is_refused in ((table(document(allow(ENDPOINT))), False), (table(document()), True)):
        source.principals = Principals(given, ACCOUNT)
        caller = source.principals.resolve(signer())
        refused = permits.find_refusal(caller, exchange_of(), HERE, WHOLE, CHAT)
        assert (refused is not None) == is_refused


def test_an_endpoints_policy_on_addresses_decides_each_time() -> None:
    outside = {"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
    policy = document({**DENY, "Condition": outside})
    found = callers(table(document(allow("*")), endpoint_policies={ENDPOINT: policy}))
    caller = found.resolve(signer())
    for address, is_refused in (("10.1.1.1", False), ("192.0.2.1", True)):
        refused = found.permits.find_refusal(caller, exchange_of(address), HERE, WHOLE, CHAT)
        assert (refused is not None) == is_refused


def bearer(key: str) -> HttpRequest:
    return HttpRequest("POST", "/v1/completions", headers={"authorization": f"Bearer {key}"})


@cases(
    "key, principal, models",
    case("the platform's own key", "sk-own", "", ()),
    case("a user's key", "sk-ann", "user/ann", ("chat",)),
)
def test_an_openai_key_acts_as_its_user(key: str, principal: str, models: tuple[str, ...]) -> None:
    found = callers(table(document())).find_bearer(bearer(key))
    assert (found.caller.principal, found.models) == (principal, models)


@cases(
    "key, given, text",
    case("an unknown key", "sk-nope", table(document()), "Incorrect API key"),
    case("an expired key", "sk-old", table(document()), "k2 has expired"),
    case("a deleted user", "sk-ann", table(document(), users={}), "invalid"),
)
def test_an_openai_key_that_is_not_valid_is_refused(
    key: str, given: PrincipalTable, text: str
) -> None:
    with pytest.raises(ServiceError, match=text):
        callers(given).find_bearer(bearer(key))


def test_users_wait_for_control_after_long_silence_and_the_root_does_not() -> None:
    found = callers(table(document()), is_trusted=False)
    assert found.resolve(signer("")).grants.is_root
    with pytest.raises(ServiceError) as refused:
        found.resolve(signer())
    assert refused.value.http_status == 503
