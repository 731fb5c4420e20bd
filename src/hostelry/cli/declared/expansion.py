"""Expand checked documents to resources. Short forms become fields of AWS's requests. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.cli.declared.document import (
    CLOUDWATCH,
    CONTAINER,
    NEEDS,
    SAGEMAKER,
    SCALING,
    SPECIFICATION,
    STEPPING,
    TRACKING,
    member_names,
    request_names,
)
from hostelry.cli.declared.forms import (
    config_form,
    model_form,
    parse_instant,
    to_form,
    without_role,
)
from hostelry.cli.declared.local_artifacts import mark_local_paths
from hostelry.cli.declared.resource import (
    UNNAMED_SET,
    DocumentError,
    DocumentFault,
    Path,
    ResourceKey,
    ResourceKind,
    Wanted,
    dot_path,
    target_key,
)
from hostelry.cli.declared.schema import faults_in, near_misses
from hostelry.cli.declared.source import DocumentSource
from hostelry.domain.scaling import Dimension

Given = Mapping[str, Any]
USUAL_METRIC: Mapping[str, str] = {
    Dimension.INSTANCES.value: "SageMakerVariantInvocationsPerInstance",
    Dimension.COPIES.value: "SageMakerInferenceComponentInvocationsPerCopy",
    Dimension.PROVISIONED_CONCURRENCY.value: "SageMakerVariantProvisionedConcurrencyUtilization",
}
USUAL_POLICY = "target-tracking"
TRACKING_TYPE, STEPPING_TYPE = "TargetTrackingScaling", "StepScaling"
BOUNDS = ("MinCapacity", "MaxCapacity")
VARIANT = "AllTraffic"


class ScalingError(HostelryError):
    """Invalid scaling in a document. `path` leads to the field."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(reason)


def scaling_resources(
    resource_id: str, given: Given, *, serverless: bool = False
) -> Iterator[tuple[ResourceKey, Given, Path]]:
    """Yield key, params and path of the target, its policies and actions. Raises ScalingError."""
    dimension = given.get("ScalableDimension") or get_dimension(resource_id, serverless=serverless)
    target = target_key(resource_id, dimension)
    own = ("Policies", "ScheduledActions", "TargetValue", "Tags", "ScalableDimension")
    for name in BOUNDS:
        if name not in given:
            raise ScalingError((), f"{name} is required")
    yield target, to_form({name: it for name, it in given.items() if name not in own}), ()
    if "TargetValue" in given:
        policy = policy_params({"TargetValue": given["TargetValue"]}, dimension)
        yield ResourceKey(ResourceKind.POLICY, USUAL_POLICY, target.name), policy, ("TargetValue",)
    for name, inner in given.get("Policies", {}).items():
        path = ("Policies", name)
        try:
            params = policy_params(inner, dimension)
        except ValueError as error:
            raise ScalingError(path, str(error)) from None
        yield ResourceKey(ResourceKind.POLICY, name, target.name), params, path
    for name, inner in given.get("ScheduledActions", {}).items():
        path = ("ScheduledActions", name)
        try:
            params = action_params(inner)
        except ValueError as error:
            raise ScalingError(path, str(error)) from None
        yield ResourceKey(ResourceKind.ACTION, name, target.name), params, path


def get_dimension(resource_id: str, *, serverless: bool) -> str:
    """The dimension in which a resource with that id is scaled. Raises ScalingError."""
    match resource_id.split("/"):
        case ["endpoint", _, "variant", _]:
            kind = Dimension.PROVISIONED_CONCURRENCY if serverless else Dimension.INSTANCES
            return kind.value
        case ["inference-component", _]:
            return Dimension.COPIES.value
    raise ScalingError((), "its name is endpoint/NAME/variant/NAME or inference-component/NAME")


