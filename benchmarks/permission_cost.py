"""Cost of the decision whether a caller may do something, kept in the cache and not kept.

The caller has the policies of a team that uses models: identity policies with 16 statements, a
boundary and session policies, with variables and conditions on tags. Each figure is the smallest of
several rounds. Aim: a kept decision costs at most 50 us.

``python -m benchmarks.permission_cost [--setting smoke|short|full]``
"""

import argparse
import json
import timeit
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.aims import Finding, finding_rows
from benchmarks.record import print_table, write_result
from hostelry.permissions.authorization import Grants, ResourcePolicy, authorize
from hostelry.permissions.decision_cache import DecisionCache
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Policy

ACCOUNT = "111122223333"
ENDPOINT = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:endpoint/chat"
USER = f"arn:aws:iam::{ACCOUNT}:user/alice"
WHO = frozenset({f"AWS:{USER}"})
AIM_KEPT_US = 50.0
ROUNDS: Mapping[str, tuple[int, int]] = {
    "smoke": (3, 100),
    "short": (9, 2000),
    "full": (25, 5000),
}
CONTEXT = {
    "aws:username": ("alice",),
    "aws:userid": ("AIDAALICE",),
    "aws:principalarn": (USER,),
    "aws:principaltag/team": ("ml",),
    "aws:resourcetag/team": ("ml",),
    "aws:sourceip": ("10.1.2.3",),
    "aws:securetransport": ("true",),
    "aws:requestedregion": ("us-east-1",),
    "aws:currenttime": ("2026-11-30T21:00:00Z",),
}
TEAM: tuple[dict[str, Any], ...] = (
    {
        "Effect": "Allow",
        "Action": "sagemaker:InvokeEndpoint*",
        "Resource": "arn:aws:sagemaker:*:*:endpoint/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/team": "${aws:PrincipalTag/team}"}},
    },
    {"Effect": "Allow", "Action": ["sagemaker:Describe*", "sagemaker:List*"], "Resource": "*"},
    {
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": "arn:aws:s3:::models",
        "Condition": {"StringLike": {"s3:prefix": "${aws:username}/*"}},
    },
    {
        "Effect": "Allow",
        "Action": ["s3:GetObject", "s3:PutObject"],
        "Resource": "arn:aws:s3:::models/${aws:username}/*",
    },
    {
        "Effect": "Allow",
        "Action": "iam:*AccessKey*",
        "Resource": "arn:aws:iam::*:user/${aws:username}",
    },
    {
        "Effect": "Allow",
        "Action": "iam:PassRole",
        "Resource": "*",
        "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
    },
    {
        "Effect": "Deny",
        "Action": "*",
        "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    },
    {
        "Effect": "Deny",
        "NotAction": ["iam:*", "sts:*"],
        "Resource": "*",
        "Condition": {"StringNotEquals": {"aws:RequestedRegion": ["us-east-1", "eu-west-1"]}},
    },
)
ALL: tuple[dict[str, Any], ...] = ({"Effect": "Allow", "Action": "*", "Resource": "*"},)
OWNED: tuple[dict[str, Any], ...] = (
    {**TEAM[6], "Principal": "*"},
    {
        "Effect": "Allow",
        "Principal": {"AWS": "444455556666"},
        "Action": "sagemaker:InvokeEndpoint",
        "Resource": ENDPOINT,
    },
)


def build_policy(name: str, statements: tuple[dict[str, Any], ...], owned: bool = False) -> Policy:
    """A policy of the benchmark."""
    kind = DocumentKind.RESOURCE if owned else DocumentKind.IDENTITY
    text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    return Policy(id=name, type="inline", statements=parse_statements(text, kind))


def measure_us(run: Callable[[], object], rounds: int, calls: int) -> float:
    """Microseconds of a call: the smallest mean of the rounds."""
    return min(timeit.repeat(run, number=calls, repeat=rounds)) / calls * 1e6


def list_settings() -> dict[str, tuple[Grants, ResourcePolicy | None]]:
    """Callers and resources, from simple to involved."""
    team = build_policy("team", TEAM)
    limited = (build_policy("limit", ALL),)
    own = ResourcePolicy(account=ACCOUNT, policy=build_policy("endpoint", OWNED, owned=True))
    return {
        "one statement": (Grants(identity=limited), None),
        "a team's policy": (Grants(identity=(team,)), None),
        "two policies, boundary, session": (
            Grants(identity=(team, build_policy("more", TEAM)), boundary=limited, session=limited),
            None,
        ),
        "the same and the endpoint's policy": (
            Grants(identity=(team, build_policy("more", TEAM)), boundary=limited, session=limited),
            own,
        ),
    }


def measure(rounds: int, calls: int) -> list[dict[str, Any]]:
    """A row per setting, in microseconds."""
    request = AccessRequest(action="sagemaker:InvokeEndpoint", resource=ENDPOINT, context=CONTEXT)
    rows = []
    for name, (grants, resource) in list_settings().items():
        cache = DecisionCache()

        def decide(grants: Grants = grants, resource: ResourcePolicy | None = resource) -> object:
            return authorize(grants, WHO, ACCOUNT, request, resource)

        def decide_again(
            grants: Grants = grants,
            resource: ResourcePolicy | None = resource,
            cache: DecisionCache = cache,
        ) -> object:
            return cache.authorize(grants, WHO, ACCOUNT, request, resource)

        assert authorize(grants, WHO, ACCOUNT, request, resource).is_allowed
        rows.append(
            {
                "policies": name,
                "kept us": measure_us(decide_again, rounds, calls),
                "not kept us": measure_us(decide, rounds, calls),
            }
        )
    return rows


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.permission_cost", description=__doc__
    )
    parser.add_argument("--setting", choices=ROUNDS, default="short")
    setting = parser.parse_args().setting
    rows = measure(*ROUNDS[setting])
    worst = max(row["kept us"] for row in rows)
    findings = finding_rows(
        [Finding(what="us of a kept decision", value=worst, at_most=AIM_KEPT_US)]
    )
    print_table("A decision, in microseconds", rows)
    print_table("Against the aims", findings)
    write_result("permission_cost", setting, 0, {"costs": rows, "findings": findings})


if __name__ == "__main__":
    main()
