"""Parses an inference component's specifications to domain values, and merges them in updates."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.sagemaker.kinds import MODELS
from hostelry.api.sagemaker.model import build_archive_source, check_one_container
from hostelry.base.errors import validation_error
from hostelry.domain.component import (
    AdapterSpec,
    ComponentSpec,
    InferenceComponent,
    PlacementStrategy,
    Scheduling,
    TypedSpec,
)
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.role import parse_role_name
from hostelry.domain.shape import Requirements, Shape
from hostelry.domain.validation import (
    BYTES_PER_MB,
    check_consistent,
    check_environment,
    check_requirements,
)

Given = Mapping[str, Any]
# An additional member of `InferenceComponent.given`.
PREVIOUS = "Previous"


def parse_specifications(params: Params, variant: Variant) -> tuple[Given, ...]:
    """Parse the specifications of a request. At least one must be for the variant's instances.

    A specification without InstanceType is for every type. If there are several, each names a type.
    """
    given = get_given_specifications(params)
    types = [it.get("InstanceType") for it in given]
    if len(given) > 1 and None in types:
        raise validation_error(
            f"Specifications.{types.index(None) + 1}.InstanceType is required where several are"
            " given."
        )
    if len(set(types)) < len(types):
        raise validation_error("Specifications name an instance type twice; each needs its own.")
    if None not in types and not set(types) & set(variant.instance_types):
        raise _build_type_refusal(params, [str(it) for it in types], variant)
    return given


def get_given_specifications(params: Params) -> tuple[Given, ...]:
    """Specification or Specifications, of which exactly one must be there."""
    single, several = params.get("Specification"), params.get("Specifications")
    if (single is None) == (several is None):
        given = "both were" if single is not None else "none was"
        raise validation_error(
            f"Exactly one of Specification and Specifications is required; {given} given."
        )
    return (single,) if single is not None else tuple(several or ())


def _build_type_refusal(params: Params, types: Sequence[str], variant: Variant) -> Exception:
    """The error for specifications that fit none of the variant's instances."""
    hosts = ", ".join(variant.instance_types)
    if params.get("Specification") is not None:
        return validation_error(
            f"Specification.InstanceType is {types[0]}; the variant's instances are {hosts}."
        )
    return validation_error(
        f"None of Specifications is for {hosts}, which the variant's instances are; they are for"
        f" {', '.join(types)}."
    )


def get_given_in_force(component: InferenceComponent) -> Given:
    """Get the request of the component's present spec. After a rollback, this is an earlier one."""
    spec = component.spec or component.adapter
    previous: Given = component.given.get(PREVIOUS) or {}
    if spec is not None and previous.get("generation") == spec.generation:
        return previous
    return component.given


def build_next_given(component: InferenceComponent, specifications: Given) -> dict[str, Any]:
    """`given` of an updated component, with the specifications that a rollback restores."""
    spec = component.spec or component.adapter
    before = get_given_in_force(component)
    previous = {name: before.get(name) for name in ("Specification", "Specifications")}
    return {
        **component.given,
        **specifications,
        PREVIOUS: {**previous, "generation": spec.generation if spec else None},
    }


def build_echoed_given(params: Params, merged: Sequence[Given]) -> Given:
    """The members that Describe echoes after an update, in the form of `params`."""
    if params.get("Specifications") is None:
        return {"Specification": merged[0], "Specifications": None}
    return {"Specification": None, "Specifications": list(merged)}


def find_changed(new: Given, old: Sequence[Given], variant: Variant) -> Given | None:
    """The specification of `old` that `new` changes. None if `new` must be complete.

    The first row that applies decides.

    | `old` has | result |
    | --- | --- |
    | only one specification | this specification |
    | a specification for the InstanceType of `new` | this specification |
    | a specification for the variant's type, and `new` has no type | this specification |
    | otherwise | None |
    """
    if len(old) == 1:
        return old[0]
    named = new.get("InstanceType")
    types = variant.instance_types if named is None else (named,)
    fitting = [it for it in old if it.get("InstanceType") in types]
    return fitting[0] if len(fitting) == 1 else None


