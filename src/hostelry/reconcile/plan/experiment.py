"""An inference experiment: its next status, or the next change of its endpoint. Pure.

status     its endpoint                                result
---------  ------------------------------------------  ------------------------------------------
any        status late                                 Cancelled, after Stopping if the experiment
                                                       has changed the endpoint
Creating   any                                         Created
Created    before the start                            stays
Created    after the start, before the end             Starting
Created    after the end                               Cancelled
Starting   missing, not made before                    made
Starting   missing, made before, or Failed, Deleting   Cancelled
Starting   changes to another state                    stays
Starting   in service, cannot have the experiment      Cancelled
Starting   in service, without the experiment          remembered, then changed
Starting   has the experiment, comes up                stays
Starting   has the experiment, the shadow failed       Stopping, for the reason
Starting   has the experiment, the shadow serves       Running
Starting   had the experiment, was rolled back         Cancelled, for the endpoint's reason
Running    missing, Failed, Deleting, or changed       Cancelled
           by a client
Running    after the end                               Stopping: production stays as it was
Updating   before the start                            Created
Updating   has another share                           changed
Updating   has the share asked for                     Running
Stopping   stays, or never had the experiment          Completed or Cancelled, as was asked
Stopping   has the experiment                          changed
Stopping   comes to the state that was asked for       stays
Stopping   in service, in the state asked for          Completed or Cancelled, as was asked
Stopping   the change was rolled back                  once more, to production as it was
Stopping   missing, Failed, Deleting, or changed       Cancelled
           by a client
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.experiment_deployment import (
    ConfigKey,
    after_deployment,
    after_key,
    begin_deployment,
    can_deploy,
    config_key,
    new_endpoint,
    run_deployment,
    run_key,
    set_share,
    why_unfit,
)
from hostelry.domain.experiment_life import begin_stop, end_experiment, end_stop, start_experiment
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentStop,
    InferenceExperiment,
)
from hostelry.domain.resize import deployment_deadline
from hostelry.domain.status import EXPERIMENT_CHANGE_S, EXPERIMENT_SLACK_S, Event, next_status
from hostelry.domain.update_history import append_history

TOO_LATE = "The experiment could not start before its EndTime: the platform was not running."
NAME_TAKEN = "The endpoint could not be made: one has its name in another case of letters."
BY_HAND = "The endpoint was changed while the experiment was {}: it has configuration {} now."


class ExperimentFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an experiment's endpoint when the experiment is planned.

    `shadow_serves`: every instance of the shadow has a copy that serves. `shadow_failure` says why
    one cannot. `has_leftovers`: instances remain of a shadow of the same name that is not desired
    any more. `is_name_taken`: another endpoint has the name in another case of letters.
    `generation` is greater than every earlier one.
    """

    endpoint: Endpoint | None = None
    shadow_serves: bool = False
    shadow_failure: str | None = None
    has_leftovers: bool = False
    is_name_taken: bool = False
    generation: int = 1


class ExperimentStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written: the experiment, or a configuration and the endpoint that has it."""

    experiment: InferenceExperiment
    endpoint: Endpoint | None = None
    config: EndpointConfig | None = None


class ExperimentPlan(Protocol):
    """The next step of an experiment in one status."""

    def __call__(
        self, experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
    ) -> ExperimentStep:
        """The next step. Without a step, the experiment as it is."""


def next_experiment_step(
    experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    """The next step of an experiment, from its endpoint and the time.

    It changes either the experiment or the endpoint.
    """
    if experiment.is_over:
        return ExperimentStep(experiment=experiment)
    return PLANS[experiment.status](experiment, fleet, now)


def select_shadow(deployment: Deployment) -> Deployment | None:
    """The deployment with only the shadow's variants. None if it has no shadow."""
    shadow = deployment.shadow
    return None if shadow is None else replace(deployment, variants=(shadow,))


