"""Types of documents for msgspec, built from the structures in AWS's service models."""

from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Literal, Union

import msgspec
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from hostelry.aws.models import OPEN_ENUMS, service_model

Fields = list[tuple[str, Any] | tuple[str, Any, Any]]
Scalar = str | int | float | bool
"""A text that may be written without quotes: of an environment, of a tag."""
_NUMBERS: dict[str, Any] = {
    "integer": int, "long": int, "float": float, "double": float, "boolean": bool,
}  # fmt: skip
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


def input_fields(service: str, operation: str, *without: str) -> Fields:
    """The members of an operation's request except `without`, all optional."""
    found: OperationModel = service_model(service).operation_model(operation)
    return build_fields(service, found.input_shape, *without)


def shape_fields(service: str, name: str, *without: str) -> Fields:
    """The members of a structure except `without`, all optional."""
    return build_fields(service, service_model(service).shape_for(name), *without)


def build_fields(service: str, shape: StructureShape, *without: str) -> Fields:
    """The members of `shape` except `without`, as optional fields."""
    return [
        (name, get_type(service, member.name), msgspec.UNSET)
        for name, member in shape.members.items()
        if name not in without
    ]


def struct(
    name: str, *fields: Fields, doc: str = "", module: str = __name__
) -> type[msgspec.Struct]:
    """A struct that refuses unknown fields. If a name repeats, the last field counts."""
    by_name = {field[0]: field for group in fields for field in group}
    required_first = sorted(by_name.values(), key=len)
    return msgspec.defstruct(
        name,
        required_first,
        kw_only=True,
        forbid_unknown_fields=True,
        module=module,
        namespace={"__doc__": doc} if doc else {},
    )


def build_mapping_type(kind: Any) -> Any:
    """The type of mappings from names to `kind`."""
    return GenericAlias(dict, (str, kind))


def build_list_type(kind: Any) -> Any:
    """The type of lists of `kind`."""
    return GenericAlias(list, (kind,))


@cache
def get_type(service: str, name: str) -> Any:
    """The type of the shape `name` of a service."""
    return _build_type(service, service_model(service).shape_for(name))


def _build_type(service: str, shape: Shape) -> Any:
    if isinstance(shape, StructureShape):
        fields: Fields = [
            (member, get_type(service, its.name))
            if member in shape.required_members
            else (member, get_type(service, its.name), msgspec.UNSET)
            for member, its in shape.members.items()
        ]
        return struct(shape.name, fields, module=f"aws.{service}")
    if isinstance(shape, ListShape):
        return _add_bounds(build_list_type(get_type(service, shape.member.name)), shape, "length")
    if isinstance(shape, MapShape):
        inner: Any = get_type(service, shape.value.name)
        return build_mapping_type(Scalar if shape.value.type_name == "string" else inner)
    return _scalar_type(shape)


def _scalar_type(shape: Shape) -> Any:
    if shape.type_name in _NUMBERS:
        kind = _NUMBERS[shape.type_name]
        return kind if kind is bool else _add_bounds(kind, shape, "value")
    enum = getattr(shape, "enum", None)
    if enum and shape.name not in OPEN_ENUMS:
        return Literal[tuple(enum)]
    return _add_bounds(str, shape, "length")


def _add_bounds(kind: Any, shape: Shape, of: str) -> Any:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is None and most is None:
        return kind
    if of == "value":
        return Annotated[kind, msgspec.Meta(ge=least, le=most)]
    return Annotated[kind, msgspec.Meta(min_length=least, max_length=most)]


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
            ("Policies", build_mapping_type(policy), UNSET),
            ("ScheduledActions", build_mapping_type(action), UNSET),
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
            ("ProductionVariants", build_list_type(variant), UNSET),
            ("Scaling", scaling, UNSET),
            ("Components", build_mapping_type(component), UNSET),
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
    adapters: Fields = [("Adapters", build_mapping_type(Union[str, adapter]), UNSET)]  # noqa: UP007 - a type made here
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
        ("models", build_mapping_type(_model()), UNSET),
        ("endpoints", build_mapping_type(_endpoint(scaling, component)), UNSET),
        ("components", build_mapping_type(standing_component), UNSET),
        ("adapters", build_mapping_type(standing_adapter), UNSET),
        ("scaling", build_mapping_type(scaling), UNSET),
        ("alarms", build_mapping_type(_alarm()), UNSET),
    ]
    return msgspec.defstruct(
        "Document",
        [(it[0].replace("$", ""), *it[1:]) for it in sections],
        kw_only=True,
        forbid_unknown_fields=True,
        rename={"schema": "$schema"},
        namespace={"__doc__": "Models, endpoints and what belongs to them, for `hostelry apply`."},
    )
