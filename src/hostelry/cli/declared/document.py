"""The types of a document: AWS's own fields under a few words of ours; its schema follows.

set: shop
models: {NAME: ...}
endpoints: {NAME: {..., Scaling: ..., Components: {NAME: {..., Scaling: ..., Adapters: ...}}}}
components, adapters: {NAME: {EndpointName: ..., ...}}     of endpoints in no document
scaling: {RESOURCE_ID: ...}                                of variants and components likewise
alarms: {NAME: ...}
"""

from functools import cache
from typing import Annotated, Any, Union

import msgspec

from hostelry.cli.declared.aws_types import (
    Fields,
    Scalar,
    input_fields,
    list_of,
    mapping_of,
    shape_fields,
    struct,
)

SET_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
SECTIONS = ("models", "endpoints", "components", "adapters", "scaling", "alarms")
SPECIFICATION = "InferenceComponentSpecification"
NEEDS = "InferenceComponentComputeResourceRequirements"
CONTAINER = "InferenceComponentContainerSpecification"
TRACKING = "TargetTrackingScalingPolicyConfiguration"
STEPPING = "StepScalingPolicyConfiguration"
SAGEMAKER, SCALING, CLOUDWATCH = "sagemaker", "application-autoscaling", "cloudwatch"
UNSET = msgspec.UNSET
_TAGS: Fields = [("Tags", dict[str, Scalar], UNSET)]
_ENVIRONMENT: Fields = [("Environment", dict[str, Scalar], UNSET)]


def _about(kind: Any, text: str) -> Any:
    return Annotated[kind, msgspec.Meta(description=text)]


@cache
def member_names(service: str, shape: str) -> tuple[str, ...]:
    """The names of a structure's members."""
    return tuple(field[0] for field in shape_fields(service, shape))


@cache
def request_names(service: str, operation: str) -> tuple[str, ...]:
    """The names of a request's members."""
    return tuple(field[0] for field in input_fields(service, operation))


def _model() -> Any:
    return struct(
        "ModelDocument",
        shape_fields(SAGEMAKER, "ContainerDefinition"),
        input_fields(SAGEMAKER, "CreateModel", "ModelName"),
        _ENVIRONMENT,
        _TAGS,
        doc="CreateModel's fields; those of a single container may stand beside them.",
    )


def _scaling() -> Any:
    policy = struct(
        "ScalingPolicyDocument",
        shape_fields(SCALING, TRACKING),
        shape_fields(SCALING, STEPPING),
        [("Metric", _about(str, "A predefined metric's type, in short."), UNSET)],
        doc="Target tracking where it has a TargetValue; else step scaling.",
    )
    action = struct(
        "ScheduledActionDocument",
        shape_fields(SCALING, "ScalableTargetAction"),
        input_fields(
            SCALING, "PutScheduledAction", "ServiceNamespace", "ScheduledActionName", "ResourceId",
            "ScalableDimension", "ScalableTargetAction",
        ),
        [("Schedule", str)],
        doc="PutScheduledAction's fields, with the bounds beside them.",
    )  # fmt: skip
    return struct(
        "ScalingDocument",
        input_fields(SCALING, "RegisterScalableTarget", "ServiceNamespace", "ResourceId"),
        [
            ("TargetValue", _about(float, "One tracking policy of the usual metric."), UNSET),
            ("Policies", mapping_of(policy), UNSET),
            ("ScheduledActions", mapping_of(action), UNSET),
        ],
        _TAGS,
        doc="RegisterScalableTarget's fields, with the target's policies and scheduled actions.",
    )


def _component_fields(scaling: Any) -> Fields:
    return [
        *shape_fields(SAGEMAKER, CONTAINER),
        *shape_fields(SAGEMAKER, NEEDS),
        *shape_fields(SAGEMAKER, SPECIFICATION, "BaseInferenceComponentName"),
        *input_fields(
            SAGEMAKER, "CreateInferenceComponent",
            "InferenceComponentName", "EndpointName", "RuntimeConfig", "Tags",
        ),
        *input_fields(
            SAGEMAKER, "UpdateInferenceComponent",
            "InferenceComponentName", "Specification", "Specifications", "RuntimeConfig",
        ),
        *_ENVIRONMENT,
        ("CopyCount", Annotated[int, msgspec.Meta(ge=0)], UNSET),
        ("Scaling", scaling, UNSET),
        *_TAGS,
    ]  # fmt: skip


