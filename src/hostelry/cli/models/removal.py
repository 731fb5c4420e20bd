"""Plan a removal: the resources that AWS's APIs list, and those that are removed. Pure plans."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.cli.models.ls import NUM_THREADS
from hostelry.cli.named import NamedModel, NameKind, describe, list_rows
from hostelry.cli.status_text import columns

MODEL_VARIABLES = ("OPTION_MODEL_ID", "HF_MODEL_ID", "MODEL_ID")
S3 = "s3://"
MAX_SHOWN = 10  # names of one kind with a line each


class HeldComponent(msgspec.Struct, frozen=True, kw_only=True):
    """An inference component, with the models and artifacts that it names."""

    name: str
    endpoint: str
    base: str | None = None
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


class HeldResources(msgspec.Struct, frozen=True, kw_only=True):
    """All resources that matter for a removal.

    Args:
        endpoints: the configuration of each endpoint.
        configs: the models that each configuration names.
        models: the artifacts that each model names.
        targets: resource ids of scalable targets.
        model_uses: models that running jobs use, with the jobs' names.
    """

    components: Sequence[HeldComponent] = ()
    endpoints: Mapping[str, str] = msgspec.field(default_factory=dict)
    configs: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    models: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    targets: Sequence[str] = ()
    model_uses: Mapping[str, str] = msgspec.field(default_factory=dict)


def held_resources(sagemaker: Any, scaling: Any, named: Sequence[NamedModel]) -> HeldResources:
    """The resources that `planned_removal` needs. For adapters, only they are described."""
    registered = list_rows(
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
            shown = threads.map(partial(describe, sagemaker, kind), names)
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
                name: tuple(_list_models(shown))
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
    """A component with its models and artifacts. None if it does not exist."""
    shown = describe(sagemaker, "inference_component", name)
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
    return [it[key] for it in list_rows(sagemaker, call, member)]


def _list_models(config: Mapping[str, Any]) -> Iterator[str]:
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
    """The models of running transform jobs, each with a job's name."""
    uses = {}
    running = list_rows(
        sagemaker, "list_transform_jobs", "TransformJobSummaries", StatusEquals="InProgress"
    )
    for row in running:
        shown = sagemaker.describe_transform_job(TransformJobName=row["TransformJobName"])
        uses[shown["ModelName"]] = row["TransformJobName"]
    return uses


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """Resources to remove, in this order.

    `kept` has sentences about resources that stay.
    """

    targets: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def kinds(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The kinds that have resources, with plain names."""
        for name, found in (
            ("scalable target", self.targets),
            ("adapter", self.adapters),
            ("component", self.components),
            ("endpoint", self.endpoints),
            ("configuration", self.configs),
            ("model", self.models),
            ("data", self.data),
        ):
            if found:
                yield name, found


def planned_removal(
    named: Sequence[NamedModel],
    held: HeldResources,
    leftovers: Sequence[str] = (),
    *,
    with_data: bool = False,
) -> Removal:
    """Plan the removal of the named resources.

    With an endpoint go its components, their adapters, its configuration, models and scalable
    targets. A configuration stays if another endpoint has it. A model stays if another
    configuration, a component or a running job names it. `leftovers` are configurations and models
    of earlier removals. `with_data` removes artifacts that no remaining resource uses any part of.
    """
    endpoints = {it.endpoint for it in named if it.component is None}
    doomed = _doomed_components(named, held, endpoints)
    configs = {held.endpoints[it] for it in endpoints if it in held.endpoints}
    configs |= {it for it in leftovers if it in held.configs}
    kept: list[str] = []
    uses = _config_uses(held, endpoints)
    kept += _describe_kept("configuration", configs, uses)
    configs -= uses.keys()
    models = {model for it in doomed for model in it.models}
    models |= {model for config in configs for model in held.configs.get(config, ())}
    models |= {it for it in leftovers if it in held.models}
    models &= held.models.keys()
    staying = [it for it in held.components if it not in doomed]
    uses = _model_uses(held, configs, staying)
    kept += _describe_kept("model", models, uses)
    models -= uses.keys()
    data: list[str] = []
    if with_data:
        own = {uri for it in doomed for uri in it.data}
        own |= {uri for model in models for uri in held.models[model]}
        others = {uri: f"component {it.name}" for it in staying for uri in it.data}
        others |= {
            uri: f"model {model}"
            for model in held.models.keys() - models
            for uri in held.models[model]
        }
        data, more = removable_data(own, others)
        kept += more
    names = {it.name for it in doomed}
    return Removal(
        targets=tuple(it for it in held.targets if _scales_any(it, endpoints, names)),
        adapters=tuple(sorted(it.name for it in doomed if it.base)),
        components=tuple(sorted(it.name for it in doomed if not it.base)),
        endpoints=tuple(sorted(endpoints)),
        configs=tuple(sorted(configs)),
        models=tuple(sorted(models)),
        data=tuple(data),
        kept=tuple(kept),
    )


def removable_data(own: Iterable[str], others: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The addresses to remove, and sentences about those that stay. `others` has their users.

    An address is an object, or a folder with everything below it.
    """
    removed: list[str] = []
    kept: list[str] = []
    for uri in sorted(set(own)):
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        user = next((who for it, who in others.items() if overlaps(uri, it)), None)
        if not uri.startswith("s3://") or not key.strip("/"):
            kept.append(f"data {uri} stays: it is not a folder in a bucket" if bucket else uri)
        elif user is not None:
            kept.append(f"data {uri} stays: {user} uses it")
        elif not any(overlaps(it, uri) and it != uri and uri.startswith(it) for it in removed):
            removed.append(uri)
    return removed, kept


def overlaps(one: str, other: str) -> bool:
    """Whether two addresses are equal, or one is within the other's folder."""
    first, second = (f"{it.rstrip('/')}/" for it in (one, other))
    return first.startswith(second) or second.startswith(first)


def removal_lines(removal: Removal) -> list[str]:
    """The lines about removed and remaining resources."""
    rows = []
    for kind, names in removal.kinds():
        shown = names if len(names) <= MAX_SHOWN else names[: MAX_SHOWN - 1]
        rows += [(kind, it) for it in shown]
        if len(names) > len(shown):
            rows.append((kind, f"... and {len(names) - len(shown)} more"))
    lines = ["This removes", *(f"  {line}" for line in columns(rows))] if rows else []
    return [*lines, *removal.kept]


def _doomed_components(
    named: Sequence[NamedModel], held: HeldResources, endpoints: set[str]
) -> list[HeldComponent]:
    names = {it.component for it in named}
    own = [it for it in held.components if it.name in names or it.endpoint in endpoints]
    doomed = {it.name for it in own}
    return [it for it in held.components if it.name in doomed or it.base in doomed]


def _config_uses(held: HeldResources, endpoints: set[str]) -> dict[str, str]:
    return {
        config: f"endpoint {endpoint}"
        for endpoint, config in held.endpoints.items()
        if endpoint not in endpoints
    }


def _model_uses(
    held: HeldResources, configs: set[str], staying: Sequence[HeldComponent]
) -> dict[str, str]:
    uses = {model: f"job {job}" for model, job in held.model_uses.items()}
    uses |= {model: f"component {it.name}" for it in staying for model in it.models}
    return uses | {
        model: f"configuration {config}"
        for config, models in held.configs.items()
        if config not in configs
        for model in models
    }


def _describe_kept(kind: str, names: Iterable[str], uses: Mapping[str, str]) -> list[str]:
    return [f"{kind} {it} stays: {uses[it]} uses it" for it in sorted(names) if it in uses]


def _scales_any(resource_id: str, endpoints: set[str], components: set[str]) -> bool:
    kind, _, rest = resource_id.partition("/")
    if kind == "inference-component":
        return rest in components
    return kind == "endpoint" and rest.partition("/")[0] in endpoints
