"""From an inference component's specifications to domain values."""

from collections.abc import Mapping, Sequence

from hostelry.api.context import CallContext
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.sagemaker.container import archive_at
from hostelry.api.sagemaker.containers import check_one_container
from hostelry.api.sagemaker.model import find_model
from hostelry.api.sagemaker.specifications import Given
from hostelry.base.errors import validation_error
from hostelry.domain.component import (
    AdapterSpec,
    ComponentSpec,
    PlacementStrategy,
    Scheduling,
    TypedSpec,
)
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.shape import Requirements, Shape
from hostelry.domain.validation import (
    BYTES_PER_MB,
    check_consistent,
    check_environment,
    check_requirements,
)


def component_spec(
    context: CallContext,
    given: Sequence[Given],
    containers: Sequence[Container],
    variant: Variant,
    generation: int,
) -> ComponentSpec:
    """The base component's spec from its specifications and their containers."""
    typed = [
        typed_spec(one, container, variant)
        for one, container in zip(given, containers, strict=True)
    ]
    for_any = given[0].get("InstanceType") is None
    check_room(typed, shapes_of(context, variant), for_any=for_any)
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
        scheduling=common_scheduling(given),
        by_type=() if for_any else tuple(in_order),
    )


def typed_spec(given: Given, container: Container, variant: Variant) -> TypedSpec:
    """What copies run by one specification; the variant has the defaults."""
    startup = given.get("StartupParameters") or {}
    return TypedSpec(
        instance_type=given.get("InstanceType", variant.instance_type),
        container=container,
        requirements=requirements_of(given.get("ComputeResourceRequirements")),
        download_timeout_s=float(
            startup.get("ModelDataDownloadTimeoutInSeconds", variant.download_timeout_s)
        ),
        startup_timeout_s=float(
            startup.get("ContainerStartupHealthCheckTimeoutInSeconds", variant.startup_timeout_s)
        ),
    )


def shapes_of(context: CallContext, variant: Variant) -> dict[str, Shape]:
    """The declared shape of each of the variant's instance types."""
    return {name: context.shape_of(name) for name in variant.instance_types}


def check_room(typed: Sequence[TypedSpec], offers: Mapping[str, Shape], *, for_any: bool) -> None:
    """Refuse specifications that no empty instance of their type could hold.

    A specification for any type needs one type that can; one for a type that is not in `offers`
    is checked when the endpoint moves there.
    """
    for one in typed:
        if for_any:
            check_requirements(one.requirements, offers)
        elif one.instance_type in offers:
            check_requirements(one.requirements, {one.instance_type: offers[one.instance_type]})
        else:
            check_consistent(one.requirements)


def common_scheduling(given: Sequence[Given]) -> Scheduling:
    """The scheduling of copies, which must be the same in all specifications."""
    found = {scheduling_of(one.get("SchedulingConfig") or {}) for one in given}
    if len(found) > 1:
        raise validation_error(
            "SchedulingConfig must be the same in all Specifications: it is about the copies of the"
            " component together."
        )
    return found.pop()


def scheduling_of(given: Given) -> Scheduling:
    """The scheduling of copies; SPREAD is the default."""
    balance = given.get("AvailabilityZoneBalance")
    return Scheduling(
        strategy=PlacementStrategy(given.get("PlacementStrategy", PlacementStrategy.SPREAD.value)),
        max_imbalance=None if balance is None else balance.get("MaxImbalance", 0),
    )


def resolved_container(context: CallContext, given: Given) -> Container:
    """The container of a specification: the model's, a container's own, or one over the other."""
    model_name, override = given.get("ModelName"), given.get("Container")
    if model_name is None and override is None:
        raise validation_error("Specification.ModelName or Specification.Container is required.")
    container = None
    if model_name is not None:
        model = find_model(context, model_name).value
        check_one_container(
            model, "An inference component", "Name it in a production variant (ModelName)."
        )
        container = model.containers[0]
        if container.is_multi_model:
            raise unsupported(
                f"Model {model_name} with Mode MultiModel in an inference component",
                "Name it in a production variant, or use one component for each model.",
            )
    return overridden(container, override or {})


def overridden(container: Container | None, override: Given) -> Container:
    """`container` with what `override` gives: image and artifacts replaced, environment merged."""
    image = override.get("Image") or (container.image if container else None)
    if not image:
        raise validation_error(
            "Specification.Container.Image is required where no model provides one."
        )
    source = container.source if container else None
    if override.get("ArtifactUrl"):
        source = archive_at(override["ArtifactUrl"], "Specification.Container.ArtifactUrl")
    environment = {
        **(container.environment if container else {}),
        **(override.get("Environment") or {}),
    }
    made = Container(image=image, source=source, environment=environment)
    check_environment([made])
    return made


def requirements_of(given: Given | None) -> Requirements:
    """What one copy reserves."""
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


def adapter_spec(given: Given, base_name: str, generation: int) -> AdapterSpec:
    """The adapter's spec that `given` makes."""
    startup = given.get("StartupParameters") or {}
    return AdapterSpec(
        generation=generation,
        base_name=base_name,
        source=adapter_source(given),
        download_timeout_s=startup.get("ModelDataDownloadTimeoutInSeconds"),
        startup_timeout_s=startup.get("ContainerStartupHealthCheckTimeoutInSeconds"),
    )


def adapter_source(given: Given) -> ArtifactSource:
    """The source of the adapter's archive; refuses fields that only a base has."""
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
    return archive_at(container["ArtifactUrl"], "Specification.Container.ArtifactUrl")
