"""The deployments of an inference experiment: while it runs, and after its end. Pure.

the endpoint                       while the experiment runs            after its end
--------------------------------   ----------------------------------   ------------------------
did not exist before               a new endpoint                       production alone
existed before                     its production variant and shadow    as it was before
any, and the shadow is promoted    as above                             the shadow as production

If the production variant does not change, its copies continue to run, and only the shadow comes and
goes. A serving shadow is promoted with its copies, unless more or other instances are requested.
Any other deployment starts next to the serving deployment, and then replaces it.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import EndpointConfig, Variant
from hostelry.domain.inference_experiment import (
    ExperimentVariant,
    InferenceExperiment,
    VariantAction,
)
from hostelry.domain.model import Model
from hostelry.domain.resize import deployment_deadline, replace_active
from hostelry.domain.status import Event, next_status

MAX_PREFIX_CHARS = 40
ConfigKey = tuple[str, float]
"""A configuration's ARN and the instant of its creation; names may be used again."""


def config_key(config: EndpointConfig) -> ConfigKey:
    """The identity of a configuration."""
    return config.arn, config.created_at


def run_config_name(experiment: InferenceExperiment) -> str:
    """The name of the configuration that the endpoint has while the experiment runs."""
    return _config_name(experiment, "run")


def run_key(experiment: InferenceExperiment) -> ConfigKey:
    """The identity of the configuration while the experiment runs."""
    arn = experiment.scope.arn("endpoint-config", run_config_name(experiment))
    return arn, experiment.started_at or 0.0


def after_key(experiment: InferenceExperiment) -> ConfigKey | None:
    """The identity of the configuration after the end. None if the endpoint does not change."""
    stop, before = experiment.stop, experiment.before
    assert stop is not None, "only a stopped experiment has an end"
    if _changes_nothing(experiment):
        return None
    if before is not None and _goes_back(experiment):
        return config_key(before.config)
    arn = experiment.scope.arn("endpoint-config", _config_name(experiment, "after"))
    return arn, stop.at


def why_unfit(experiment: InferenceExperiment, endpoint: Endpoint) -> str | None:
    """Say why the experiment cannot run on the serving endpoint, or None if it can.

    Source: "Shadow tests" in the SageMaker developer guide.
    """
    active = endpoint.active
    name = f'endpoint "{endpoint.arn}"'
    if endpoint.takes_components:
        return f"{name} hosts inference components, whose requests cannot be mirrored"
    if active.config.async_inference is not None:
        return f"{name} is asynchronous: its requests cannot be mirrored"
    if active.shadow is not None:
        return f'{name} has the shadow variant "{active.shadow.variant.name}" already'
    if len(active.production) != 1:
        return f"{name} has {len(active.production)} production variants; exactly one is needed"
    (live,) = active.production
    if live.serverless is not None:
        return f"{name} is serverless: its requests cannot be mirrored"
    if any(container.is_multi_model for model in live.models for container in model.containers):
        return f"{name} has a multi-model container, whose requests cannot be mirrored"
    if live.variant.name != experiment.production_name:
        return (
            f'{name} has the production variant "{live.variant.name}", not the'
            f' SourceModelVariantName "{experiment.production_name}"'
        )
    return None


def run_deployment(
    experiment: InferenceExperiment, endpoint: Endpoint | None, generation: int, now: float
) -> Deployment:
    """The deployment with the shadow, for a new endpoint or for an endpoint that serves."""
    live = None if endpoint is None else endpoint.active
    if live is None:
        production = _new_production(experiment)
    else:
        production = _kept_production(experiment, live.production[0])
    shadow = _shadow(experiment, production.variant)
    variants = (production, shadow)
    given = {} if live is None else live.config.given
    config = _config(experiment, run_config_name(experiment), run_key(experiment)[1], variants)
    return Deployment(
        generation=generation,
        config=replace(
            config,
            given=_build_request(experiment, config, given, captures=True),
            capture=experiment.capture or (None if live is None else live.capture),
        ),
        variants=variants,
        started_at=now,
        capture=experiment.capture or (None if live is None else live.capture),
    )


