"""UpdateInferenceExperiment and StopInferenceExperiment."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sagemaker.endpoint_update import check_keeps_scaled_variants
from hostelry.api.sagemaker.experiment import build_answer, check_event, conflict, wrong_status
from hostelry.api.sagemaker.experiment_spec import (
    capture_of,
    check_end,
    experiment_of,
    shadow_mode_of,
    variants_of,
)
from hostelry.api.sagemaker.kinds import EXPERIMENTS
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.experiment_deployment import after_deployment
from hostelry.domain.experiment_life import begin_stop, end_stop
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentStop,
    ExperimentVariant,
    InferenceExperiment,
    VariantAction,
)
from hostelry.domain.status import EXPERIMENT_CHANGE_S, Event, next_status

# The possible actions on the production variant and the shadow: one variant stays.
POSSIBLE = frozenset(
    {
        (VariantAction.RETAIN, VariantAction.REMOVE),
        (VariantAction.RETAIN, VariantAction.RETAIN),
        (VariantAction.REMOVE, VariantAction.PROMOTE),
    }
)
STOPPABLE = (ExperimentStatus.CREATED, ExperimentStatus.STARTING, ExperimentStatus.RUNNING)


def update_inference_experiment(context: CallContext, params: Params) -> Result:
    """UpdateInferenceExperiment, in status Created or Running."""
    found = EXPERIMENTS.find(context, params["Name"])
    experiment = found.value
    check_event(experiment, Event.UPDATE, "updated")
    change = _change_created if experiment.started_at is None else _change_running
    changed = replace(
        change(context, experiment, params),
        status=next_status(experiment.status, Event.UPDATE),
        modified_at=context.now,
        deadline_at=context.now + EXPERIMENT_CHANGE_S,
    )
    EXPERIMENTS.put(context, changed, found)
    return build_answer(experiment)


def _change_created(
    context: CallContext, experiment: InferenceExperiment, params: Params
) -> InferenceExperiment:
    """Change an experiment that has not started. The request may change every field."""
    given = {**experiment.given, **params}
    if params.get("Schedule") is not None:
        given["Schedule"] = {**(experiment.given.get("Schedule") or {}), **params["Schedule"]}
    given["ModelVariants"] = _merge_variants(experiment, given, params.get("ModelVariants") or ())
    changed = experiment_of(context, given, is_new=False)
    return replace(changed, created_at=experiment.created_at)


def _merge_variants(
    experiment: InferenceExperiment, given: Params, changes: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The given variants, and the former variants that are still used."""
    mode = given["ShadowModeConfig"]
    shadows = [it["ShadowModelVariantName"] for it in mode["ShadowModelVariants"]]
    named = {it["VariantName"] for it in changes}
    used = {mode["SourceModelVariantName"], *shadows} - named
    before = experiment.given["ModelVariants"]
    return [*(it for it in before if it["VariantName"] in used), *changes]


def _change_running(
    context: CallContext, experiment: InferenceExperiment, params: Params
) -> InferenceExperiment:
    """Change the description, percentage or end of a running experiment. Nothing else may change.

    Source: "Edit a shadow test" in the SageMaker developer guide.
    """
    for field in ("ModelVariants", "DataStorageConfig"):
        if params.get(field) is not None and is_changed(experiment, field, params[field]):
            raise cannot_change(experiment, field)
    schedule, mode = params.get("Schedule") or {}, params.get("ShadowModeConfig")
    start_at = schedule.get("StartTime")
    if start_at is not None and start_at not in (
        experiment.start_at,
        (experiment.given.get("Schedule") or {}).get("StartTime"),
    ):
        raise cannot_change(experiment, "Schedule.StartTime")
    if schedule.get("EndTime") is not None:
        end_at = float(schedule["EndTime"])
        check_end(experiment.start_at, end_at, context.now)
        experiment = replace(experiment, end_at=end_at)
    if mode is not None:
        source, shadow, percent = shadow_mode_of(mode, experiment.variants)
        if (source, shadow) != (experiment.production_name, experiment.shadow_name):
            raise cannot_change(experiment, "the variants of ShadowModeConfig")
        experiment = replace(experiment, percent=percent)
    shown = {key: params[key] for key in ("Description", "ShadowModeConfig") if key in params}
    return replace(experiment, given={**experiment.given, **shown})


def is_changed(experiment: InferenceExperiment, field: str, given: Any) -> bool:
    """True if `given` would change a field of a running experiment."""
    if field == "DataStorageConfig":
        return capture_of(given) != experiment.capture
    known = {it.name: it for it in experiment.variants}
    return any(known.get(it.name) != it for it in variants_of(given, field))


