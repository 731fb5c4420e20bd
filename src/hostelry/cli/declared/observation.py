"""Observe resources by AWS's APIs, in the normal forms of documents."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.cli.declared.aws import Aws, AwsError, pages
from hostelry.cli.declared.document import CLOUDWATCH, SAGEMAKER, SCALING, request_names
from hostelry.cli.declared.forms import config_form, model_form, to_form, without_role
from hostelry.cli.declared.resource import (
    Observed,
    ResourceKey,
    ResourceKind,
    Resources,
    split_target,
    target_key,
)

Item = TypeVar("Item")
Result = TypeVar("Result")
Described = Mapping[str, Any]
MAX_CALLS = 16  # at the same time
NAMESPACE = {"ServiceNamespace": "sagemaker"}
CONFIGURATIONS = (
    "TargetTrackingScalingPolicyConfiguration", "StepScalingPolicyConfiguration",
)  # fmt: skip
ACTION_MEMBERS = ("Schedule", "Timezone", "StartTime", "EndTime", "ScalableTargetAction")
TARGET_MEMBERS = ("MinCapacity", "MaxCapacity", "SuspendedState")
ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """Present resources by key, ARNs of policies by reference, and names of policies' alarms."""

    resources: Resources
    policy_arns: Mapping[str, str] = msgspec.field(default_factory=dict)
    made_by_policies: frozenset[str] = frozenset()

    def of(self, kind: ResourceKind) -> list[Observed]:
        """The resources of a kind, sorted by name."""
        found = (it for it in self.resources.values() if it.key.kind is kind)
        return sorted(found, key=lambda it: (it.key.within, it.key.name))


Selected = Callable[[ResourceKey], bool]
"""Whether a resource is to be described with its tags; the others are left out."""


def observed_state(aws: Aws, selected: Selected, role_arn: str) -> ObservedState:
    """Observe the selected resources. The default role, `role_arn`, is left out of their params.

    Raises AwsError.
    """
    found: list[Observed] = []
    found += _models(aws, selected)
    found += _configs(aws, selected)
    found += _endpoints(aws, selected)
    found += _components(aws, selected)
    targets = _targets(aws, selected)
    policies, arns, made = _policies(aws)
    scaled = {it.key.name for it in targets}
    found += targets
    found += [it for it in policies if it.key.within in scaled]
    found += [it for it in _actions(aws) if it.key.within in scaled]
    found += _alarms(aws, selected, {arn: reference for reference, arn in arns.items()})
    resources = {it.key: _without_role(it, role_arn) for it in found}
    return ObservedState(resources=resources, policy_arns=arns, made_by_policies=frozenset(made))


def _without_role(found: Observed, role_arn: str) -> Observed:
    """A resource without the default role."""
    params = without_role(found.params, role_arn)
    if found.key.kind is ResourceKind.ENDPOINT:
        params = {**params, "Config": without_role(params["Config"], role_arn)}
    return replace(found, params=params)


def each(act: Callable[[Item], Result | None], items: Iterable[Item]) -> list[Result]:
    """The results of `act` for all items that still exist. Several run at a time."""

    def one(item: Item) -> Result | None:
        try:
            return act(item)
        except AwsError as error:
            if error.is_absence:
                return None
            raise

    with ThreadPoolExecutor(MAX_CALLS) as threads:
        return [it for it in threads.map(one, list(items)) if it is not None]


def _names(aws: Aws, operation: str, member: str, name: str) -> list[str]:
    params = {"MaxResults": 100}
    return [it[name] for it in pages(aws, SAGEMAKER, operation, member, params)]


def _tags(aws: Aws, arn: str) -> dict[str, str]:
    found = aws.call(SAGEMAKER, "ListTags", {"ResourceArn": arn})["Tags"]
    return {it["Key"]: it["Value"] for it in found}


def given_members(described: Described, operation: str) -> dict[str, Any]:
    """The members of a description that are also members of the operation's request."""
    names = request_names(SAGEMAKER, operation)
    return {name: it for name, it in described.items() if name in names}