def after_deployment(
    experiment: InferenceExperiment, endpoint: Endpoint, generation: int, now: float
) -> Deployment | None:
    """The deployment after the end, for an endpoint that has the experiment's deployment.

    None if the endpoint does not change.
    """
    stop, before = experiment.stop, experiment.before
    assert stop is not None, "only a stopped experiment has an end"
    key = after_key(experiment)
    if key is None:
        return None
    capture = None if before is None else before.capture
    variants = _variants_after(experiment, endpoint.active)
    if before is not None and _goes_back(experiment):
        config = before.config
    else:
        name = _config_name(experiment, "after")
        config = _config(experiment, name, key[1], variants)
        given = {} if before is None else before.config.given
        given = _build_request(experiment, config, given, captures=False)
        config = replace(config, given=given, capture=capture)
    return Deployment(
        generation=generation,
        config=config,
        variants=variants,
        started_at=now,
        capture=capture,
    )


def given_capture(storage: Mapping[str, Any]) -> Mapping[str, Any]:
    """A DataStorageConfig as a DataCaptureConfig for every request and both sides."""
    found: dict[str, Any] = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": storage["Destination"],
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    if storage.get("KmsKey"):
        found["KmsKeyId"] = storage["KmsKey"]
    if storage.get("ContentType"):
        found["CaptureContentTypeHeader"] = storage["ContentType"]
    return found


def set_share(endpoint: Endpoint, share: float, now: float) -> Endpoint:
    """The serving endpoint with another share of mirrored requests."""
    active = endpoint.active
    variants = tuple(
        replace(one, desired_weight=share if one.variant.is_shadow else 1.0)
        for one in active.variants
    )
    return replace_active(endpoint, replace(active, variants=variants), now)


def begin_deployment(
    endpoint: Endpoint, wanted: Deployment, now: float, *, shadow_serves: bool = False
) -> Endpoint:
    """Begin to change an endpoint to `wanted`. `shadow_serves` is true if all shadow copies serve.

    The change is in place if only the number of variants, their weights and instance counts differ.
    An endpoint in status Creating is always changed in place.
    """
    if _is_in_place(endpoint.active, wanted, shadow_serves=shadow_serves):
        active = replace(
            endpoint.active,
            config=wanted.config,
            variants=wanted.variants,
            capture=wanted.capture,
        )
        if endpoint.status is EndpointStatus.CREATING:
            return replace(endpoint, active=active, modified_at=now)
        return replace_active(endpoint, active, now)
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.UPDATE),
        pending=wanted,
        modified_at=now,
        deadline_at=deployment_deadline(wanted, now),
        failure_reason=None,
    )


def can_deploy(endpoint: Endpoint, wanted: Deployment, *, shadow_serves: bool = False) -> bool:
    """Whether the endpoint's status allows `begin_deployment` for `wanted`."""
    if endpoint.pending is not None or endpoint.bake is not None:
        return False
    if endpoint.status is EndpointStatus.IN_SERVICE:
        return True
    may_wait = (EndpointStatus.CREATING, EndpointStatus.UPDATING)
    is_in_place = _is_in_place(endpoint.active, wanted, shadow_serves=shadow_serves)
    return endpoint.status in may_wait and is_in_place


def new_endpoint(experiment: InferenceExperiment, active: Deployment, now: float) -> Endpoint:
    """The endpoint that the experiment creates."""
    name = experiment.endpoint_name
    return Endpoint(
        scope=experiment.scope,
        name=name,
        arn=experiment.scope.arn("endpoint", name),
        created_at=now,
        modified_at=now,
        status=EndpointStatus.CREATING,
        active=active,
        deadline_at=deployment_deadline(active, now),
        given={"EndpointName": name, "EndpointConfigName": active.config.name},
    )


