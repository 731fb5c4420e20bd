"""Starts, stops and ends of inference experiments, for clients and the reconciler. Pure."""

from msgspec.structs import replace

from hostelry.domain.inference_experiment import ExperimentStop, InferenceExperiment
from hostelry.domain.status import EXPERIMENT_CHANGE_S, Event, next_status

DEFAULT_DURATION_S = 7 * 86_400.0
MAX_DURATION_S = 30 * 86_400.0
MAX_REASON_CHARS = 1024


def start_experiment(experiment: InferenceExperiment, now: float) -> InferenceExperiment:
    """The experiment in status Starting, with a new deadline."""
    return replace(
        experiment,
        status=next_status(experiment.status, Event.START),
        start_at=min(experiment.start_at, now),
        end_at=min(experiment.end_at, now + MAX_DURATION_S),
        started_at=now,
        modified_at=now,
        deadline_at=now + EXPERIMENT_CHANGE_S,
    )


def begin_stop(
    experiment: InferenceExperiment, stop: ExperimentStop, now: float
) -> InferenceExperiment:
    """The experiment in status Stopping, as `stop` says."""
    return replace(
        experiment,
        status=next_status(experiment.status, Event.STOP),
        stop=stop,
        modified_at=now,
        deadline_at=now + EXPERIMENT_CHANGE_S,
    )


def end_stop(
    experiment: InferenceExperiment, stop: ExperimentStop, now: float
) -> InferenceExperiment:
    """The experiment after its end, as `stop` says."""
    event = Event.COMPLETE if stop.is_completed else Event.STOPPED
    return end_experiment(replace(experiment, stop=stop), event, stop.reason, now)


def end_experiment(
    experiment: InferenceExperiment, event: Event, reason: str | None, now: float
) -> InferenceExperiment:
    """End the experiment by `event`. The reason is put on one line, as AWS's shape requires."""
    reason = None if reason is None else " ".join(reason.split())[:MAX_REASON_CHARS]
    return replace(
        experiment,
        status=next_status(experiment.status, event),
        status_reason=reason,
        modified_at=now,
        completed_at=now,
        deadline_at=None,
    )