def _adapter_fields() -> Fields:
    return [
        ("ArtifactUrl", _about(str, "s3://..., hf://..., or a local folder or archive.")),
        *shape_fields(
            SAGEMAKER, SPECIFICATION, "BaseInferenceComponentName", "Container", "ModelName",
            "ComputeResourceRequirements", "InstanceType",
        ),
        *_TAGS,
    ]  # fmt: skip


def _endpoint(scaling: Any, component: Any) -> Any:
    variant = struct(
        "VariantDocument",
        shape_fields(SAGEMAKER, "ProductionVariant"),
        [("VariantName", str), ("Scaling", scaling, UNSET)],
        doc="A production variant, with its scaling.",
    )
    return struct(
        "EndpointDocument",
        shape_fields(SAGEMAKER, "ProductionVariant"),
        input_fields(SAGEMAKER, "CreateEndpointConfig", "EndpointConfigName"),
        input_fields(SAGEMAKER, "CreateEndpoint", "EndpointName", "EndpointConfigName"),
        [
            ("ProductionVariants", list_of(variant), UNSET),
            ("Scaling", scaling, UNSET),
            ("Components", mapping_of(component), UNSET),
        ],
        _TAGS,
        doc="Fields of a configuration and an endpoint; a single variant's may stand beside them.",
    )


def _alarm() -> Any:
    dimensions = dict[str, str] | list[dict[str, str]]
    return struct(
        "AlarmDocument",
        input_fields(CLOUDWATCH, "PutCompositeAlarm", "AlarmName"),
        input_fields(CLOUDWATCH, "PutMetricAlarm", "AlarmName"),
        [("Dimensions", _about(dimensions, "Values by name, or AWS's list."), UNSET)],
        _TAGS,
        doc="PutMetricAlarm's fields, or those of PutCompositeAlarm where it has an AlarmRule.",
    )


@cache
def document_type() -> Any:
    """The type of one document."""
    scaling = _scaling()
    adapter = struct("AdapterDocument", _adapter_fields(), doc="An adapter of a component.")
    component_fields = _component_fields(scaling)
    adapters: Fields = [("Adapters", mapping_of(Union[str, adapter]), UNSET)]  # noqa: UP007 - a type made here
    component = struct(
        "ComponentDocument", component_fields, adapters,
        doc="A specification's fields beside those of CreateInferenceComponent.",
    )  # fmt: skip
    of_endpoint: Fields = [("EndpointName", str)]
    standing_component = struct(
        "StandingComponentDocument", component_fields, adapters, of_endpoint
    )
    standing_adapter = struct(
        "StandingAdapterDocument",
        _adapter_fields(),
        of_endpoint,
        [("BaseInferenceComponentName", str)],
    )
    name = Annotated[str, msgspec.Meta(pattern=SET_PATTERN)]
    sections: Fields = [
        ("$schema", str, UNSET),
        ("set", _about(name, "Marks what the documents make; needed to prune."), UNSET),
        ("models", mapping_of(_model()), UNSET),
        ("endpoints", mapping_of(_endpoint(scaling, component)), UNSET),
        ("components", mapping_of(standing_component), UNSET),
        ("adapters", mapping_of(standing_adapter), UNSET),
        ("scaling", mapping_of(scaling), UNSET),
        ("alarms", mapping_of(_alarm()), UNSET),
    ]
    return msgspec.defstruct(
        "Document",
        [(it[0].replace("$", ""), *it[1:]) for it in sections],
        kw_only=True,
        forbid_unknown_fields=True,
        rename={"schema": "$schema"},
        namespace={"__doc__": "Models, endpoints and what belongs to them, for `hostelry apply`."},
    )