def _models(aws: Aws, selected: Selected) -> list[Observed]:
    def describe(key: ResourceKey) -> Observed:
        found = aws.call(SAGEMAKER, "DescribeModel", {"ModelName": key.name})
        given = given_members(found, "CreateModel")
        del given["ModelName"]
        arn = found["ModelArn"]
        return Observed(key=key, params=model_form(given), arn=arn, tags=_tags(aws, arn))

    names = _names(aws, "ListModels", "Models", "ModelName")
    return each(describe, filter(selected, (ResourceKey(ResourceKind.MODEL, it) for it in names)))


def _configs(aws: Aws, selected: Selected) -> list[Observed]:
    def describe(key: ResourceKey) -> Observed:
        params, arn = described_config(aws, key.name)
        return Observed(key=key, params=params, arn=arn, tags=_tags(aws, arn))

    names = _names(aws, "ListEndpointConfigs", "EndpointConfigs", "EndpointConfigName")
    return each(describe, filter(selected, (ResourceKey(ResourceKind.CONFIG, it) for it in names)))


def described_config(aws: Aws, name: str) -> tuple[dict[str, Any], str]:
    """The params of a configuration, and its ARN. Raises AwsError."""
    found = aws.call(SAGEMAKER, "DescribeEndpointConfig", {"EndpointConfigName": name})
    given = given_members(found, "CreateEndpointConfig")
    del given["EndpointConfigName"]
    return config_form(given), found["EndpointConfigArn"]


def _endpoints(aws: Aws, selected: Selected) -> list[Observed]:
    def describe(key: ResourceKey) -> Observed:
        found = aws.call(SAGEMAKER, "DescribeEndpoint", {"EndpointName": key.name})
        name, arn = found["EndpointConfigName"], found["EndpointArn"]
        try:
            config, _ = described_config(aws, name)
        except AwsError as error:
            if not error.is_absence:
                raise
            config = {}  # the configuration was deleted, which AWS allows
        last = found.get("LastDeploymentConfig")
        return Observed(
            key=key,
            params=to_form({"DeploymentConfig": last}) | {"Config": config},
            arn=arn,
            tags=_tags(aws, arn),
            status=found["EndpointStatus"],
            reason=found.get("FailureReason", ""),
            config_name=name,
            live={it["VariantName"]: to_form(it) for it in found.get("ProductionVariants", ())},
        )

    names = _names(aws, "ListEndpoints", "Endpoints", "EndpointName")
    return each(
        describe, filter(selected, (ResourceKey(ResourceKind.ENDPOINT, it) for it in names))
    )


def _components(aws: Aws, selected: Selected) -> list[Observed]:
    def describe(key: ResourceKey) -> Observed:
        name = {"InferenceComponentName": key.name}
        found = aws.call(SAGEMAKER, "DescribeInferenceComponent", name)
        arn = found["InferenceComponentArn"]
        return Observed(
            key=key,
            params=component_params(found),
            arn=arn,
            tags=_tags(aws, arn),
            status=found["InferenceComponentStatus"],
            reason=found.get("FailureReason", ""),
        )

    member = "InferenceComponents"
    names = _names(aws, "ListInferenceComponents", member, "InferenceComponentName")
    return each(
        describe, filter(selected, (ResourceKey(ResourceKind.COMPONENT, it) for it in names))
    )


def component_params(found: Described) -> dict[str, Any]:
    """The params of a component, from DescribeInferenceComponent."""
    params: dict[str, Any] = {
        "EndpointName": found["EndpointName"],
        "VariantName": found.get("VariantName"),
        "DeploymentConfig": found.get("LastDeploymentConfig"),
    }
    several = found.get("Specifications")
    shown = [specification_params(it) for it in several or [found["Specification"]]]
    params |= {"Specifications": shown} if several else {"Specification": shown[0]}
    formed: dict[str, Any] = to_form(params)
    if "BaseInferenceComponentName" not in shown[0]:
        formed["CopyCount"] = found["RuntimeConfig"]["DesiredCopyCount"]
    return formed


def specification_params(shown: Described) -> dict[str, Any]:
    """A specification as in a request: with an image, and without requirements for an adapter."""
    params = dict(shown)
    container = dict(params.pop("Container", {}))
    deployed = container.pop("DeployedImage", {})
    if deployed.get("SpecifiedImage"):
        container["Image"] = deployed["SpecifiedImage"]
    if "BaseInferenceComponentName" in params:
        params.pop("ComputeResourceRequirements", None)
        container.pop("Image", None)
    return {**params, "Container": container}


