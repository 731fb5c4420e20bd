"""From an inference component's Specification to domain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.container import archive_at
from hostelry.api.context import Context, Params
from hostelry.api.model import find_model
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.base.errors import validation_error
from hostelry.domain.component import AdapterSpec, ComponentSpec, InferenceComponent
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.shape import Requirements
from hostelry.domain.validation import BYTES_PER_MB, check_environment, check_requirements

Given = Mapping[str, Any]
# Beside a request's own members in `InferenceComponent.given`.
PREVIOUS = "Previous"


def given_in_force(component: InferenceComponent) -> Given:
    """The request that the component's present spec came from: after a rollback, the one before."""
    spec = component.spec or component.adapter
    previous: Given = component.given.get(PREVIOUS) or {}
    if spec is not None and previous.get("generation") == spec.generation:
        return previous
    return component.given


def given_next(component: InferenceComponent, specifications: Given) -> dict[str, Any]:
    """`given` of an updated component, which remembers what a rollback goes back to."""
    spec = component.spec or component.adapter
    before = given_in_force(component)
    previous = {name: before.get(name) for name in ("Specification", "Specifications")}
    return {
        **component.given,
        **specifications,
        PREVIOUS: {**previous, "generation": spec.generation if spec else None},
    }


def chosen_specification(params: Params, instance_type: str) -> Given:
    """The specification for the variant's instance type, of one or of several given."""
    single, several = params.get("Specification"), params.get("Specifications")
    if (single is None) == (several is None):
        given = "both were" if single is not None else "none was"
        raise validation_error(
            f"Exactly one of Specification and Specifications is required; {given} given."
        )
    if single is not None:
        return for_instance_type(single, instance_type)
    return of_several(several or [], instance_type)


def for_instance_type(given: Given, instance_type: str) -> Given:
    """`given`, unless it is meant for another instance type than the variant's."""
    named = given.get("InstanceType")
    if named is not None and named != instance_type:
        raise validation_error(
            f"Specification.InstanceType is {named}; the variant's instances are {instance_type}."
        )
    return given


def of_several(several: Sequence[Given], instance_type: str) -> Given:
    """The one of `several` that names `instance_type`."""
    types = [given.get("InstanceType") for given in several]
    if len(several) > 1 and None in types:
        number = types.index(None) + 1
        raise validation_error(
            f"Specifications.{number}.InstanceType is required where several are given."
        )
    if len(set(types)) < len(types):
        raise validation_error("Specifications name an instance type twice; each needs its own.")
    for given in several:
        if given.get("InstanceType") in (None, instance_type):
            return given
    raise validation_error(
        f"None of Specifications is for {instance_type}, the variant's instance type; they are for"
        f" {', '.join(map(str, types))}."
    )


def component_spec(
    context: Context, given: Given, variant: Variant, generation: int, container: Container
) -> ComponentSpec:
    """The base component's spec that `given` and the resolved `container` make."""
    refuse_scheduling(given)
    startup = given.get("StartupParameters") or {}
    requirements = requirements_of(given.get("ComputeResourceRequirements"))
    check_requirements(requirements, variant.instance_type, context.shape_of(variant.instance_type))
    return ComponentSpec(
        generation=generation,
        container=container,
        requirements=requirements,
        download_timeout_s=float(
            startup.get("ModelDataDownloadTimeoutInSeconds", variant.download_timeout_s)
        ),
        startup_timeout_s=float(
            startup.get("ContainerStartupHealthCheckTimeoutInSeconds", variant.startup_timeout_s)
        ),
    )


def resolved_container(context: Context, given: Given) -> Container:
    """The container of a specification: the model's, a container's own, or one over the other."""
    model_name, override = given.get("ModelName"), given.get("Container")
    if model_name is None and override is None:
        raise validation_error("Specification.ModelName or Specification.Container is required.")
    container = None
    if model_name is not None:
        container = find_model(context, model_name).value.containers[0]
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


def refuse_scheduling(given: Given) -> None:
    """Refuse a placement strategy other than the one there is."""
    strategy = (given.get("SchedulingConfig") or {}).get("PlacementStrategy", "BINPACK")
    if strategy != "BINPACK":
        raise unsupported(f"Specification.SchedulingConfig.PlacementStrategy={strategy}")


def adapter_spec(given: Given, base_name: str, generation: int) -> AdapterSpec:
    """The adapter's spec that `given` makes."""
    return AdapterSpec(generation=generation, base_name=base_name, source=adapter_source(given))


def adapter_source(given: Given) -> ArtifactSource:
    """Where the adapter's archive lies; an adapter is nothing but weights."""
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