def _creating(
    experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    return _to(experiment, Event.SCHEDULED, now)


def _plan_created(
    experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    if now >= experiment.end_at:
        return _cancel(experiment, TOO_LATE, now)
    if now < experiment.start_at:
        return ExperimentStep(experiment=experiment)
    return ExperimentStep(experiment=start_experiment(experiment, now))


def _starting(
    experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    endpoint = fleet.endpoint
    if endpoint is None and not (experiment.expects_endpoint or experiment.is_deployed):
        if fleet.is_name_taken or now >= experiment.end_at:
            return _cancel(experiment, NAME_TAKEN if fleet.is_name_taken else TOO_LATE, now)
        run = run_deployment(experiment, None, fleet.generation, now)
        made = new_endpoint(experiment, run, now)
        return ExperimentStep(experiment=experiment, endpoint=made, config=run.config)
    if endpoint is None or _explain_gone(endpoint):
        return _cancel(experiment, _gone_text(endpoint), now)
    if not _has(endpoint, run_key(experiment)):
        return _before_the_change(experiment, endpoint, fleet, now)
    if not experiment.is_deployed:
        limit_s = deployment_deadline(endpoint.deployments[-1], 0.0) + EXPERIMENT_SLACK_S
        seen = replace(experiment, is_deployed=True, deadline_at=now + limit_s)
        return ExperimentStep(experiment=seen)
    if fleet.shadow_failure is not None:
        reason = f"The shadow variant could not come up: {fleet.shadow_failure}"
        return _give_up(experiment, reason, now)
    if _is_settled(endpoint, run_key(experiment)) and fleet.shadow_serves:
        return _to(experiment, Event.READY, now)
    if _is_late(experiment, now):
        return _give_up(experiment, "The shadow variant did not come up in time.", now)
    return ExperimentStep(experiment=experiment)


def _before_the_change(
    experiment: InferenceExperiment, endpoint: Endpoint, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    """The step on an endpoint that does not have the experiment's configuration."""
    if experiment.is_deployed:
        why = endpoint.failure_reason or _by_hand(endpoint, "Starting")
        return _cancel(experiment, why, now)
    is_ready = endpoint.status is EndpointStatus.IN_SERVICE and not fleet.has_leftovers
    if not is_ready:
        if _is_late(experiment, now):
            text = f"The endpoint was {endpoint.status.value} for too long to start on it."
            return _cancel(experiment, text, now)
        return ExperimentStep(experiment=experiment)
    problem = why_unfit(experiment, endpoint)
    if problem is not None:
        return _cancel(experiment, f"The experiment could not start: {problem}.", now)
    before = experiment.before
    if before is None or config_key(before.config) != config_key(endpoint.active.config):
        return ExperimentStep(experiment=replace(experiment, before=endpoint.active))
    run = run_deployment(experiment, endpoint, fleet.generation, now)
    changed = begin_deployment(endpoint, run, now)
    return ExperimentStep(experiment=experiment, endpoint=changed, config=run.config)


def _running(experiment: InferenceExperiment, fleet: ExperimentFleet, now: float) -> ExperimentStep:
    endpoint = fleet.endpoint
    why = _explain_not_ours(experiment, endpoint)
    if why is None and endpoint is not None and endpoint.active.shadow_share != experiment.share:
        why = (
            "The share of requests that are mirrored was changed while the experiment was"
            f" Running: it is {100 * endpoint.active.shadow_share:g} % now, not"
            f" {experiment.percent} %."
        )
    if why is not None:
        return _cancel(experiment, why, now)
    if now < experiment.end_at:
        return ExperimentStep(experiment=experiment)
    stop = ExperimentStop(is_completed=True, at=now)
    return ExperimentStep(experiment=begin_stop(experiment, stop, now))


def _updating(
    experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    if experiment.started_at is None:
        return _to(experiment, Event.SCHEDULED, now)
    endpoint = fleet.endpoint
    why = _explain_not_ours(experiment, endpoint)
    if endpoint is None or why is not None:
        return _cancel(experiment, why or _gone_text(endpoint), now)
    is_ready = endpoint.status is EndpointStatus.IN_SERVICE
    if is_ready and endpoint.active.shadow_share == experiment.share:
        return _to(experiment, Event.READY, now)
    if _is_late(experiment, now):
        return _give_up(experiment, "The endpoint did not take the update in time.", now)
    if not is_ready:
        return ExperimentStep(experiment=experiment)
    changed = set_share(endpoint, experiment.share, now)
    return ExperimentStep(experiment=experiment, endpoint=changed)


def _stopping(
    experiment: InferenceExperiment, fleet: ExperimentFleet, now: float
) -> ExperimentStep:
    endpoint, stop = fleet.endpoint, experiment.stop
    assert stop is not None, "an experiment that is Stopping has a stop"
    if endpoint is None or _explain_gone(endpoint):
        if experiment.is_deployed:
            return _cancel(experiment, _gone_text(endpoint), now)
        return _end(experiment, stop, now)
    run, after = run_key(experiment), after_key(experiment)
    if endpoint.pending is not None and config_key(endpoint.pending.config) == run:
        return ExperimentStep(experiment=experiment, endpoint=_withdraw_pending(endpoint, now))
    if after is not None and _has(endpoint, after):
        return _settle(experiment, endpoint, after, stop, now)
    if not _has(endpoint, run):
        if not experiment.is_deployed:
            return _end(experiment, stop, now)
        return _cancel(experiment, _by_hand(endpoint, "Stopping"), now)
    if after is None:
        return _end(experiment, stop, now)
    if stop.is_applied or _is_late(experiment, now):
        return _try_again(experiment, stop, endpoint, now)
    wanted = after_deployment(experiment, endpoint, fleet.generation, now)
    serves = fleet.shadow_serves
    if wanted is None or not can_deploy(endpoint, wanted, shadow_serves=serves):
        return ExperimentStep(experiment=experiment)
    before = experiment.before
    is_new = before is None or config_key(before.config) != after
    return ExperimentStep(
        experiment=experiment,
        endpoint=begin_deployment(endpoint, wanted, now, shadow_serves=serves),
        config=wanted.config if is_new else None,
    )


def _settle(
    experiment: InferenceExperiment,
    endpoint: Endpoint,
    after: ConfigKey,
    stop: ExperimentStop,
    now: float,
) -> ExperimentStep:
    """The step on an endpoint that has, or comes to, the state that was asked for."""
    if _is_settled(endpoint, after):
        return _end(experiment, stop, now)
    if not stop.is_applied:
        limit_s = deployment_deadline(endpoint.deployments[-1], 0.0) + EXPERIMENT_SLACK_S
        seen = replace(experiment, stop=replace(stop, is_applied=True), deadline_at=now + limit_s)
        return ExperimentStep(experiment=seen)
    if _is_late(experiment, now):
        text = f"The endpoint was {endpoint.status.value} for too long after the stop."
        return _cancel(experiment, text, now)
    return ExperimentStep(experiment=experiment)


def _try_again(
    experiment: InferenceExperiment, stop: ExperimentStop, endpoint: Endpoint, now: float
) -> ExperimentStep:
    """The step if the asked state is out of reach: production as it was, unless tried."""
    why = endpoint.failure_reason or "the endpoint did not change in time"
    if stop.shadow is ExperimentStop(at=now).shadow and not stop.desired:
        text = f"The endpoint still has its shadow variant, which could not be removed: {why}"
        return _cancel(experiment, text, now)
    reason = f"The variants could not be deployed as asked for, production stays as it was: {why}"
    again = replace(experiment, stop=ExperimentStop(reason=reason, at=now))
    return ExperimentStep(experiment=replace(again, deadline_at=now + EXPERIMENT_CHANGE_S))


def _give_up(experiment: InferenceExperiment, reason: str, now: float) -> ExperimentStep:
    """The step that undoes the experiment, or ends it if it has only made its endpoint."""
    stop = ExperimentStop(reason=reason, at=now)
    return ExperimentStep(experiment=begin_stop(experiment, stop, now))


def _withdraw_pending(endpoint: Endpoint, now: float) -> Endpoint | None:
    """The endpoint without its pending deployment."""
    after = replace(
        endpoint,
        status=next_status(endpoint.status, Event.ROLLED_BACK),
        pending=None,
        modified_at=now,
        deadline_at=None,
    )
    return append_history(endpoint, after, now)


def _end(experiment: InferenceExperiment, stop: ExperimentStop, now: float) -> ExperimentStep:
    return ExperimentStep(experiment=end_stop(experiment, stop, now))


def _cancel(experiment: InferenceExperiment, reason: str | None, now: float) -> ExperimentStep:
    return ExperimentStep(experiment=end_experiment(experiment, Event.FAIL, reason, now))


def _to(experiment: InferenceExperiment, event: Event, now: float) -> ExperimentStep:
    after = replace(
        experiment,
        status=next_status(experiment.status, event),
        modified_at=now,
        deadline_at=None,
    )
    return ExperimentStep(experiment=after)


def _is_late(experiment: InferenceExperiment, now: float) -> bool:
    return experiment.deadline_at is not None and now >= experiment.deadline_at


def _has(endpoint: Endpoint, key: ConfigKey) -> bool:
    """Whether the endpoint has a configuration, or is on its way to it."""
    return any(config_key(it.config) == key for it in _find_desired(endpoint))


def _find_desired(endpoint: Endpoint) -> tuple[Deployment, ...]:
    return (endpoint.active,) if endpoint.pending is None else (endpoint.active, endpoint.pending)


def _is_settled(endpoint: Endpoint, key: ConfigKey) -> bool:
    is_active = endpoint.pending is None and config_key(endpoint.active.config) == key
    return is_active and endpoint.status is EndpointStatus.IN_SERVICE


def _explain_gone(endpoint: Endpoint) -> str | None:
    """Why an endpoint does not serve any more. None while it may."""
    if endpoint.status is EndpointStatus.DELETING:
        return "The endpoint was deleted."
    if endpoint.status is EndpointStatus.FAILED:
        return f"The endpoint failed: {endpoint.failure_reason or 'without a reason'}"
    return None


def _gone_text(endpoint: Endpoint | None) -> str:
    return (None if endpoint is None else _explain_gone(endpoint)) or "The endpoint was deleted."


def _by_hand(endpoint: Endpoint, status: str) -> str:
    return BY_HAND.format(status, _find_desired(endpoint)[-1].config.name)


def _explain_not_ours(experiment: InferenceExperiment, endpoint: Endpoint | None) -> str | None:
    """Why the endpoint's state is not the experiment's any more. None while it is."""
    if endpoint is None or _explain_gone(endpoint):
        return _gone_text(endpoint)
    is_ours = config_key(endpoint.active.config) == run_key(experiment)
    if is_ours and endpoint.pending is None:
        return None
    return _by_hand(endpoint, experiment.status.value)


PLANS: Mapping[ExperimentStatus, ExperimentPlan] = {
    ExperimentStatus.CREATING: _creating,
    ExperimentStatus.CREATED: _plan_created,
    ExperimentStatus.STARTING: _starting,
    ExperimentStatus.RUNNING: _running,
    ExperimentStatus.UPDATING: _updating,
    ExperimentStatus.STOPPING: _stopping,
}