def _targets(aws: Aws, selected: Selected) -> list[Observed]:
    def observe_tagged(found: Described) -> Observed:
        key = target_key(found["ResourceId"], found["ScalableDimension"])
        params = to_form({name: found.get(name) for name in TARGET_MEMBERS})
        arn, tags = found.get("ScalableTargetARN", ""), {}
        if selected(key) and arn:
            tags = aws.call(SCALING, "ListTagsForResource", {"ResourceARN": arn})["Tags"]
        return Observed(key=key, params=params, arn=arn, tags=tags)

    found = pages(aws, SCALING, "DescribeScalableTargets", "ScalableTargets", NAMESPACE)
    return each(observe_tagged, found)


def policy_reference(resource_id: str, name: str) -> str:
    """The text that names a policy in an alarm's actions, independent of its ARN."""
    return f"policy/{resource_id}/{name}"


def _policies(aws: Aws) -> tuple[list[Observed], dict[str, str], list[str]]:
    """The policies, their ARNs by reference, and the names of alarms that belong to them."""
    policies: list[Observed] = []
    arns: dict[str, str] = {}
    made: list[str] = []
    for found in pages(aws, SCALING, "DescribeScalingPolicies", "ScalingPolicies", NAMESPACE):
        target = target_key(found["ResourceId"], found["ScalableDimension"])
        params = {name: found.get(name) for name in ("PolicyType", *CONFIGURATIONS)}
        key = ResourceKey(ResourceKind.POLICY, found["PolicyName"], target.name)
        policies.append(Observed(key=key, params=to_form(params), arn=found["PolicyARN"]))
        arns[policy_reference(found["ResourceId"], found["PolicyName"])] = found["PolicyARN"]
        if found["PolicyType"] == "TargetTrackingScaling":
            made += [it["AlarmName"] for it in found.get("Alarms", ())]
    return policies, arns, made


def _actions(aws: Aws) -> list[Observed]:
    found = pages(aws, SCALING, "DescribeScheduledActions", "ScheduledActions", NAMESPACE)
    actions = []
    for one in found:
        target = target_key(one["ResourceId"], one["ScalableDimension"])
        params = to_form({name: one.get(name) for name in ACTION_MEMBERS})
        key = ResourceKey(ResourceKind.ACTION, one["ScheduledActionName"], target.name)
        actions.append(Observed(key=key, params=params))
    return actions


def _alarms(aws: Aws, selected: Selected, references: Mapping[str, str]) -> list[Observed]:
    def observe_tagged(found: Described) -> Observed:
        arn = found["AlarmArn"]
        tags = aws.call(CLOUDWATCH, "ListTagsForResource", {"ResourceARN": arn})["Tags"]
        return Observed(
            key=ResourceKey(ResourceKind.ALARM, found["AlarmName"]),
            params=alarm_params(found, references),
            arn=arn,
            tags={it["Key"]: it["Value"] for it in tags},
        )

    asked = {"AlarmTypes": ["MetricAlarm", "CompositeAlarm"], "MaxRecords": 100}
    found: list[Described] = []
    for member in ("MetricAlarms", "CompositeAlarms"):
        found += pages(aws, CLOUDWATCH, "DescribeAlarms", member, asked)
    named = [it for it in found if selected(ResourceKey(ResourceKind.ALARM, it["AlarmName"]))]
    return each(observe_tagged, named)


def alarm_params(found: Described, references: Mapping[str, str]) -> dict[str, Any]:
    """The params of an alarm. References replace the ARNs of policies."""
    operation = "PutCompositeAlarm" if "AlarmRule" in found else "PutMetricAlarm"
    names = request_names(CLOUDWATCH, operation)
    params = {name: it for name, it in found.items() if name in names and name != "AlarmName"}
    for name in ACTIONS:
        params[name] = [references.get(it, it) for it in params.get(name, ())]
    formed: dict[str, Any] = to_form(params)
    return formed


def scaled_resources(targets: Sequence[Observed]) -> set[str]:
    """The ids of resources whose number a scalable target sets."""
    return {split_target(it.key.name)[0] for it in targets}
