"""Parameters with a value for every member of an operation, made from botocore's models."""

from collections.abc import Callable
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape
from tests.unit.api.authorization.service_reference import load_reference

from hostelry.api.authorization.finding import ROWS
from hostelry.api.authorization.row import NeedRow, ResourceLookup
from hostelry.aws.models import operation_model
from hostelry.domain.scope import Scope

HERE = Scope("111122223333", "us-west-2")
ROLE, POLICY = "arn:aws:iam::111122223333:role/r", "arn:aws:iam::111122223333:policy/p"
TEXTS = {
    "EventPattern": '{"source": ["a"], "detail-type": ["b"], "detail": {"service": ["c"],'
    ' "eventTypeCode": ["d"], "userIdentity": {"principalId": ["e"]}}}',
    "QueueUrl": "http://127.0.0.1:8787/111122223333/q",
    "Url": "https://issuer.example",
    "DeletionTaskId": "task/aws-service-role/x.amazonaws.com/R/1",
    "ResourceId": "endpoint/e/variant/v",
    "KeyId": "alias/k",
    "SourceKeyId": "alias/k",
    "AliasName": "alias/k",
    "PolicySourceArn": ROLE,
    "NewPath": "/",
    "Path": "/",
    "EventBusName": "default",
    "registryId": HERE.account,
    "QueueOwnerAWSAccountId": HERE.account,
    "logGroupIdentifier": "g",
}
PER_SHAPE = 3  # structures that contain themselves end here


def build_params(service: str, operation: str, text: str | None = None) -> dict[str, Any]:
    """Parameters whose texts fit the operation, or are all `text`."""
    shape = operation_model(service, operation).input_shape
    if shape is None:
        return {}
    arn = first_arn(service, operation)
    built = _build(shape, "", lambda name: _find_text(name, arn) if text is None else text, ())
    assert isinstance(built, dict)
    return built


def first_arn(service: str, operation: str) -> str:
    """The ARN of the first resource type of an action."""
    reference, row = load_reference(), ROWS[service, operation]
    name = (row.action if isinstance(row, NeedRow) else "") or operation
    action = reference.actions.get(f"{service}:{name}")
    types = action.types if action is not None else ()
    preferred = [it for it in types if it in ("endpoint", "alarm", "log-group", "role", "topic")]
    for kind in (*preferred, *types):
        return fill_arn(reference.arns[f"{service}/{kind}"])
    return "arn:aws:none:us-west-2:111122223333:x"


def fill_arn(pattern: str, text: str = "n") -> str:
    """The pattern with a value for each of its variables. Names are `text`."""
    values = {"Partition": "aws", "Region": HERE.region, "Account": HERE.account}
    parts = pattern.split("${")
    done = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        done.append(values.get(name, text) + rest)
    return "".join(done)


def _build(shape: Shape, name: str, text: Callable[[str], str], above: tuple[str, ...]) -> Any:
    if isinstance(shape, StructureShape):
        if above.count(shape.name) >= PER_SHAPE:
            return {}
        below = (*above, shape.name)
        return {key: _build(it, key, text, below) for key, it in shape.members.items()}
    if isinstance(shape, ListShape):
        return [_build(shape.member, name, text, above)]
    if isinstance(shape, MapShape):
        return {"k": _build(shape.value, name, text, above)}
    if shape.type_name == "string":
        return text(name)
    return {"boolean": True, "blob": b"\x01" + bytes(32)}.get(shape.type_name, 1)


def _find_text(name: str, arn: str) -> str:
    """A text for the member `name` of an operation on the resource with an ARN."""
    if name.lower().endswith(("arn", "arns")):
        role_or_policy = POLICY if "Policy" in name else arn
        return TEXTS.get(name, ROLE if "role" in name.lower() else role_or_policy)
    return TEXTS.get(name, "n")


def find_some_arn(kind: str, name: str) -> str:
    """An existing resource of each kind."""
    return {
        "role": ROLE,
        "user": "arn:aws:iam::111122223333:user/u",
        "access-key": "arn:aws:iam::111122223333:user/u",
        "instance-profile": "arn:aws:iam::111122223333:instance-profile/i",
        "key": "arn:aws:kms:us-west-2:111122223333:key/1",
        "sealing-key": "arn:aws:kms:us-west-2:111122223333:key/1",
        "customer-key": "arn:aws:kms:us-west-2:111122223333:key/1",
        "secret": "arn:aws:secretsmanager:us-west-2:111122223333:secret:s-abcdef",
        "secret-key": "arn:aws:kms:us-west-2:111122223333:key/2",
        "scalable-target": "arn:aws:application-autoscaling:us-west-2:111122223333:"
        "scalable-target/1",
    }[kind]


KNOWS_ALL = ResourceLookup(
    tags_of=lambda arn: {} if ":alias/" in arn or ":dashboard/" in arn else {"team": "a"},
    find_arn=find_some_arn,
    find_keys=lambda arn: (
        {"kms:resourcealiases": ("alias/k",)}
        if ":kms:" in arn
        else {"iam:permissionsboundary": (POLICY,)}
    ),
    caller="arn:aws:iam::111122223333:user/u",
)
"""A lookup that knows every resource, with one tag."""