def _changes_nothing(experiment: InferenceExperiment) -> bool:
    stop = experiment.stop
    assert stop is not None, "asked of a stopped experiment"
    is_kept = stop.shadow is VariantAction.RETAIN and not stop.desired
    return is_kept and experiment.capture is None


def _goes_back(experiment: InferenceExperiment) -> bool:
    """True if the endpoint returns to its earlier state, rather than to a new one."""
    stop = experiment.stop
    return stop is not None and stop.shadow is VariantAction.REMOVE and not stop.desired


def _config_name(experiment: InferenceExperiment, part: str) -> str:
    """A name that no client can choose: the experiment's name, and a digest of the experiment."""
    digest = zlib.crc32(f"{experiment.name} {experiment.created_at}".encode())
    return f"{experiment.name[:MAX_PREFIX_CHARS]}-{part}-{digest:08x}"


def _config(
    experiment: InferenceExperiment,
    name: str,
    created_at: float,
    variants: Iterable[EndpointVariant],
) -> EndpointConfig:
    return EndpointConfig(
        scope=experiment.scope,
        name=name,
        arn=experiment.scope.arn("endpoint-config", name),
        created_at=created_at,
        variants=tuple(
            replace(one.variant, initial_instance_count=one.desired_instance_count)
            for one in variants
        ),
        given={},
    )


def _build_request(
    experiment: InferenceExperiment,
    config: EndpointConfig,
    before: Mapping[str, Any],
    *,
    captures: bool,
) -> Mapping[str, Any]:
    """The request that would create `config`, for Describe. Other fields come from `before`."""
    of_variants: Sequence[Mapping[str, Any]] = before.get("ProductionVariants") or ({},)
    production = [it for it in config.variants if not it.is_shadow]
    shadows = [it for it in config.variants if it.is_shadow]
    given = {name: it for name, it in before.items() if name != "Tags"}
    given["EndpointConfigName"] = config.name
    given["ProductionVariants"] = [_given_variant(it, of_variants[0]) for it in production]
    if shadows:
        given["ShadowProductionVariants"] = [_given_variant(it, of_variants[0]) for it in shadows]
    if experiment.given.get("KmsKey"):
        given["KmsKeyId"] = experiment.given["KmsKey"]
    storage = experiment.given.get("DataStorageConfig")
    if captures and storage:
        given["DataCaptureConfig"] = given_capture(storage)
    return given


def _given_variant(variant: Variant, like: Mapping[str, Any]) -> Mapping[str, Any]:
    found = {**like}
    if not variant.pools:
        found.pop("InstancePools", None)
        found["InstanceType"] = variant.instance_type
    return {
        **found,
        "VariantName": variant.name,
        "ModelName": variant.model_name,
        "InitialInstanceCount": variant.initial_instance_count,
        "InitialVariantWeight": variant.weight,
    }


def _new_production(experiment: InferenceExperiment) -> EndpointVariant:
    asked = experiment.production
    assert asked is not None, "a new endpoint's production variant is among those given"
    variant = Variant(
        name=asked.name,
        model_name=asked.model_name,
        instance_type=asked.instance_type,
        initial_instance_count=asked.instance_count,
    )
    return _serves_model(variant, experiment.models[asked.name])


def _kept_production(experiment: InferenceExperiment, live: EndpointVariant) -> EndpointVariant:
    """The serving production variant, with the requested instances, but not fewer than before.

    If the requested model has another name, the variant gets this model.
    """
    asked = experiment.production
    kept = replace(live, variant=replace(live.variant, weight=1.0), desired_weight=1.0)
    if asked is None:
        return kept
    if asked.model_name != kept.variant.model_name:
        variant = replace(kept.variant, model_name=asked.model_name)
        model = experiment.models[asked.name]
        kept = replace(kept, variant=variant, model=model, pool_models={})
    return _on_instances(kept, asked, max(live.desired_instance_count, asked.instance_count))