def cannot_change(experiment: InferenceExperiment, field: str) -> ServiceError:
    """The error for a change that is too late."""
    return conflict(
        f'Inference experiment "{experiment.arn}" is {experiment.status.value}: {field} cannot be'
        " changed any more, only the Description, the SamplingPercentage and the EndTime."
    )


def stop_inference_experiment(context: CallContext, params: Params) -> Result:
    """StopInferenceExperiment, while it is scheduled, starts or runs."""
    found = EXPERIMENTS.find(context, params["Name"])
    experiment = found.value
    if experiment.status not in STOPPABLE:
        raise wrong_status(experiment, "stopped")
    stop = _build_stop(experiment, params, context.now)
    if experiment.status is not ExperimentStatus.RUNNING and (stop.promotes or stop.desired):
        raise conflict(
            f'Inference experiment "{experiment.arn}" is {experiment.status.value}: no shadow'
            " serves yet, so none can be promoted, and no variant be given other instances."
        )
    if experiment.status is ExperimentStatus.CREATED:
        EXPERIMENTS.put(context, end_stop(experiment, stop, context.now), found)
        return build_answer(experiment)
    after = begin_stop(experiment, stop, context.now)
    check_scaled_variants(context, after)
    EXPERIMENTS.put(context, after, found)
    return build_answer(experiment)


def _build_stop(experiment: InferenceExperiment, params: Params, now: float) -> ExperimentStop:
    """The stop of a request. Without a DesiredState it cancels the experiment.

    Source: StopInferenceExperiment, and Cancelled of InferenceExperimentStatus, in the SageMaker
    API reference.
    """
    production, shadow = _parse_actions(experiment, params["ModelVariantActions"])
    return ExperimentStop(
        production=production,
        shadow=shadow,
        desired=_parse_desired(experiment, params.get("DesiredModelVariants") or (), shadow),
        is_completed=params.get("DesiredState") == "Completed",
        reason=params.get("Reason") or None,
        at=now,
    )


def _parse_actions(
    experiment: InferenceExperiment, given: Mapping[str, str]
) -> tuple[VariantAction, VariantAction]:
    """The actions on both variants. One of them may be omitted."""
    names = (experiment.production_name, experiment.shadow_name)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise validation_error(
            f'ModelVariantActions: "{unknown[0]}" is no variant of inference experiment'
            f' "{experiment.arn}"; its variants are {", ".join(names)}.'
        )
    shadow = VariantAction(given.get(names[1], "Remove"))
    default = "Remove" if shadow is VariantAction.PROMOTE else "Retain"
    production = VariantAction(given.get(names[0], default))
    if (production, shadow) not in POSSIBLE:
        raise validation_error(
            f'ModelVariantActions: {production.value} of "{names[0]}" and {shadow.value} of'
            f' "{names[1]}" do not leave one production variant. Retain production and Remove or'
            " Retain the shadow, or Remove production and Promote the shadow."
        )
    return production, shadow


def _parse_desired(
    experiment: InferenceExperiment, given: Sequence[Mapping[str, Any]], shadow: VariantAction
) -> tuple[ExperimentVariant, ...]:
    """The variants to deploy after the stop, if the request gives them."""
    found = variants_of(given, "DesiredModelVariants")
    if not found:
        return ()
    left = set() if shadow is VariantAction.PROMOTE else {experiment.production_name}
    left |= set() if shadow is VariantAction.REMOVE else {experiment.shadow_name}
    names = {it.name for it in found}
    if names != left:
        raise validation_error(
            f"DesiredModelVariants has {', '.join(sorted(names))}; by ModelVariantActions"
            f" {', '.join(sorted(left))} must be deployed after the stop."
        )
    for variant in found:
        model_name = deployed_model_name(experiment, variant.name)
        if variant.model_name != model_name:
            raise validation_error(
                f'DesiredModelVariants: variant "{variant.name}" has model "{model_name}", not'
                f' "{variant.model_name}".'
            )
    return found


def deployed_model_name(experiment: InferenceExperiment, variant_name: str) -> str | None:
    """The name of the model that a variant of the experiment runs."""
    if variant_name in experiment.models:
        return experiment.models[variant_name].name
    live = None if experiment.before is None else experiment.before.production[0].model
    return None if live is None else live.name


def check_scaled_variants(context: CallContext, experiment: InferenceExperiment) -> None:
    """Refuse a stop that removes a variant which is a scalable target."""
    found = context.state.endpoints.get(context.scope, experiment.endpoint_name)
    if found is None or not experiment.is_deployed:
        return
    wanted = after_deployment(experiment, found.value, 0, context.now)
    if wanted is not None:
        check_keeps_scaled_variants(context, found.value, wanted)
