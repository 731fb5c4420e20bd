"""Random policies and calls: `hostelry.permissions` against the second evaluator.

``python -m tests.policy_fuzz --number 100000 [--seed 1]`` prints the number of calls, of each
decision, and of differences, and ends with 1 if there are any.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.policy_oracle import judge

from hostelry.permissions.authorization import Grants, ResourcePolicy
from hostelry.permissions.decision_cache import DecisionCache
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Policy

ACCOUNT, OTHER = "111122223333", "444455556666"
USER = f"arn:aws:iam::{ACCOUNT}:user/alice"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/worker"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/worker/job"
ROOT = f"arn:aws:iam::{ACCOUNT}:root"
CALLERS: Sequence[tuple[str, ...]] = ((USER,), (ROLE, SESSION), (ROOT,))
PRINCIPALS = (USER, ROLE, SESSION, ROOT, ACCOUNT, "*", OTHER, f"arn:aws:iam::{OTHER}:user/bob")
ACTIONS = (
    "sagemaker:InvokeEndpoint", "sagemaker:CreateModel", "s3:GetObject", "s3:PutObject",
    "s3:ListBucket", "kms:Decrypt",
)  # fmt: skip
ACTION_PATTERNS = (
    *ACTIONS,
    "*",
    "s3:*",
    "S3:get*",
    "s3:?etObject",
    "sagemaker:*Endpoint",
    "kms:De*t",
    "s3:*Object",
)
RESOURCES = (
    "*",
    "arn:aws:s3:::models/a.bin",
    "arn:aws:s3:::models/alice/a:b",
    "arn:aws:s3:::models",
    "arn:aws:s3:::logs/2026/x",
    f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:endpoint/chat",
    f"arn:aws:sagemaker:eu-west-1:{ACCOUNT}:endpoint/chat-2",
    f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/x:log-stream:y",
    f"arn:aws:sagemaker:us-x:y-1:{ACCOUNT}:endpoint/chat",
    f"arn:aws:kms:us-east-1:{OTHER}:key/1",
)
RESOURCE_PATTERNS = (
    *RESOURCES,
    "arn:aws:s3:::*",
    "arn:aws:s3:::models/*",
    "arn:aws:s3:::${*}/*",
    "arn:aws:s3:::models/${aws:username}/*",
    "arn:aws:s3:::models/${AWS:UserName, 'a.bin'}*",
    "arn:aws:s3:::${aws:PrincipalTag/team}/*",
    "arn:aws:s3:::${aws:PrincipalTag/team, 'models'}/?*",
    "arn:aws:sagemaker:*:*:endpoint/*",
    "arn:aws:sagemaker:us-*-1:1111*3:endpoint/c??t",
    "arn:aws:sagemaker:us-*-1:*:endpoint/*",
    "arn:aws:sagemaker:??-west-1:*:*",
    "arn:aws:*:*:x",
    "arn:aws:logs:*:log-group:/aws/*",
    "arn:aws:logs:us-e*:log-stream:y",
    "arn:aws:l?gs:us-east-?:*:log-*:y",
    "arn:aws:l?gs:*:log-group:/aws/*",
    f"arn:aws:logs?us-east-1:{ACCOUNT}:*:*",
    "arn:aws:s?gemaker:*:*:*:*",
    "arn:*",
    "arn:aws:s3*",
)
TEXTS = ("red", "Red", "blue", "r*", "a.bin", "models", "")
TEXT_PATTERNS = (
    *TEXTS,
    "*",
    "r?d",
    "b*e",
    "${aws:username}",
    "${aws:PrincipalTag/team}",
    "${s3:prefix, 'red'}",
    "${*}",
)
KEYS: dict[str, Sequence[str]] = {
    "aws:username": ("alice", "bob"),
    "aws:PrincipalTag/team": TEXTS,
    "aws:TagKeys": TEXTS,
    "s3:prefix": TEXTS,
    "aws:SourceArn": (USER, ROLE, "arn:aws:sns:us-east-1:1:t:u", "no-arn", RESOURCES[7]),
    "aws:SourceIp": ("10.1.2.3", "10.9.9.9", "192.0.2.1", "2001:db8::1", "here"),
    "s3:max-keys": ("0", "9", "10", "10.0", "100", "-1", "ten"),
    "aws:CurrentTime": (
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00+01:00",
        "1767225600",
        "2026-06-01",
        "soon",
    ),
    "aws:SecureTransport": ("true", "false", "True"),
    "x:digest": ("cmVk", "Ymx1ZQ==", "?"),
}
COMPARED: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    (
        "String{}Equals",
        ("aws:username", "aws:PrincipalTag/team", "aws:TagKeys", "s3:prefix"),
        TEXT_PATTERNS,
    ),
    ("String{}EqualsIgnoreCase", ("aws:PrincipalTag/team", "aws:tagkeys"), TEXT_PATTERNS),
    ("String{}Equals", ("aws:TagKeys",), TEXTS),
    (
        "String{}Like",
        ("s3:prefix", "aws:TagKeys", "aws:SourceArn"),
        (*TEXT_PATTERNS, "arn:aws:*:user/alice"),
    ),
    (
        "Arn{}Equals",
        ("aws:SourceArn",),
        (
            USER,
            "arn:aws:iam::*:user/*",
            "arn:aws:s*:*:*:*",
            "*:user/alice",
            "arn:aws:iam::111122223333:${x, 'user'}/*",
            "arn:aws:logs:*:log-group:*",
        ),
    ),
    (
        "Arn{}Like",
        ("aws:SourceArn",),
        (
            ROLE,
            "arn:aws:iam::??1122223333:*",
            "arn:aws:sns:*:1:t*",
            "arn:aws:iam::1*:user/${aws:username}",
        ),
    ),
    (
        "{}IpAddress",
        ("aws:SourceIp",),
        ("10.0.0.0/8", "10.1.2.3", "192.0.2.0/24", "2001:DB8::/32", "0.0.0.0/0", "where"),
    ),
    ("Numeric{}Equals", ("s3:max-keys",), ("10", "9.0", "many", "-1")),
    (
        "Date{}Equals",
        ("aws:CurrentTime",),
        ("2026-01-01", "1767225600", "2026", "2026-06-01T00:00:00Z", "never"),
    ),
    *(
        (f"{kind}{{}}{test}", (key,), wanted)
        for kind, key, wanted in (
            ("Numeric", "s3:max-keys", ("10", "0", "many")),
            ("Date", "aws:CurrentTime", ("2026-01", "2026-03-01T00:00Z", "1767225601")),
        )
        for test in ("LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals")
    ),
    ("Bool", ("aws:SecureTransport",), ("true", "FALSE")),
    ("BinaryEquals", ("x:digest",), ("cmVk", "Ymx1ZQ==")),
    ("Null", tuple(KEYS), ("true", "false")),
)
NEGATABLE = frozenset(
    {
        "String{}Equals", "String{}EqualsIgnoreCase", "String{}Like", "Arn{}Equals", "Arn{}Like",
        "{}IpAddress", "Numeric{}Equals", "Date{}Equals",
    }
)  # fmt: skip


class PolicyGenerator:
    """Draws policies and calls from few words, so that many of them fit each other."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._action, self._resource = "", ""  # of the case that is drawn

    def draw_case(self) -> dict[str, Any]:
        """A case as `policy_oracle.judge` takes it: everything at once, or one element alone."""
        names = self._pick(CALLERS)
        self._action, self._resource = self._pick(ACTIONS), self._pick(RESOURCES)
        case = {
            "identity": [],
            "boundary": None,
            "session": None,
            "resource_policy": None,
            "owner": ACCOUNT,
            "is_decisive": False,
            "is_root": names == (ROOT,),
            "account": ACCOUNT,
            "names": names,
            "action": self._action,
            "resource": self._resource,
            "context": {key: self._draw_values(key) for key in KEYS if self._is(0.6)},
        }
        draw = self._pick((self._draw_all, self._draw_one_element, self._draw_principals))
        return {**case, **draw(names)}

    def _draw_all(self, names: tuple[str, ...]) -> dict[str, Any]:
        """All kinds of policies, with all elements."""
        return {
            "identity": self._draw_documents(),
            "boundary": self._draw_documents() if self._is(0.3) else None,
            "session": self._draw_documents() if names != (USER,) and self._is(0.4) else None,
            "resource_policy": self._draw_document(owned=True) if self._is(0.6) else None,
            "owner": OTHER if self._is(0.25) else ACCOUNT,
            "is_decisive": self._is(0.2),
        }

    def _draw_one_element(self, _: tuple[str, ...]) -> dict[str, Any]:
        """One statement of a user, decided by its conditions or its resource only."""
        statement: dict[str, Any] = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        if self._is(0.5):
            statement["Condition"] = self._draw_conditions()
        else:
            del statement["Resource"]
            name = self._pick(("Resource", "NotResource"))
            statement[name] = self._pick(RESOURCE_PATTERNS)
        return {"identity": [write_document(statement)], "names": (USER,), "is_root": False}

    def _draw_principals(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Policies that allow or deny all calls, a resource's by its principals."""
        everything = {"Action": "*", "Resource": "*"}
        allow, deny = ({"Effect": it, **everything} for it in ("Allow", "Deny"))
        kinds: Sequence[list[dict[str, Any]]] = (
            [],
            [write_document(allow)],
            [write_document(allow)],
            [write_document(deny)],
        )
        owned = [
            {**self._pick((allow, allow, deny)), **self._draw_principal()}
            for _ in range(self._random.randrange(1, 3))
        ]
        return {
            "identity": self._pick(kinds[:3]),
            "boundary": self._pick((None, None, *kinds)),
            "session": None if names == (USER,) else self._pick((None, None, *kinds)),
            "resource_policy": {"Version": "2012-10-17", "Statement": owned},
            "owner": self._pick((ACCOUNT, ACCOUNT, OTHER)),
            "is_decisive": self._is(0.3),
        }

    def _draw_values(self, key: str) -> list[str]:
        number = self._random.randrange(4) if key == "aws:TagKeys" else 1
        return [self._pick(KEYS[key]) for _ in range(number)]

    def _draw_documents(self) -> list[dict[str, Any]]:
        return [self._draw_document() for _ in range(self._random.choice((0, 1, 1, 2)))]

    def _draw_document(self, *, owned: bool = False) -> dict[str, Any]:
        statements = [self._draw_statement(owned) for _ in range(self._random.randrange(1, 4))]
        one = len(statements) == 1 and self._is(0.5)
        version = "2008-10-17" if owned and self._is(0.2) else "2012-10-17"
        return {"Version": version, "Statement": statements[0] if one else statements}

    def _draw_statement(self, owned: bool) -> dict[str, Any]:
        statement: dict[str, Any] = {"Effect": "Deny" if self._is(0.2) else "Allow"}
        actions = (self._action, "*") if self._is(0.6) else ACTION_PATTERNS
        statement["NotAction" if self._is(0.1) else "Action"] = self._draw_some(actions)
        resources = (self._resource, "*") if self._is(0.3) else RESOURCE_PATTERNS
        statement["NotResource" if self._is(0.1) else "Resource"] = self._draw_some(resources)
        if owned:
            statement.update(self._draw_principal())
            if self._is(0.1):
                statement.pop("Resource", None)
        if self._is(0.5):
            statement["Condition"] = self._draw_conditions()
        return statement

    def _draw_principal(self) -> dict[str, Any]:
        element = "*" if self._is(0.1) else {"AWS": self._draw_some(PRINCIPALS)}
        return {"NotPrincipal" if self._is(0.25) else "Principal": element}

    def _draw_conditions(self) -> dict[str, Any]:
        conditions: dict[str, Any] = {}
        for _ in range(self._random.randrange(1, 3)):
            form, keys, wanted = self._pick(COMPARED)
            negated = form in NEGATABLE and self._is(0.4)
            name = form.format("Not" if negated else "")
            if name != "Null":
                name += "IfExists" if self._is(0.2) else ""
                name = self._pick(("", "", "ForAllValues:", "ForAnyValue:")) + name
            key = self._pick(keys)
            key = key.upper() if self._is(0.1) else key
            conditions.setdefault(name, {})[key] = self._draw_some(wanted)
        return conditions

    def _draw_some(self, given: Sequence[str]) -> list[str] | str:
        """One text, or a list of a few."""
        number = self._random.choice((1, 1, 2, 3))
        drawn = [self._pick(given) for _ in range(number)]
        return drawn[0] if number == 1 and self._is(0.5) else drawn

    def _is(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, given: Sequence[Any]) -> Any:
        return self._random.choice(given)


def write_document(statement: dict[str, Any]) -> dict[str, Any]:
    """A document of one statement."""
    return {"Version": "2012-10-17", "Statement": statement}


def decide(case: dict[str, Any], cache: DecisionCache) -> str:
    """The decision of `hostelry.permissions`, which has to be the same when it is kept."""
    grants = Grants(
        identity=_parse(case["identity"]) or (),
        boundary=_parse(case["boundary"]),
        session=_parse(case["session"]),
        is_root=case["is_root"],
    )
    owned = _parse(case["resource_policy"] and [case["resource_policy"]], DocumentKind.RESOURCE)
    resource = ResourcePolicy(
        account=case["owner"], policy=owned[0] if owned else None, is_decisive=case["is_decisive"]
    )
    context = {key.lower(): tuple(value) for key, value in case["context"].items()}
    request = AccessRequest(action=case["action"], resource=case["resource"], context=context)
    who = frozenset(f"AWS:{it}" for it in case["names"])
    decision = cache.authorize(grants, who, case["account"], request, resource)
    assert cache.authorize(grants, who, case["account"], request, resource) is decision
    return decision.outcome.value


def _parse(
    documents: list[dict[str, Any]] | None, kind: DocumentKind = DocumentKind.IDENTITY
) -> tuple[Policy, ...] | None:
    if documents is None:
        return None
    parsed = (parse_statements(json.dumps(it), kind) for it in documents)
    return tuple(Policy(id=str(n), type="drawn", statements=it) for n, it in enumerate(parsed))


def compare(
    number: int, seed: int, report: Callable[[dict[str, Any], str, str], None]
) -> Counter[str]:
    """Compare drawn cases, and report each difference. Returns the number of each decision."""
    generator, cache, counts = PolicyGenerator(seed), DecisionCache(limit=500), Counter[str]()
    for _ in range(number):
        case = generator.draw_case()
        wanted, decided = judge(case), decide(case, cache)
        counts[wanted] += 1
        if wanted != decided:
            counts["differences"] += 1
            report(case, wanted, decided)
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print. Returns 1 if there are differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)

    def show(case: dict[str, Any], wanted: str, decided: str) -> None:
        print(json.dumps(case, indent=1), f"\nreference: {wanted}, permissions: {decided}\n")

    counts = compare(options.number, options.seed, show)
    print(f"{options.number} calls, seed {options.seed}:", dict(counts))
    print(f"{counts['differences']} differences")
    return 1 if counts["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
