"""Decisions as AWS documents them."""

import pytest
from tests.unit.permissions.policy_cases import PolicyCase, load_policy_cases

from hostelry.permissions.authorization import (
    Authorization,
    Grants,
    ResourcePolicy,
    authorize,
)
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Policy

CASES = load_policy_cases()


def parse(documents: tuple[str, ...] | None, kind: str) -> tuple[Policy, ...] | None:
    if documents is None:
        return None
    parsed = (parse_statements(it, DocumentKind.IDENTITY) for it in documents)
    return tuple(Policy(id=f"{kind}-{n}", type=kind, statements=it) for n, it in enumerate(parsed))


def build_request(given: PolicyCase) -> AccessRequest:
    return AccessRequest(action=given.action, resource=given.resource, context=given.context)


def decide(given: PolicyCase) -> Authorization:
    grants = Grants(
        identity=parse(given.identity, "identity") or (),
        boundary=parse(given.boundary, "boundary"),
        session=parse(given.session, "session"),
        is_root=given.caller.is_root,
    )
    policy = None
    if given.resource_policy is not None:
        statements = parse_statements(given.resource_policy, DocumentKind.RESOURCE)
        policy = Policy(id="resource-0", type="resource", statements=statements)
    resource = ResourcePolicy(account=given.owner, policy=policy, is_decisive=given.is_decisive)
    who = frozenset(given.caller.names)
    return authorize(grants, who, given.caller.account, build_request(given), resource)


@pytest.mark.parametrize("given", CASES, ids=lambda it: it.name)
def test_decisions_are_as_aws_documents_them(given: PolicyCase) -> None:
    decision = decide(given)
    assert decision.outcome.value == given.expected, (decision.reason, given.source)


def test_there_are_enough_cases_and_each_has_its_own_name() -> None:
    names = [it.name for it in CASES]
    assert len(names) >= 320
    assert len(set(names)) == len(names)