def policy_params(given: Given, dimension: str) -> dict[str, Any]:
    """PolicyType and configuration of a policy. Raises ValueError if it is of neither type."""
    tracking, stepping = member_names(SCALING, TRACKING), member_names(SCALING, STEPPING)
    if "TargetValue" in given:
        wrong = [it for it in given if it not in (*tracking, "Metric")]
        if wrong:
            raise ValueError(f"{wrong[0]} is of step scaling; TargetValue is of target tracking")
        configuration = {name: it for name, it in given.items() if name != "Metric"}
        if not any(name.endswith("MetricSpecification") for name in configuration):
            metric = given.get("Metric", USUAL_METRIC.get(dimension))
            configuration["PredefinedMetricSpecification"] = {"PredefinedMetricType": metric}
        return {"PolicyType": TRACKING_TYPE, TRACKING: to_form(configuration)}
    if "StepAdjustments" not in given:
        raise ValueError("it needs TargetValue (target tracking) or StepAdjustments (step scaling)")
    wrong = [it for it in given if it not in stepping]
    if wrong:
        raise ValueError(f"{wrong[0]} is of target tracking; StepAdjustments is of step scaling")
    return {"PolicyType": STEPPING_TYPE, STEPPING: to_form(given)}


def action_params(given: Given) -> dict[str, Any]:
    """PutScheduledAction's fields of an action. Raises ValueError for an invalid time."""
    bounds = {name: given[name] for name in BOUNDS if name in given}
    rest = {
        name: parse_instant(it) if name in ("StartTime", "EndTime") else it
        for name, it in given.items()
        if name not in BOUNDS
    }
    params: dict[str, Any] = to_form(rest)
    return {**params, "ScalableTargetAction": bounds}


class WantedState(msgspec.Struct, frozen=True, kw_only=True):
    """All resources of the documents, the name of their set, and the default role.

    Without an `owner` no resource is marked, and resources of any set may change. `config_names`
    has names for endpoint configurations. A configuration without such a name gets a name with a
    hash.
    """

    owner: str
    role_arn: str
    resources: Mapping[ResourceKey, Wanted]
    config_names: Mapping[str, str] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """The resources and faults found so far."""

    role_arn: str
    owner: str = ""
    resources: dict[ResourceKey, Wanted] = field(default_factory=dict)
    faults: list[DocumentFault] = field(default_factory=list)
    source: DocumentSource = field(init=False)

    def fault(self, path: Path, reason: str) -> None:
        self.faults.append(DocumentFault(self.source.place(path), dot_path(path), reason))

    def add(self, key: ResourceKey, params: Given, path: Path, tags: Given | None = None) -> None:
        place = self.source.place(path)
        before = self.resources.get(key)
        if before is not None:
            self.fault(path, f"{key} is also at {before.place}; a name is given once")
            return
        params = mark_local_paths(params, self.source.folder)
        given = None if tags is None else {name: to_text(it) for name, it in tags.items()}
        self.resources[key] = Wanted(key=key, params=params, place=place, tags=given)


def wanted_state(sources: Sequence[DocumentSource], role_arn: str) -> WantedState:
    """The resources of the documents. `role_arn` is the default role.

    Raises DocumentError with all faults.
    """
    reading = _Reading(role_arn)
    for source in sources:
        reading.source = source
        found = list(faults_in(source.value))
        for path, reason in found:
            reading.fault(path, reason)
        if not found:
            _read(reading, source.value)
    if not reading.faults:
        _check_references(reading)
    if reading.faults:
        raise DocumentError(reading.faults)
    return WantedState(
        owner=reading.owner or UNNAMED_SET, role_arn=role_arn, resources=reading.resources
    )


def _read(reading: _Reading, document: Given) -> None:
    owner = document.get("set", "")
    if owner and reading.owner not in ("", owner):
        reading.fault(("set",), f'it is "{owner}", and "{reading.owner}" in a document before it')
    reading.owner = reading.owner or owner
    readers: Mapping[str, Callable[[_Reading, str, Given, Path], None]] = {
        "models": _read_model,
        "endpoints": _read_endpoint,
        "components": _read_component,
        "adapters": _read_adapter,
        "scaling": _read_scaling,
        "alarms": _read_alarm,
    }
    for section, read in readers.items():
        for name, given in document.get(section, {}).items():
            read(reading, name, given, (section, name))