def merge_specification(old: Given, new: Given) -> Given:
    """`old` with the members of `new`.

    | `new` has | result |
    | --- | --- |
    | ModelName, or Container with an Image | only ModelName and Container of `new` |
    | Container without an Image | the old Container with the members of the new Container |
    """
    override = new.get("Container") or {}
    kept = dict(old)
    if new.get("ModelName") or override.get("Image"):
        for field in ("ModelName", "Container"):
            kept.pop(field, None)
    before = kept.get("Container") or {}
    container = {**before, **override}
    if before.get("Environment") and override.get("Environment"):
        container["Environment"] = {**before["Environment"], **override["Environment"]}
    return {**kept, **new, **({"Container": container} if container else {})}


def build_component_spec(
    context: CallContext,
    given: Sequence[Given],
    containers: Sequence[Container],
    variant: Variant,
    generation: int,
) -> ComponentSpec:
    """The base component's spec from its specifications and their containers."""
    typed = [
        _build_typed_spec(one, container, variant)
        for one, container in zip(given, containers, strict=True)
    ]
    for_any = given[0].get("InstanceType") is None
    _check_room(typed, get_shapes(context, variant), for_any=for_any)
    types = variant.instance_types
    first, *_ = in_order = sorted(
        typed,
        key=lambda it: types.index(it.instance_type) if it.instance_type in types else len(types),
    )
    return ComponentSpec(
        generation=generation,
        container=first.container,
        requirements=first.requirements,
        download_timeout_s=first.download_timeout_s,
        startup_timeout_s=first.startup_timeout_s,
        scheduling=_get_common_scheduling(given),
        by_type=() if for_any else tuple(in_order),
    )


def _build_typed_spec(given: Given, container: Container, variant: Variant) -> TypedSpec:
    """A specification with the defaults of the variant."""
    startup = given.get("StartupParameters") or {}
    return TypedSpec(
        instance_type=given.get("InstanceType", variant.instance_type),
        container=container,
        requirements=_build_requirements(given.get("ComputeResourceRequirements")),
        download_timeout_s=float(
            startup.get("ModelDataDownloadTimeoutInSeconds", variant.download_timeout_s)
        ),
        startup_timeout_s=float(
            startup.get("ContainerStartupHealthCheckTimeoutInSeconds", variant.startup_timeout_s)
        ),
    )


def get_shapes(context: CallContext, variant: Variant) -> dict[str, Shape]:
    """The declared shape of each of the variant's instance types."""
    return {name: context.get_shape(name) for name in variant.instance_types}


def _check_room(typed: Sequence[TypedSpec], offers: Mapping[str, Shape], *, for_any: bool) -> None:
    """Refuse specifications that no empty instance of their type could hold.

    A specification for any type needs a type that can hold it. A specification for a type that is
    not in `offers` is checked when the endpoint moves to this type.
    """
    for one in typed:
        if for_any:
            check_requirements(one.requirements, offers)
        elif one.instance_type in offers:
            check_requirements(one.requirements, {one.instance_type: offers[one.instance_type]})
        else:
            check_consistent(one.requirements)


def _get_common_scheduling(given: Sequence[Given]) -> Scheduling:
    """The scheduling of copies, which must be the same in all specifications."""
    found = {_build_scheduling(one.get("SchedulingConfig") or {}) for one in given}
    if len(found) > 1:
        raise validation_error(
            "SchedulingConfig must be the same in all Specifications: it is about the copies of the"
            " component together."
        )
    return found.pop()


def _build_scheduling(given: Given) -> Scheduling:
    """The scheduling of copies. The default is SPREAD."""
    balance = given.get("AvailabilityZoneBalance")
    return Scheduling(
        strategy=PlacementStrategy(given.get("PlacementStrategy", PlacementStrategy.SPREAD.value)),
        max_imbalance=None if balance is None else balance.get("MaxImbalance", 0),
    )


