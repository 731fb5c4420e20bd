"""Random policies against the second evaluator. More of them: ``python -m tests.policy_fuzz``."""

import json

from tests.policy_fuzz import compare
from tests.policy_oracle import judge
from tests.unit.permissions.policy_cases import load_policy_cases

NUM_CALLS = 3000


def test_random_policies_are_decided_as_by_the_second_evaluator() -> None:
    differences: list[object] = []
    counts = compare(NUM_CALLS, 20261130, lambda *it: differences.append(it))
    assert differences == []
    assert min(counts[it] for it in ("allowed", "explicitDeny", "implicitDeny")) > NUM_CALLS / 10


def test_the_second_evaluator_decides_the_documented_cases_too() -> None:
    wrong = []
    for case in load_policy_cases():
        prefix, _, _ = case.caller.names[0].partition(":")
        if prefix != "AWS":  # it knows no services
            continue
        owned = case.resource_policy
        decided = judge(
            {
                "identity": [json.loads(it) for it in case.identity],
                "boundary": case.boundary and [json.loads(it) for it in case.boundary],
                "session": None
                if case.session is None
                else [json.loads(it) for it in case.session],
                "resource_policy": owned and json.loads(owned),
                "owner": case.owner,
                "is_decisive": case.is_decisive,
                "is_root": case.caller.is_root,
                "account": case.caller.account,
                "names": [it.removeprefix("AWS:") for it in case.caller.names],
                "action": case.action,
                "resource": case.resource,
                "context": case.context,
            }
        )
        if decided != case.expected:
            wrong.append((case.name, decided))
    assert wrong == []