def _read_model(reading: _Reading, name: str, given: Given, path: Path) -> None:
    members = member_names(SAGEMAKER, "ContainerDefinition")
    container, rest = split(given, members)
    others = [it for it in ("PrimaryContainer", "Containers") if it in rest]
    if container and others:
        field_name = next(iter(container))
        reading.fault(
            (*path, field_name), f"it belongs in {others[0]}, which is given too; give one of both"
        )
        return
    if not container and not others:
        reading.fault(path, "it has no container; give Image, or Containers")
        return
    params = dict(without_role(rest, reading.role_arn))
    if container:
        params["PrimaryContainer"] = container
    for one in [params.get("PrimaryContainer"), *params.get("Containers", ())]:
        if one and "Environment" in one:
            one["Environment"] = texts(one["Environment"])
    reading.add(
        ResourceKey(ResourceKind.MODEL, name),
        model_form(remove_tags(params)),
        path,
        given.get("Tags"),
    )


def _read_endpoint(reading: _Reading, name: str, given: Given, path: Path) -> None:
    single, rest = split(given, member_names(SAGEMAKER, "ProductionVariant"))
    deployment = rest.pop("DeploymentConfig", None)
    components = rest.pop("Components", {})
    scaling = rest.pop("Scaling", None)
    variants = [dict(it) for it in rest.pop("ProductionVariants", ())]
    if single and variants:
        field_name = next(iter(single))
        reading.fault(
            (*path, field_name), "it belongs in ProductionVariants, which is given too; give one"
        )
        return
    if not single and not variants:
        reading.fault(path, "it has no variant; give InstanceType, or ProductionVariants")
        return
    if variants and scaling is not None:
        reading.fault((*path, "Scaling"), "give it to one of ProductionVariants")
        return
    if single:
        variants = [{**single, **({} if scaling is None else {"Scaling": scaling})}]
    for number, variant in enumerate(variants):
        where = path if single else (*path, "ProductionVariants", number)
        _read_variant(reading, name, variant, where)
    config = {"ProductionVariants": variants, **without_role(remove_tags(rest), reading.role_arn)}
    params = to_form({"DeploymentConfig": deployment})
    reading.add(
        ResourceKey(ResourceKind.ENDPOINT, name), {"Config": config_form(config), **params}, path,
        given.get("Tags"),
    )  # fmt: skip
    for component, inner in components.items():
        own = {"EndpointName": name, **inner}
        _read_component(reading, component, own, (*path, "Components", component))


def _read_variant(reading: _Reading, endpoint: str, variant: dict[str, Any], path: Path) -> None:
    """Complete a variant in place, and read its scaling."""
    scaling = variant.pop("Scaling", None)
    variant.setdefault("VariantName", VARIANT)
    if "ServerlessConfig" not in variant:
        variant.setdefault("InitialInstanceCount", 1)
    if scaling is not None:
        resource_id = f"endpoint/{endpoint}/variant/{variant['VariantName']}"
        _read_scaling(
            reading, resource_id, scaling, (*path, "Scaling"), "ServerlessConfig" in variant
        )


def _read_component(reading: _Reading, name: str, given: Given, path: Path) -> None:
    needs, rest = split(given, member_names(SAGEMAKER, NEEDS))
    container, rest = split(rest, member_names(SAGEMAKER, CONTAINER))
    short, rest = split(rest, member_names(SAGEMAKER, SPECIFICATION))
    tags = rest.pop("Tags", None)
    adapters, scaling = rest.pop("Adapters", {}), rest.pop("Scaling", None)
    if needs:
        short["ComputeResourceRequirements"] = {
            **short.get("ComputeResourceRequirements", {}), **needs,
        }  # fmt: skip
    if container:
        short["Container"] = {**short.get("Container", {}), **container}
    whole = [it for it in ("Specification", "Specifications") if it in rest]
    if short and whole:
        field_name = next(iter(short))
        reading.fault(path, f"{field_name} belongs in {whole[0]}, which is given too; give one")
        return
    if not short and not whole:
        reading.fault(path, "it has no specification; give ModelName or Image, and its memory")
        return
    if short:
        rest["Specification"] = short
    for one in [rest.get("Specification"), *rest.get("Specifications", ())]:
        if one and "Environment" in one.get("Container", {}):
            one["Container"]["Environment"] = texts(one["Container"]["Environment"])
    params = to_form({"CopyCount": 1, **rest})
    params["CopyCount"] = given.get("CopyCount", 1)
    reading.add(ResourceKey(ResourceKind.COMPONENT, name), params, path, tags)
    for adapter, inner in adapters.items():
        own = {
            "EndpointName": given["EndpointName"],
            "BaseInferenceComponentName": name,
            **({"ArtifactUrl": inner} if isinstance(inner, str) else inner),
        }
        _read_adapter(reading, adapter, own, (*path, "Adapters", adapter))
    if scaling is not None:
        _read_scaling(reading, f"inference-component/{name}", scaling, (*path, "Scaling"))