def find_endpoints_role(endpoint: Endpoint) -> str:
    """The name of the execution role of an endpoint's newest configuration, or an empty text."""
    deployment = endpoint.pending or endpoint.active
    given = {} if deployment is None else deployment.config.given
    return parse_role_name(given.get("ExecutionRoleArn") or "")


def resolve_container(context: CallContext, given: Given, role: str) -> Container:
    """Build a specification's container: the model's, its own, or both merged.

    `role` is the role of a container without a model.
    """
    model_name, override = given.get("ModelName"), given.get("Container")
    if model_name is None and override is None:
        raise validation_error("Specification.ModelName or Specification.Container is required.")
    container = None
    if model_name is not None:
        model = MODELS.find(context, model_name).value
        check_one_container(
            model, "An inference component", "Name it in a production variant (ModelName)."
        )
        container = model.containers[0]
        if container.is_multi_model:
            raise unsupported(
                f"Model {model_name} with Mode MultiModel in an inference component",
                "Name it in a production variant, or use one component for each model.",
            )
    return override_container(container, override or {}, role)


def override_container(container: Container | None, override: Given, role: str) -> Container:
    """Replace image and artifacts of `container` by those in `override`. Merge the environment.

    `role` is the role of a container without a model.
    """
    image = override.get("Image") or (container.image if container else None)
    if not image:
        raise validation_error(
            "Specification.Container.Image is required where no model provides one."
        )
    source = container.source if container else None
    if override.get("ArtifactUrl"):
        source = build_archive_source(
            override["ArtifactUrl"], "Specification.Container.ArtifactUrl"
        )
    environment = {
        **(container.environment if container else {}),
        **(override.get("Environment") or {}),
    }
    own_role = role if container is None else container.role
    made = Container(image=image, source=source, environment=environment, role=own_role)
    check_environment([made])
    return made


def _build_requirements(given: Given | None) -> Requirements:
    if not given:
        raise validation_error(
            "Specification.ComputeResourceRequirements is required for an inference component that"
            " is not an adapter."
        )
    refuse_fields(given, ("AcceleratorPartitionType",), "ComputeResourceRequirements.")
    most_mb = given.get("MaxMemoryRequiredInMb")
    return Requirements(
        min_memory_bytes=given["MinMemoryRequiredInMb"] * BYTES_PER_MB,
        max_memory_bytes=None if most_mb is None else most_mb * BYTES_PER_MB,
        cpus=float(given.get("NumberOfCpuCoresRequired", 0.0)),
        accelerators=float(given.get("NumberOfAcceleratorDevicesRequired", 0.0)),
    )


def build_adapter_spec(given: Given, base_name: str, generation: int) -> AdapterSpec:
    """The adapter's spec that `given` makes."""
    startup = given.get("StartupParameters") or {}
    return AdapterSpec(
        generation=generation,
        base_name=base_name,
        source=_build_adapter_source(given),
        download_timeout_s=startup.get("ModelDataDownloadTimeoutInSeconds"),
        startup_timeout_s=startup.get("ContainerStartupHealthCheckTimeoutInSeconds"),
    )


def _build_adapter_source(given: Given) -> ArtifactSource:
    """The source of the adapter's archive. Refuses fields that only a base has."""
    for field in ("ModelName", "ComputeResourceRequirements", "SchedulingConfig"):
        if given.get(field) is not None:
            raise validation_error(
                f"Specification.{field} cannot be given for an adapter"
                " (BaseInferenceComponentName is given); its base component decides that."
            )
    container = given.get("Container") or {}
    for field in ("Image", "Environment"):
        if container.get(field):
            raise validation_error(
                f"Specification.Container.{field} cannot be given for an adapter"
                " (BaseInferenceComponentName is given); its base component decides that."
            )
    if not container.get("ArtifactUrl"):
        raise validation_error(
            "Specification.Container.ArtifactUrl is required for an adapter"
            " (BaseInferenceComponentName is given); it names the adapter's .tar.gz archive."
        )
    return build_archive_source(container["ArtifactUrl"], "Specification.Container.ArtifactUrl")
