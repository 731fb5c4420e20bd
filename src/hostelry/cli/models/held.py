"""The resources of a platform that a removal must know of, as AWS's APIs list them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from hostelry.cli.models.ls import NUM_THREADS
from hostelry.cli.models.removal import HeldComponent, HeldResources
from hostelry.cli.named import NamedModel, NameKind, described, rows_of

MODEL_VARIABLES = ("OPTION_MODEL_ID", "HF_MODEL_ID", "MODEL_ID")
S3 = "s3://"


def held_resources(sagemaker: Any, scaling: Any, named: Sequence[NamedModel]) -> HeldResources:
    """Everything that `planned_removal` looks at; adapters alone need no look at all others."""
    registered = rows_of(
        scaling, "describe_scalable_targets", "ScalableTargets", ServiceNamespace="sagemaker"
    )
    targets = [it["ResourceId"] for it in registered]
    if named and all(it.kind is NameKind.ADAPTER for it in named):
        mine = [held_component(sagemaker, str(it.component)) for it in named]
        return HeldResources(components=[it for it in mine if it], targets=targets)
    endpoints = _names(sagemaker, "list_endpoints", "Endpoints", "EndpointName")
    configs = _names(sagemaker, "list_endpoint_configs", "EndpointConfigs", "EndpointConfigName")
    models = _names(sagemaker, "list_models", "Models", "ModelName")
    components = _names(
        sagemaker, "list_inference_components", "InferenceComponents", "InferenceComponentName"
    )
    with ThreadPoolExecutor(NUM_THREADS) as threads:

        def all_of(kind: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
            shown = threads.map(partial(described, sagemaker, kind), names)
            return {name: it for name, it in zip(names, shown, strict=True) if it is not None}

        found = threads.map(partial(held_component, sagemaker), components)
        shown_endpoints = all_of("endpoint", endpoints)
        return HeldResources(
            components=[it for it in found if it is not None],
            endpoints={
                name: str(shown.get("EndpointConfigName", ""))
                for name, shown in shown_endpoints.items()
            },
            configs={
                name: tuple(_models_of(shown))
                for name, shown in all_of("endpoint_config", configs).items()
            },
            models={
                name: tuple(dict.fromkeys(_addresses(shown)))
                for name, shown in all_of("model", models).items()
            },
            targets=targets,
            model_uses=_used_by_jobs(sagemaker),
        )


def held_component(sagemaker: Any, name: str) -> HeldComponent | None:
    """A component with what it names; None where there is none."""
    shown = described(sagemaker, "inference_component", name)
    if shown is None:
        return None
    component = HeldComponent(name=name, endpoint=shown["EndpointName"])
    for given in [shown.get("Specification") or {}, *shown.get("Specifications", ())]:
        own = (given["ModelName"],) if "ModelName" in given else ()
        component = replace(
            component,
            base=given.get("BaseInferenceComponentName") or component.base,
            models=component.models + own,
            data=tuple(dict.fromkeys([*component.data, *_addresses(given)])),
        )
    return component


def _names(sagemaker: Any, call: str, member: str, key: str) -> list[str]:
    return [it[key] for it in rows_of(sagemaker, call, member)]


def _models_of(config: Mapping[str, Any]) -> Iterator[str]:
    for member in ("ProductionVariants", "ShadowProductionVariants"):
        for variant in config.get(member) or ():
            if "ModelName" in variant:
                yield variant["ModelName"]


def _addresses(shown: Mapping[str, Any]) -> Iterator[str]:
    """The addresses of artifacts that a model or a component's specification names."""
    containers = [
        shown.get("Container"),
        shown.get("PrimaryContainer"),
        *shown.get("Containers", ()),
    ]
    for container in containers:
        if not container:
            continue
        source = container.get("ModelDataSource") or {}
        variables = container.get("Environment") or {}
        found = [
            container.get("ArtifactUrl"),
            container.get("ModelDataUrl"),
            (source.get("S3DataSource") or {}).get("S3Uri"),
            *(variables.get(it) for it in MODEL_VARIABLES),
        ]
        yield from (it for it in found if it and it.startswith(S3))


def _used_by_jobs(sagemaker: Any) -> dict[str, str]:
    """The models of transform jobs that run, each with a job's name."""
    uses = {}
    running = rows_of(
        sagemaker, "list_transform_jobs", "TransformJobSummaries", StatusEquals="InProgress"
    )
    for row in running:
        shown = sagemaker.describe_transform_job(TransformJobName=row["TransformJobName"])
        uses[shown["ModelName"]] = row["TransformJobName"]
    return uses
