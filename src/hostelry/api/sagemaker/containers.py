"""The containers of CreateModel: one, a pipeline of several, or several that requests name.

Source: CreateModel, ContainerDefinition and InferenceExecutionConfig in the SageMaker API
reference; "Inference pipelines" and "Multi-container endpoints" in the developer guide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hostelry.api.context import Params
from hostelry.api.refusals import unsupported
from hostelry.api.sagemaker.container import container_of
from hostelry.base.errors import validation_error
from hostelry.domain.model import Container, ExecutionMode, Model

FIELD = "ContainerHostname"
MAX_CONTAINERS = 15


def containers_of(params: Params) -> tuple[Container, ...]:
    """The containers of a request, in order and checked; of several each has a name.

    A name that a lone container is given says nothing, and is only shown.
    """
    primary, several = params.get("PrimaryContainer"), params.get("Containers")
    if (primary is None) == (several is None):
        given = "both were" if primary is not None else "none was"
        raise validation_error(
            f"Exactly one of PrimaryContainer and Containers is required; {given} given."
        )
    is_direct = execution_of(params) is ExecutionMode.DIRECT
    if primary is None and not several:
        raise validation_error("Containers is empty; a model needs a container.")
    entries = several or (primary or {},)
    if len(entries) == 1:
        if is_direct:
            raise validation_error(
                "InferenceExecutionConfig.Mode Direct needs Containers of 2 to "
                f"{MAX_CONTAINERS} entries; the model has one container."
            )
        path = "PrimaryContainer" if several is None else "Containers.1"
        return (replace(container_of(entries[0], path), hostname=None),)
    names = hostnames_of(entries, is_direct=is_direct)
    found = tuple(
        replace(container_of(given, f"Containers.{number}"), hostname=name)
        for number, (given, name) in enumerate(zip(entries, names, strict=True), start=1)
    )
    check_multi_model(found, is_direct=is_direct)
    return found


def execution_of(params: Params) -> ExecutionMode:
    """InferenceExecutionConfig.Mode; Serial is the default."""
    config = params.get("InferenceExecutionConfig") or {}
    return ExecutionMode(config.get("Mode", ExecutionMode.SERIAL.value))


def hostnames_of(several: Sequence[Mapping[str, Any]], *, is_direct: bool) -> Sequence[str]:
    """The containers' names: as given, or ``container-1``, ``container-2`` and so on."""
    given = [it.get(FIELD) for it in several]
    missing = [f"Containers.{number}" for number, it in enumerate(given, start=1) if not it]
    if missing and is_direct:
        raise validation_error(
            f"{missing[0]}.{FIELD} is required: with InferenceExecutionConfig.Mode Direct requests"
            " name the container."
        )
    if missing and len(missing) < len(given):
        raise validation_error(
            f"{missing[0]}.{FIELD} is missing; give it for every container of the pipeline, or for"
            " none."
        )
    names = [it or f"container-{number}" for number, it in enumerate(given, start=1)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise validation_error(
            f'{FIELD} "{twice[0]}" is given to {names.count(twice[0])} containers; each needs a'
            " name of its own."
        )
    return names


def check_multi_model(containers: Sequence[Container], *, is_direct: bool) -> None:
    """Refuse multi-model containers beside others, but for one in a pipeline."""
    many = [it.hostname for it in containers if it.is_multi_model]
    if many and is_direct:
        raise validation_error(
            f'Container "{many[0]}" has Mode MultiModel, which InferenceExecutionConfig.Mode Direct'
            " does not allow: a request names a container or a model. Create a pipeline (Mode"
            " Serial), or a model of this container alone."
        )
    if len(many) > 1:
        raise validation_error(
            f"Containers {', '.join(map(str, many))} have Mode MultiModel; a pipeline may have one"
            " such container, as a request has one TargetModel."
        )


def check_one_container(model: Model, where: str, advice: str) -> None:
    """Refuse a model of several containers; `where` is what has it."""
    if len(model.containers) > 1:
        raise unsupported(
            f'{where} with model "{model.name}", which has {len(model.containers)} containers',
            advice,
        )


def check_same_containers(variant_name: str, models: Sequence[Model]) -> None:
    """Refuse instance pools whose models do not have the same containers for requests to name."""
    named = {frozenset(it.hostname for it in m.containers) if m.is_direct else None for m in models}
    if len(named) > 1:
        raise validation_error(
            f'The models of the instance pools of production variant "{variant_name}" have'
            " different containers that requests name (InferenceExecutionConfig.Mode Direct); give"
            " all of them the same, under the same ContainerHostname."
        )
