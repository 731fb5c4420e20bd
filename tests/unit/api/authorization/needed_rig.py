"""An account with a few resources, and what calls in it need."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.authorization.finding import find_needed
from hostelry.api.authorization.row import ResourceLookup
from hostelry.domain.scope import Scope
from hostelry.permissions.needs.needed import NeededPermission

ACCOUNT = "111122223333"
HERE = Scope(ACCOUNT, "us-west-2")
SM = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/team/Runner"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234"
ALIAS = f"arn:aws:kms:us-west-2:{ACCOUNT}:alias/data"
SECRET = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:token-AbCdEf"
USER = f"arn:aws:iam::{ACCOUNT}:user/people/ann"
TARGET = f"arn:aws:application-autoscaling:us-west-2:{ACCOUNT}:scalable-target/0ec5"
ARNS = {
    ("role", "runner"): ROLE,
    ("user", "ann"): USER,
    ("access-key", "AKIAANN"): USER,
    ("key", "alias/data"): KEY,
    ("key", ALIAS): KEY,
    ("customer-key", "alias/data"): KEY,
    ("secret", "token"): SECRET,
    ("secret-key", SECRET): KEY,
    ("scalable-target", "endpoint/e/variant/v|sagemaker:variant:DesiredInstanceCount"): TARGET,
}
TAGS = {
    SM + "endpoint/chat": {"Team": "a"},
    ROLE: {"team": "b"},
    SECRET: {"team": "c"},
    USER: {"team": "d"},
}
LOOKUP = ResourceLookup(
    tags_of=lambda arn: TAGS.get(arn, {}),
    find_arn=lambda kind, name: (
        ARNS.get((kind, name if kind == "key" else name.lower()), "") or ARNS.get((kind, name), "")
    ),
    find_keys=lambda arn: {ROLE: {"iam:permissionsboundary": ("arn:b",)}}.get(arn, {}),
    caller=USER,
)
TAG = [{"Key": "Env", "Value": "dev"}]


def find(call: str, params: Mapping[str, Any]) -> tuple[NeededPermission, ...]:
    """What a call such as `iam:GetRole` needs."""
    service, _, operation = call.partition(":")
    return find_needed(service, operation, params, HERE, LOOKUP)


def find_key(
    call: str, params: Mapping[str, Any], key: str, number: int = 0
) -> Sequence[str] | None:
    """The values of a context key of one of the needed permissions."""
    found = find(call, params)[number].context.get(key)
    return None if found is None else list(found)