def _read_adapter(reading: _Reading, name: str, given: Given, path: Path) -> None:
    specification = {
        "Container": {"ArtifactUrl": given["ArtifactUrl"]},
        **{
            field_name: it
            for field_name, it in given.items()
            if field_name not in ("EndpointName", "ArtifactUrl", "Tags")
        },
    }
    params = to_form({"EndpointName": given["EndpointName"], "Specification": specification})
    reading.add(ResourceKey(ResourceKind.COMPONENT, name), params, path, given.get("Tags"))


def _read_scaling(
    reading: _Reading, resource_id: str, given: Given, path: Path, serverless: bool = False
) -> None:
    try:
        found = scaling_resources(resource_id, given, serverless=serverless)
        for key, params, inner in found:
            reading.add(key, params, (*path, *inner), given.get("Tags") if not key.within else None)
    except ScalingError as error:
        reading.fault((*path, *error.path), str(error))


def _read_alarm(reading: _Reading, name: str, given: Given, path: Path) -> None:
    is_composite = "AlarmRule" in given
    operation = "PutCompositeAlarm" if is_composite else "PutMetricAlarm"
    allowed = request_names(CLOUDWATCH, operation)
    params = remove_tags(given)
    for field_name in params:
        if field_name not in allowed:
            kind = "with an AlarmRule" if is_composite else "without an AlarmRule"
            reading.fault((*path, field_name), f"an alarm {kind} has no such field")
    if isinstance(params.get("Dimensions"), Mapping):
        params["Dimensions"] = [
            {"Name": dimension, "Value": it} for dimension, it in params["Dimensions"].items()
        ]
    reading.add(ResourceKey(ResourceKind.ALARM, name), to_form(params), path, given.get("Tags"))


def _check_references(reading: _Reading) -> None:
    """Add a fault for each named base that is in the documents but is not a base component."""
    for wanted in _components(reading):
        base = wanted.params["Specification"].get("BaseInferenceComponentName")
        found = reading.resources.get(ResourceKey(ResourceKind.COMPONENT, base))
        if found is None or "CopyCount" in found.params:
            continue
        names = [it.key.name for it in _components(reading)]
        near = near_misses(base, [it for it in names if it != base])
        reason = f"its base {base} is an adapter itself; {near or 'name a component with copies'}"
        reading.faults.append(DocumentFault(wanted.place, wanted.key.name, reason))


def _components(reading: _Reading) -> Iterator[Wanted]:
    for wanted in reading.resources.values():
        if wanted.key.kind is ResourceKind.COMPONENT and "CopyCount" not in wanted.params:
            yield wanted


def split(given: Given, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The members of `given` that are in `names`, and the others."""
    inside = {name: it for name, it in given.items() if name in names}
    return inside, {name: it for name, it in given.items() if name not in names}


def remove_tags(given: Given) -> dict[str, Any]:
    """`given` without its tags, which are compared separately."""
    return {name: it for name, it in given.items() if name != "Tags"}


def texts(given: Given) -> dict[str, str]:
    """The scalars of an environment as texts."""
    return {name: to_text(it) for name, it in given.items()}


def to_text(value: Any) -> str:
    """A scalar as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
