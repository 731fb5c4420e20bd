"""Permissions of operations, against AWS's Service Authorization Reference."""

from collections.abc import Iterator

import pytest
from tests.unit.api.authorization.sample_params import HERE, KNOWS_ALL, build_params
from tests.unit.api.authorization.service_reference import load_reference

from hostelry.api.authorization.finding import ROWS, find_needed
from hostelry.api.operations import OPERATIONS
from hostelry.aws.models import service_operations
from hostelry.permissions.needs.needed import NeededPermission
from hostelry.permissions.needs.object_actions import (
    ALSO,
    BUCKET_ITSELF,
    BUCKET_PARTS,
    DELETE_SEVERAL,
    HEADER_ACTIONS,
    OBJECT_ITSELF,
    OBJECT_PARTS,
    OF_VERSION,
    SERVICE_ITSELF,
)

SERVED = sorted(ROWS)


def list_actions() -> set[str]:
    """Every action that the tables name."""
    found = {it.action for row in SERVED for it in need_all(*row)} | list_object_actions()
    return found | {f"sagemaker:InvokeEndpoint{it}" for it in ("", "Async", "WithResponseStream")}


def list_object_actions() -> set[str]:
    tables = [*BUCKET_PARTS.values(), *OBJECT_PARTS.values(), *ALSO.values()]
    tables += [SERVICE_ITSELF, BUCKET_ITSELF, OBJECT_ITSELF, *OF_VERSION.items()]
    tables += [tuple(actions.values()) for actions in HEADER_ACTIONS.values()]
    named = {action for table in tables for action in table}
    return {f"s3:{action}" for action in named - {"", DELETE_SEVERAL}}


def need_all(service: str, operation: str) -> tuple[NeededPermission, ...]:
    """What a call needs that gives every parameter."""
    return find_needed(service, operation, build_params(service, operation), HERE, KNOWS_ALL)


# Actions and resources that the reference does not have yet. Their rows are like similar ones.
NEWER_ACTIONS = frozenset(
    {
        *(f"sagemaker:{it}EndpointPolicy" for it in ("Put", "Get", "Delete")),
        *(name for name in list_actions() if name.startswith("sagemaker:") and "AI" in name),
    }
)
NEWER_RESOURCES = (
    *(f":{it}/" for it in ("inference-experiment", "ai-workload-config", "ai-benchmark-job")),
    ":ai-recommendation-job/", ":dashboard/",
)  # fmt: skip
OTHER_RESOURCES = {"logs:DescribeLogGroups": "AWS's refusals name log-group:...:log-stream:"}
# Keys of the reference that needs do not have, with the reason.
ABSENT = {
    "aws:ResourceTag/${TagKey}": "is checked as a key of the resource types",
    "aws:RequestTag/${TagKey}": "is checked by other cases",
    "sagemaker:DirectGatedModelAccess": "there are no gated models",
    "sagemaker:TaggingAction": "is absent if AddTags itself is called",
    "sagemaker:CurrentModelLifeCycleStage": "there is no model registry",
    "sagemaker:CurrentModelLifeCycleStageStatus": "there is no model registry",
    "sagemaker:CurrentCustomerMetadataProperties/${MetadataKey}": "there is no model registry",
    "kms:ViaService": "is absent unless a service calls",
    "kms:MultiRegionKeyType": "keys are of one region",
    "events:ManagedBy": "no service makes rules",
    "events:eventBusInvocation": "there is one bus",
    "secretsmanager:ResourceTag/tag-key": "is checked as a key of the resource type",
    "secretsmanager:resource/AllowRotationLambdaArn": "secrets are not rotated",
    "secretsmanager:resource/Type": "no other service makes secrets",
    "ecr:ListTagsForResource aws:TagKeys": "the request has no keys of tags",
    **{
        f"sts:AssumeRoleWithWebIdentity {key}": "is in the token"
        for key in ("sts:SourceIdentity", "sts:TransitiveTagKeys", "aws:TagKeys")
    },
}
PROVIDERS = ("saml:", "accounts.google", "www.amazon", "graph.facebook", "cognito-identity")


def test_every_served_operation_has_a_row() -> None:
    assert sorted(set(OPERATIONS) - set(ROWS)) == []


def test_every_row_is_an_operation_of_its_service() -> None:
    unknown = [f"{of}:{name}" for of, name in ROWS if name not in service_operations(of)]
    assert unknown == []


@pytest.mark.parametrize("service", sorted({of for of, _ in ROWS}))
def test_needs_are_actions_of_the_reference_on_their_resources(service: str) -> None:
    operations = [name for of, name in SERVED if of == service]
    assert [it for name in operations for it in find_problems(service, name)] == []


def test_the_actions_of_the_s3_port_are_in_the_reference() -> None:
    assert list_object_actions() - set(load_reference().actions) == set()


def find_problems(service: str, operation: str) -> Iterator[str]:
    needs = need_all(service, operation)
    for need in needs:
        yield from find_need_problems(need)
    main = f"{service}:{operation}"
    action = load_reference().actions.get(main)
    mine = [it for it in needs if it.action == main]
    if action is None or not mine:
        return
    for kind in action.required:
        if not any(is_of(it, kind) for it in mine) and main not in OTHER_RESOURCES:
            yield f"{main} is not needed on {kind}"
    filled = {key for it in mine for key in it.context}
    for key in action.keys - set(ABSENT):
        is_absent = f"{main} {key}" in ABSENT or key.startswith(PROVIDERS)
        if not is_absent and not any(is_key(have, key) for have in filled):
            yield f"{main} does not fill {key}"


def find_need_problems(need: NeededPermission) -> Iterator[str]:
    """What is wrong with one need: its action, its resource, or its keys."""
    name, reference = need.action, load_reference()
    action = reference.actions.get(name)
    if action is None:
        if name not in NEWER_ACTIONS:
            yield f"{name} is not an action"
        return
    if name in OTHER_RESOURCES or any(it in need.resource for it in NEWER_RESOURCES):
        return
    kinds = [kind for kind in action.types if is_of(need, kind)]
    if not kinds and (action.types or need.resource != "*"):
        yield f"{name} is not for {need.resource}, but for {action.types or '*'}"
    service = name.partition(":")[0]
    known = action.keys.union(*(reference.type_keys[f"{service}/{kind}"] for kind in kinds))
    for key in need.context:
        if not is_known_key(key, known):
            yield f"{name} has no key {key}"


def is_of(need: NeededPermission, kind: str) -> bool:
    """True if the resource has the form of a type's ARN."""
    service = need.action.partition(":")[0]
    pattern = load_reference().arns[f"{service}/{kind}"]
    rest = need.resource
    for number, part in enumerate(pattern.split("${")):
        fixed = part.partition("}")[2] if number else part
        place = rest.find(fixed)
        if place < 0 or (number == 0 and place):
            return False
        rest = rest[place + len(fixed) :]
    return True


def is_known_key(key: str, known: frozenset[str]) -> bool:
    is_global = key in ("aws:requestedregion", "aws:resourceaccount")
    return is_global or any(is_key(key, it) for it in known)


def is_key(key: str, documented: str) -> bool:
    """True if a key of a request is the documented key, whose end may be a variable."""
    start = documented.lower().partition("${")[0].partition("<key>")[0].removesuffix("tag-key")
    return key == start if start == documented.lower() else key.startswith(start)