def _shadow(experiment: InferenceExperiment, production: Variant) -> EndpointVariant:
    """The shadow. It has production's time limits and routing, but its own model and instances."""
    asked = experiment.shadow
    variant = replace(
        production,
        name=asked.name,
        model_name=asked.model_name,
        instance_type=asked.instance_type,
        initial_instance_count=asked.instance_count,
        weight=experiment.share,
        pools=(),
        is_shadow=True,
    )
    return _serves_model(variant, experiment.models[asked.name])


def _serves_model(variant: Variant, model: Model) -> EndpointVariant:
    return EndpointVariant(
        variant=variant,
        model=model,
        desired_instance_count=variant.initial_instance_count,
        desired_weight=variant.weight,
    )


def _on_instances(
    variant: EndpointVariant, asked: ExperimentVariant, count: int
) -> EndpointVariant:
    """The variant with `count` instances of the requested type. Pools keep their instances."""
    changed = replace(variant, desired_instance_count=count)
    if variant.variant.instance_type == asked.instance_type:
        return changed
    one_type = replace(variant.variant, instance_type=asked.instance_type, pools=())
    return replace(changed, variant=one_type, pool_models={}, passed_over=())


def _variants_after(
    experiment: InferenceExperiment, active: Deployment
) -> tuple[EndpointVariant, ...]:
    stop = experiment.stop
    assert stop is not None, "asked of a stopped experiment"
    shadow = active.shadow or _shadow(experiment, active.production[0].variant)
    if stop.promotes:
        promoted = replace(shadow.variant, is_shadow=False, weight=1.0)
        left = [replace(shadow, variant=promoted, desired_weight=1.0)]
    elif stop.shadow is VariantAction.RETAIN:
        left = [active.production[0], shadow]
    else:
        left = [_production_after(experiment, active.production[0])]
    asked = {it.name: it for it in stop.desired}
    return tuple(
        _on_instances(one, asked[one.variant.name], asked[one.variant.name].instance_count)
        if one.variant.name in asked
        else one
        for one in left
    )


def _production_after(experiment: InferenceExperiment, live: EndpointVariant) -> EndpointVariant:
    """The production variant as before, with the instance count that scaling has chosen since."""
    if experiment.before is None:
        return live
    (before,) = experiment.before.production
    if not _is_same_fleet(live, before):
        return before
    asked, count = experiment.production, live.desired_instance_count
    if asked is not None and count == asked.instance_count:
        count = before.desired_instance_count
    return replace(
        live,
        variant=before.variant,
        desired_weight=before.desired_weight,
        desired_instance_count=count,
    )


def _is_in_place(active: Deployment, wanted: Deployment, *, shadow_serves: bool) -> bool:
    """True if the copies that will answer requests already run.

    They are the production variant's copies, or the shadow's copies if all of them serve.
    """
    live = {it.variant.name: it for it in active.variants}
    answering = {it.variant.name for it in wanted.production}
    known = [it for it in wanted.variants if it.variant.name in live]
    if not all(_is_same_fleet(it, live[it.variant.name]) for it in known):
        return False
    if answering == {it.variant.name for it in active.production}:
        return True
    shadow, (promoted, *others) = active.shadow, wanted.production
    if shadow is None or others or not shadow_serves:
        return False
    is_enough = promoted.desired_instance_count <= shadow.desired_instance_count
    return promoted.variant.name == shadow.variant.name and is_enough


def _is_same_fleet(one: EndpointVariant, other: EndpointVariant) -> bool:
    return (one.model, one.pool_models, _bare(one.variant)) == (
        other.model,
        other.pool_models,
        _bare(other.variant),
    )


def _bare(variant: Variant) -> Variant:
    """The variant without its weight, its count, and its role as production or shadow."""
    return replace(variant, weight=1.0, initial_instance_count=1, is_shadow=False)
